"""Sufficient statistics T of a variable: of a value, in expectation, or as natural parameters."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp

from lamu.families import (
    Bernoulli,
    Beta,
    Categorical,
    Dirichlet,
    Gamma,
    Gaussian,
    GaussianChain,
    InverseGamma,
    MarkovChain,
    MultivariateNormal,
    NormalGamma,
    NormalWishart,
    ParallelGaussianChain,
    ParallelMarkovChain,
    Wishart,
)
from lamu.families.exponential import symmetric
from lamu.families.probabilities import gamma_shape
from lamu.operators import Diagonal
from lamu.record import record
from lamu.typing import Array, Belief, DTypeLike

__all__ = [
    "KINDS",
    "OF_FAMILY",
    "Bits",
    "Categories",
    "Chance",
    "Located",
    "LocatedVectors",
    "Numbers",
    "Observed",
    "ParallelSeries",
    "ParallelStates",
    "PositiveNumbers",
    "Precisions",
    "Probabilities",
    "Series",
    "States",
    "Statistics",
    "Variances",
    "Vectors",
    "kind_of",
]


S = TypeVar("S", bound="Statistics")
KINDS: dict[str, type[Statistics]] = {}


class Statistics(ABC):
    """T of one kind of variable, with the fields of its family's natural parameters."""

    words: ClassVar[str]  # its name in messages
    family: ClassVar[Any] = None  # of beliefs about it, a class of `lamu.families`; None if it is always observed
    given: ClassVar[Any] = ()  # known arguments of the family
    neutral: ClassVar[float] = 0.0  # a value of the support, for missing entries
    events: ClassVar[int] = 0  # number of trailing axes of a value that belong to one variable
    # The support by the path below the variable, as `lamu.constraints` names it.
    constraint: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        KINDS[cls.__name__] = cls

    @classmethod
    @abstractmethod
    def of(cls: type[S], value: Any) -> S:
        """Returns T of a value."""

    @classmethod
    def unknown(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        """Returns the shapes of a value, from the variable's shape."""
        return jax.ShapeDtypeStruct(shape, dtype)

    @classmethod
    def zeros(cls: type[S], shape: tuple[int, ...], dtype: DTypeLike) -> S:
        """Returns the zero of the space of T, for values of a shape."""
        if cls.family is None:
            raise TypeError(f"{cls.words} are always observed, and have no closed form; put them in the data")
        return jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, dtype), jax.eval_shape(cls.of, cls.unknown(shape, dtype))
        )

    @classmethod
    def under(cls: type[S], belief: Belief) -> S:
        r"""Returns \(E_q[T]\) of a belief."""
        return cls(*jax.tree.leaves(belief.expectation().values))

    @property
    def values(self) -> Any:
        """The statistics as natural parameters of the family."""
        parts = jax.tree.leaves(self)
        return tuple(parts) if len(parts) > 1 else parts[0]

    def belief(self) -> Belief:
        r"""Returns the belief with these natural parameters λ."""
        return self.family.from_natural(self.values, self.given)

    def log_partition(self) -> Array:
        r"""Returns \(\log \int e^{\langle\lambda, T(x)\rangle}\, dx\) of natural parameters λ, a sum over members."""
        return self.family.partition(self.values, self.given)

    def mode(self) -> Any:
        r"""Returns the x that maximises \(\langle\lambda, T(x)\rangle\), for natural parameters λ."""
        raise TypeError(f"{self.words} are summed out or observed, and are not a point")


def kept(natural: Array) -> Array:
    """Returns the counts of a mode, so large that their logarithm is finite: a mode at the edge stays inside."""
    return jnp.maximum(natural, jnp.asarray(jnp.finfo(natural.dtype).tiny ** 0.25, natural.dtype))


def shape_of_gamma(log: Array, log_mean: Array, dimension: int = 1) -> Array:
    """Returns a of the Gamma, or half the Wishart's degrees of freedom, from E log and log E; infinite if equal."""
    gap = log - log_mean
    equal = gap > -64.0 * jnp.finfo(gap.dtype).eps * (1.0 + jnp.abs(log_mean))
    return jnp.where(equal, jnp.inf, gamma_shape(jnp.where(equal, jnp.nan, gap), dimension))


@record
class Located(Statistics):
    """A number and its precision, as one variable."""

    log: Any  # log τ
    precision: Any  # τ
    first: Any  # τ x
    second: Any  # τ x²

    words = "a mean with its precision"
    family = NormalGamma
    constraint: ClassVar[dict[str, Any]] = {"precision": "positive"}

    @classmethod
    def of(cls, value: Any) -> Located:
        x, precision = value["mean"], value["precision"]
        return cls(jnp.log(precision), precision, precision * x, precision * x**2)

    @classmethod
    def unknown(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        number = super().unknown(shape, dtype)
        return {"mean": number, "precision": number}

    def mode(self) -> Any:
        left = self.precision - self.first**2 / (4.0 * self.second)
        return {"mean": -self.first / (2.0 * self.second), "precision": kept(self.log) / -left}


@record
class LocatedVectors(Statistics):
    """A vector and its precision matrix, as one variable."""

    logdet: Any  # log det Λ
    precision: Any  # Λ
    first: Any  # Λ x
    second: Any  # xᵀ Λ x

    words = "a mean vector with its precision matrix"
    family = NormalWishart
    events = 1
    constraint: ClassVar[dict[str, Any]] = {"precision": "positive_definite"}

    @classmethod
    def of(cls, value: Any) -> LocatedVectors:
        x, precision = value["mean"], value["precision"]
        first = (precision @ x[..., None])[..., 0]
        return cls(jnp.linalg.slogdet(precision)[1], precision, first, jnp.sum(x * first, axis=-1))

    @classmethod
    def unknown(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        vector = super().unknown(shape, dtype)
        return {"mean": vector, "precision": super().unknown((*shape, shape[-1]), dtype)}

    def mode(self) -> Any:
        mean = -self.first / (2.0 * self.second)[..., None]
        left = symmetric(self.precision) + self.first[..., :, None] * mean[..., None, :] / 2.0
        return {"mean": mean, "precision": kept(self.logdet)[..., None, None] * jnp.linalg.inv(-left)}


@record
class Numbers(Statistics):
    """Real numbers, independent in a belief."""

    first: Any  # x
    second: Any  # x²

    words = "numbers"
    family = Gaussian

    @classmethod
    def of(cls, value: Any) -> Numbers:
        return cls(value, value**2)

    @classmethod
    def under_independent(cls, mean: Array, variance: Array) -> Numbers:
        """Returns E T of numbers with given mean and variance."""
        return cls(mean, mean**2 + variance)

    @property
    def values(self) -> Any:
        return self.first, Diagonal(self.second)

    def log_partition(self) -> Array:
        # The family has the power of 2π in its base measure.
        log = -(self.first**2) / (4.0 * self.second) - jnp.log(-2.0 * self.second) / 2.0
        return jnp.sum(log + math.log(2.0 * math.pi) / 2.0)

    def mode(self) -> Any:
        return -self.first / (2.0 * self.second)


@record
class Vectors(Statistics):
    """Real vectors, with correlated entries in a belief."""

    first: Any  # x `[..., d]`
    outer: Any  # x xᵀ `[..., d, d]`

    words = "vectors"
    family = MultivariateNormal
    events = 1

    @classmethod
    def of(cls, value: Any) -> Vectors:
        return cls(value, value[..., :, None] * value[..., None, :])

    @classmethod
    def under_independent(cls, mean: Array, variance: Array) -> Vectors:
        """Returns E T of vectors with independent entries."""
        outer = mean[..., :, None] * mean[..., None, :]
        return cls(mean, outer + variance[..., :, None] * jnp.eye(mean.shape[-1], dtype=mean.dtype))

    @property
    def second(self) -> Array:
        """The squares of the entries, x²."""
        return jnp.diagonal(self.outer, axis1=-2, axis2=-1)

    def mode(self) -> Any:
        return self.belief().mean


@record
class PositiveNumbers(Statistics):
    """Positive numbers: rates and precisions."""

    log: Any  # log x
    value: Any  # x

    words = "positive numbers"
    family = Gamma
    neutral = 1.0
    constraint: ClassVar[dict[str, Any]] = {"": "positive"}

    @classmethod
    def of(cls, value: Any) -> PositiveNumbers:
        return cls(jnp.log(value), value)

    @property
    def shape(self) -> Array:
        """The shape of the `Gamma` with these means; infinite for a known number."""
        return shape_of_gamma(self.log, jnp.log(self.value))

    @property
    def mean_inverse(self) -> Array:
        """E[1/x] of the `Gamma` with these means; infinite for a shape up to one."""
        return jnp.where(self.shape > 1.0, 1.0 / (1.0 - 1.0 / self.shape), jnp.inf) / self.value

    def mode(self) -> Any:
        # Close to zero, if the density has its mode there.
        return kept(self.log) / -self.value


@record
class Variances(Statistics):
    """Positive numbers with the statistics of their reciprocals."""

    log: Any  # log x
    inverse: Any  # 1 / x

    words = "variances"
    family = InverseGamma
    neutral = 1.0
    constraint: ClassVar[dict[str, Any]] = {"": "positive"}

    @classmethod
    def of(cls, value: Any) -> Variances:
        return cls(jnp.log(value), 1.0 / value)

    def mode(self) -> Any:
        return self.inverse / self.log


@record
class Precisions(Statistics):
    """Precision matrices."""

    logdet: Any  # log det Λ
    matrix: Any  # Λ `[..., p, p]`

    words = "precision matrices"
    family = Wishart
    events = 2
    constraint: ClassVar[dict[str, Any]] = {"": "positive_definite"}

    @classmethod
    def of(cls, value: Any) -> Precisions:
        return cls(jnp.linalg.slogdet(value)[1], value)

    def mode(self) -> Any:
        return kept(self.logdet)[..., None, None] * jnp.linalg.inv(-symmetric(self.matrix))


@record
class Probabilities(Statistics):
    """Probabilities that sum to one."""

    log: Any  # log π `[..., K]`

    words = "probabilities that sum to one"
    family = Dirichlet
    events = 1
    constraint: ClassVar[dict[str, Any]] = {"": "simplex"}

    @classmethod
    def of(cls, value: Any) -> Probabilities:
        # Of zero, as of a transition that a model forbids, the least finite one: 0 log 0 is zero, and not NaN.
        return cls(jnp.log(jnp.maximum(value, jnp.finfo(jnp.asarray(value).dtype).tiny)))

    def mode(self) -> Any:
        # Close to zero where it is negative and the mode is at the edge.
        counts = kept(self.log)
        return counts / jnp.sum(counts, axis=-1, keepdims=True)


@record
class Chance(Statistics):
    """Probabilities, each of one event."""

    log: Any  # log p
    log_complement: Any  # log(1 − p)

    words = "probabilities"
    family = Beta
    neutral = 0.5
    constraint: ClassVar[dict[str, Any]] = {"": "unit_interval"}

    @classmethod
    def of(cls, value: Any) -> Chance:
        return cls(jnp.log(value), jnp.log1p(-value))

    def mode(self) -> Any:
        events, others = kept(self.log), kept(self.log_complement)
        return events / (events + others)


@record
class Categories(Statistics):
    """One of K categories: for a value the one-hot vector, for a belief the probabilities of all K."""

    probabilities: Any  # `[..., K]`

    words = "categories"
    family = Categorical
    events = 1

    @classmethod
    def of(cls, value: Any) -> Categories:
        return cls(value)

    # The family is minimal, without the last category.

    @classmethod
    def under(cls, belief: Belief) -> Categories:
        return cls(belief.mean)

    def belief(self) -> Categorical:
        return Categorical(self.probabilities)

    def log_partition(self) -> Array:
        return jnp.sum(jax.nn.logsumexp(self.probabilities, axis=-1))

    def mode(self) -> Any:
        K = self.probabilities.shape[-1]
        return jax.nn.one_hot(jnp.argmax(self.probabilities, axis=-1), K, dtype=self.probabilities.dtype)


@record
class Bits(Statistics):
    """Zeros and ones: for a value x, for a belief the probabilities, as natural parameters the logits."""

    value: Any  # x

    words = "zeros and ones"
    family = Bernoulli

    @classmethod
    def of(cls, value: Any) -> Bits:
        return cls(value)

    def mode(self) -> Any:
        return jnp.asarray(self.value > 0, self.value.dtype)


@record
class Observed(Statistics):
    """A value that is always observed, unchanged: a count, or a target of a likelihood."""

    value: Any  # x

    words = "counts and targets of a likelihood"

    @classmethod
    def of(cls, value: Any) -> Observed:
        return cls(value)


@record
class Series(Statistics):
    """A series of T vectors, with the cross moments of successive ones."""

    first: Any  # x `[T, d]`
    outer: Any  # x_t x_tᵀ `[T, d, d]`
    cross: Any  # x_t x_{t+1}ᵀ `[T − 1, d, d]`

    words = "a series of vectors"
    family: ClassVar[type[GaussianChain]] = GaussianChain
    given = None
    events = 2

    @classmethod
    def of(cls, value: Any) -> Series:
        outer = value[..., :, None] * value[..., None, :]
        return cls(value, outer, value[..., :-1, :, None] * value[..., 1:, None, :])

    @property
    def second(self) -> Array:
        """The squares of the entries, x²."""
        return jnp.diagonal(self.outer, axis1=-2, axis2=-1)

    def mode(self) -> Array:
        return self.belief().mean


@record
class States(Statistics):
    """A series of T categories of K, with successive pairs."""

    probabilities: Any  # one-hot vectors `[T, K]`
    pairs: Any  # `[T − 1, K, K]`

    words = "a series of categories"
    family: ClassVar[type[MarkovChain]] = MarkovChain
    given = None
    events = 2

    @classmethod
    def of(cls, value: Any) -> States:
        return cls(value, value[..., :-1, :, None] * value[..., 1:, None, :])

    @classmethod
    def under(cls, belief: Belief) -> States:
        # The probabilities of all K categories and all pairs; the family leaves out the last one.
        single, pair = belief.expectation().values
        full = jnp.concatenate([single, 1.0 - jnp.sum(single, axis=-1, keepdims=True)], axis=-1)
        last = full[..., :-1, :-1] - jnp.sum(pair, axis=-1)
        rows = jnp.concatenate([pair, last[..., None]], axis=-1)
        column = full[..., 1:, :] - jnp.sum(rows, axis=-2)
        return cls(full, jnp.concatenate([rows, column[..., None, :]], axis=-2))

    @property
    def values(self) -> Any:
        return self._minimal()[0]

    def log_partition(self) -> Array:
        values, constant = self._minimal()
        return self.family.partition(values, None) + constant

    def _minimal(self) -> tuple[tuple[Array, Array], Array]:
        """Returns λ without the last category, and the constant that this leaves out."""
        single, pair = self.probabilities, self.pairs
        before, after = pair[..., -1], pair[..., -1, :]
        single = single.at[..., :-1, :].add(before).at[..., 1:, :].add(after)
        corner = pair[..., -1:, -1:]
        rest = pair - before[..., :, None] - after[..., None, :] + corner
        constant = jnp.sum(single[..., -1]) - jnp.sum(corner)
        return ((single - single[..., -1:])[..., :-1], rest[..., :-1, :-1]), constant


@record
class ParallelSeries(Series):
    """A series of vectors whose recursions are associative scans."""

    family = ParallelGaussianChain


@record
class ParallelStates(States):
    """A series of categories whose recursions are associative scans."""

    family = ParallelMarkovChain


# Names in files of earlier versions.
KINDS |= {"Positive": PositiveNumbers, "Reciprocal": Variances, "Simplex": Probabilities}


# A factor of a graph is affine in the statistics of each of its arguments, so that one function F of statistics is the
# exact log joint at \(T(\theta)\), the expected log joint at \(\mu = E_q[T(\theta)]\), and its gradient the natural
# parameters of a message. All three have the same shape, and are instances of the same record, one class for each kind
# of variable.
#
# | class | variable | T | belief |
# |---|---|---|---|
# | `Numbers` | numbers | \((x, x^2)\) | `Gaussian` with a diagonal |
# | `Vectors` | vectors | \((x, xx^\top)\) | `MultivariateNormal` |
# | `PositiveNumbers` | rates, precisions | \((\log x, x)\) | `Gamma` |
# | `Variances` | variances | \((\log x, 1/x)\) | `InverseGamma` |
# | `Precisions` | precision matrices | \((\log\det\Lambda, \Lambda)\) | `Wishart` |
# | `Located` | a mean and a precision | \((\log\tau, \tau, \tau x, \tau x^2)\) | `NormalGamma` |
# | `LocatedVectors` | a vector, a matrix | \((\log\det\Lambda, \Lambda, \Lambda x, x^\top\Lambda x)\) | `NormalWishart`
# | | `Probabilities` | probabilities that sum to one | \(\log\pi\) | `Dirichlet` |
# | `Chance` | one probability | \((\log p, \log(1-p))\) | `Beta` |
# | `Categories` | one of K | one-hot | `Categorical` |
# | `Bits` | zeros and ones | \(x\) | `Bernoulli` |
# | `Series` | a series of vectors | \((x_t, x_t x_t^\top, x_t x_{t+1}^\top)\) | `GaussianChain` |
# | `States` | a series of categories | one-hot, and pairs | `MarkovChain` |
# | `ParallelSeries`, `ParallelStates` | the same two | the same | recursions by associative scans |
# | `Observed` | counts and targets, observed | \(x\) | none |


# The kinds of variables for which a belief of a family can be a prior.
_PRIORS = (Vectors, PositiveNumbers, Variances, Precisions, Located, LocatedVectors, Probabilities, Chance)
OF_FAMILY: dict[type, type[Statistics]] = {kind.family: kind for kind in _PRIORS}


def kind_of(belief: Belief) -> type[Statistics]:
    """Returns the statistics of a belief's variables."""
    if isinstance(belief, Gaussian) and isinstance(belief.precision, Diagonal):
        return Numbers
    kind = OF_FAMILY.get(type(belief))
    if kind is None:
        families = ", ".join(family.__name__ for family in OF_FAMILY)
        raise TypeError(
            f"a {type(belief).__name__} is not a prior of a graph's variable; give one of {families}, or a factor "
            "such as graphs.Normal(0.0, precision=1.0)"
        )
    return kind
