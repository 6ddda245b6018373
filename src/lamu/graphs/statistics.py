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
from lamu.operators import Diagonal
from lamu.record import record
from lamu.typing import Array, Belief, DTypeLike

__all__ = [
    "KINDS",
    "Bits",
    "Categories",
    "Chance",
    "Located",
    "LocatedVectors",
    "Numbers",
    "Observed",
    "ParallelSeries",
    "ParallelStates",
    "Positive",
    "Precisions",
    "Reciprocal",
    "Series",
    "Simplex",
    "States",
    "Statistics",
    "Vectors",
    "kind_of",
]


S = TypeVar("S", bound="Statistics")
KINDS: dict[str, type[Statistics]] = {}


class Statistics(ABC):
    """T of one kind of variable."""

    words: ClassVar[str]  # what such a variable is called in messages
    neutral: ClassVar[float] = 0.0  # a value of the support, which stands in the place of a missing one
    events: ClassVar[int] = 0  # how many trailing axes of a value belong to one variable
    # The support by the path below the variable, as `lamu.constraints` names it.
    constraint: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        KINDS[cls.__name__] = cls

    @classmethod
    @abstractmethod
    def of(cls: type[S], value: Any) -> S:
        """Returns T of a value."""

    @classmethod
    @abstractmethod
    def zeros(cls: type[S], shape: tuple[int, ...], dtype: DTypeLike) -> S:
        """Returns the zero of the space of T, for values of a shape."""

    @abstractmethod
    def belief(self) -> Belief:
        r"""Returns the belief whose natural parameters λ these are."""

    @abstractmethod
    def mode(self) -> Any:
        r"""Returns the x at which \(\langle\lambda, T(x)\rangle\) is largest, of natural parameters λ."""

    @classmethod
    def under(cls: type[S], belief: Belief) -> S:
        r"""Returns \(E_q[T]\) of a belief."""
        return cls(*jax.tree.leaves(belief.expectation().values))

    def log_partition(self) -> Array:
        r"""Returns \(\log \int e^{\langle\lambda, T(x)\rangle}\, dx\) of natural parameters λ, a sum over members."""
        return self.belief().log_partition()


def symmetric(matrix: Array) -> Array:
    """Returns the symmetric part: what a gradient wrote in one half of a symmetric matrix belongs to both."""
    return (matrix + jnp.swapaxes(matrix, -1, -2)) / 2.0


def kept(natural: Array) -> Array:
    """Returns the counts of a peak, at least so large that its logarithm is finite: a peak at the edge stays inside."""
    return jnp.maximum(natural, jnp.asarray(jnp.finfo(natural.dtype).tiny ** 0.25, natural.dtype))


@record
class Located(Statistics):
    """A number and its precision, as one variable."""

    log: Any
    precision: Any
    first: Any  # τ x
    second: Any  # τ x²

    words = "a mean with its precision"
    constraint: ClassVar[dict[str, Any]] = {"precision": "positive"}

    @classmethod
    def of(cls, value: Any) -> Located:
        """Returns (log τ, τ, τ x, τ x²)."""
        x, precision = value["mean"], value["precision"]
        return cls(jnp.log(precision), precision, precision * x, precision * x**2)

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Located:
        """Returns zeros."""
        return cls(*(jnp.zeros(shape, dtype) for _ in range(4)))

    def belief(self) -> NormalGamma:
        return NormalGamma.from_natural((self.log, self.precision, self.first, self.second), ())

    def mode(self) -> Any:
        # Returns the mean and the precision at the peak.
        left = self.precision - self.first**2 / (4.0 * self.second)
        return {"mean": -self.first / (2.0 * self.second), "precision": kept(self.log) / -left}


@record
class LocatedVectors(Statistics):
    """A vector and its precision matrix, as one variable."""

    logdet: Any  # log det Λ
    precision: Any
    first: Any  # Λ x
    second: Any  # xᵀ Λ x

    words = "a mean vector with its precision matrix"
    events = 1
    constraint: ClassVar[dict[str, Any]] = {"precision": "positive_definite"}

    @classmethod
    def of(cls, value: Any) -> LocatedVectors:
        """Returns (log det Λ, Λ, Λ x, xᵀ Λ x)."""
        x, precision = value["mean"], value["precision"]
        first = (precision @ x[..., None])[..., 0]
        return cls(jnp.linalg.slogdet(precision)[1], precision, first, jnp.sum(x * first, axis=-1))

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> LocatedVectors:
        """Returns zeros."""
        one = jnp.zeros(shape[:-1], dtype)
        return cls(one, jnp.zeros((*shape, shape[-1]), dtype), jnp.zeros(shape, dtype), one)

    def belief(self) -> NormalWishart:
        return NormalWishart.from_natural((self.logdet, symmetric(self.precision), self.first, self.second), ())

    def mode(self) -> Any:
        # Returns the mean and the precision matrix at the peak.
        mean = -self.first / (2.0 * self.second)[..., None]
        left = symmetric(self.precision) + self.first[..., :, None] * mean[..., None, :] / 2.0
        return {"mean": mean, "precision": kept(self.logdet)[..., None, None] * jnp.linalg.inv(-left)}


@record
class Numbers(Statistics):
    """Real numbers, independent of each other in a belief."""

    first: Any  # x
    second: Any  # x²

    words = "numbers"

    @classmethod
    def of(cls, value: Any) -> Numbers:
        """Returns (x, x²)."""
        return cls(value, value**2)

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Numbers:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def belief(self) -> Gaussian:
        # Returns the Gaussian with precision −2 λ₂.
        return Gaussian.from_natural((self.first, Diagonal(self.second)), ())

    def log_partition(self) -> Array:
        # Returns the log of the integral of the Gaussian, whose family keeps the power of 2π in its base measure.
        log = -(self.first**2) / (4.0 * self.second) - jnp.log(-2.0 * self.second) / 2.0
        return jnp.sum(log + math.log(2.0 * math.pi) / 2.0)

    def mode(self) -> Any:
        # Returns −λ₁ / 2λ₂.
        return -self.first / (2.0 * self.second)


@record
class Vectors(Statistics):
    """Real vectors, whose entries a belief keeps together."""

    first: Any  # x `[..., d]`
    outer: Any  # x xᵀ `[..., d, d]`

    words = "vectors"
    events = 1

    @classmethod
    def of(cls, value: Any) -> Vectors:
        """Returns (x, x xᵀ)."""
        return cls(value, value[..., :, None] * value[..., None, :])

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Vectors:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype), jnp.zeros((*shape, shape[-1]), dtype))

    @property
    def second(self) -> Array:
        """The squares of the entries, x²."""
        return jnp.diagonal(self.outer, axis1=-2, axis2=-1)

    def belief(self) -> Belief:
        # Returns the Gaussian with precision −2 λ₂.
        outer = (self.outer + jnp.swapaxes(self.outer, -1, -2)) / 2.0
        return MultivariateNormal.from_natural((self.first, outer), ())

    def mode(self) -> Any:
        # Returns −λ₂⁻¹ λ₁ / 2.
        return self.belief().mean


@record
class Positive(Statistics):
    """Positive numbers."""

    log: Any  # log x
    value: Any  # x

    words = "positive numbers"
    neutral = 1.0
    constraint: ClassVar[dict[str, Any]] = {"": "positive"}

    @classmethod
    def of(cls, value: Any) -> Positive:
        """Returns (log x, x)."""
        return cls(jnp.log(value), value)

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Positive:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def belief(self) -> Gamma:
        return Gamma.from_natural((self.log, self.value), ())

    def mode(self) -> Any:
        # Returns −λ₁ / λ₂; next to zero, where the density has its peak there.
        return kept(self.log) / -self.value


@record
class Reciprocal(Statistics):
    """Positive numbers whose reciprocal counts: variances."""

    log: Any  # log x
    inverse: Any  # 1 / x

    words = "variances"
    neutral = 1.0
    constraint: ClassVar[dict[str, Any]] = {"": "positive"}

    @classmethod
    def of(cls, value: Any) -> Reciprocal:
        """Returns (log x, 1/x)."""
        return cls(jnp.log(value), 1.0 / value)

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Reciprocal:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def belief(self) -> InverseGamma:
        # Returns the inverse Gamma belief.
        return InverseGamma.from_natural((self.log, self.inverse), ())

    def mode(self) -> Any:
        # Returns λ₂ / λ₁.
        return self.inverse / self.log


@record
class Precisions(Statistics):
    """Precision matrices."""

    logdet: Any  # log det Λ
    matrix: Any  # Λ `[..., p, p]`

    words = "precision matrices"
    events = 2
    constraint: ClassVar[dict[str, Any]] = {"": "positive_definite"}

    @classmethod
    def of(cls, value: Any) -> Precisions:
        """Returns (log det Λ, Λ)."""
        return cls(jnp.linalg.slogdet(value)[1], value)

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Precisions:
        """Returns zeros."""
        return cls(jnp.zeros(shape[:-2], dtype), jnp.zeros(shape, dtype))

    def belief(self) -> Wishart:
        return Wishart.from_natural((self.logdet, symmetric(self.matrix)), ())

    def mode(self) -> Any:
        # Returns −λ₁ λ₂⁻¹.
        return kept(self.logdet)[..., None, None] * jnp.linalg.inv(-symmetric(self.matrix))


@record
class Simplex(Statistics):
    """Probabilities that sum to one."""

    log: Any  # log π `[..., K]`

    words = "probabilities that sum to one"
    events = 1
    constraint: ClassVar[dict[str, Any]] = {"": "simplex"}

    @classmethod
    def of(cls, value: Any) -> Simplex:
        """Returns log π."""
        return cls(jnp.log(value))

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Simplex:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype))

    def belief(self) -> Dirichlet:
        return Dirichlet.from_natural(self.log, ())

    def mode(self) -> Any:
        # Returns λ over its sum; next to zero where it is negative and the peak is at the edge.
        counts = kept(self.log)
        return counts / jnp.sum(counts, axis=-1, keepdims=True)


@record
class Chance(Statistics):
    """Probabilities, each of one event."""

    log: Any  # log p
    log_complement: Any  # log(1 − p)

    words = "probabilities"
    neutral = 0.5
    constraint: ClassVar[dict[str, Any]] = {"": "unit_interval"}

    @classmethod
    def of(cls, value: Any) -> Chance:
        """Returns (log p, log(1 − p))."""
        return cls(jnp.log(value), jnp.log1p(-value))

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Chance:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def belief(self) -> Beta:
        return Beta.from_natural((self.log, self.log_complement), ())

    def mode(self) -> Any:
        # Returns λ₁ / (λ₁ + λ₂), inside the interval.
        events, others = kept(self.log), kept(self.log_complement)
        return events / (events + others)


@record
class Categories(Statistics):
    """One of K categories: of a value the one-hot vector, of a belief the probabilities of all K."""

    probabilities: Any  # `[..., K]`

    words = "categories"
    events = 1

    @classmethod
    def of(cls, value: Any) -> Categories:
        """Returns one-hot vectors as they are."""
        return cls(value)

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Categories:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype))

    @classmethod
    def under(cls, belief: Belief) -> Categories:
        """Returns the probabilities."""
        return cls(belief.mean)

    def belief(self) -> Categorical:
        return Categorical(self.probabilities)

    def log_partition(self) -> Array:
        # Returns the log of the sum of exponentials over all K.
        return jnp.sum(jax.nn.logsumexp(self.probabilities, axis=-1))

    def mode(self) -> Any:
        # Returns the one-hot vector of the most probable category.
        K = self.probabilities.shape[-1]
        return jax.nn.one_hot(jnp.argmax(self.probabilities, axis=-1), K, dtype=self.probabilities.dtype)


@record
class Bits(Statistics):
    """Zeros and ones: of a value x, of a belief the probabilities, as natural parameters the logits."""

    value: Any  # x

    words = "zeros and ones"

    @classmethod
    def of(cls, value: Any) -> Bits:
        """Returns x."""
        return cls(value)

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Bits:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype))

    def belief(self) -> Bernoulli:
        return Bernoulli(self.value)

    def mode(self) -> Any:
        # Returns one where the logit is positive.
        return jnp.asarray(self.value > 0, self.value.dtype)


@record
class Observed(Statistics):
    """A value that is always in the data, as it is: a count, or a target of a likelihood."""

    value: Any  # x

    words = "counts or targets that are observed"

    @classmethod
    def of(cls, value: Any) -> Observed:
        """Returns x."""
        return cls(value)

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Observed:
        """Raises a TypeError: what is always observed has no belief."""
        raise _always_observed()

    def belief(self) -> Belief:
        # Raises a TypeError: what is always observed has no belief.
        raise _always_observed()

    def mode(self) -> Any:
        # Raises a TypeError: what is always observed has no belief.
        raise _always_observed()


def _always_observed() -> TypeError:
    return TypeError(
        "a count, or a target of a likelihood, that is not in the data has no closed form; observe it, or leave it out"
    )


@record
class Series(Statistics):
    """A series of T vectors, each with the one before."""

    first: Any  # x `[T, d]`
    outer: Any  # x_t x_tᵀ `[T, d, d]`
    cross: Any  # x_t x_{t+1}ᵀ `[T − 1, d, d]`

    words = "a series of vectors"
    events = 2
    family: ClassVar[type[GaussianChain]] = GaussianChain

    @classmethod
    def of(cls, value: Any) -> Series:
        """Returns (x, x xᵀ, x_t x_{t+1}ᵀ)."""
        outer = value[..., :, None] * value[..., None, :]
        return cls(value, outer, value[..., :-1, :, None] * value[..., 1:, None, :])

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> Series:
        """Returns zeros."""
        *batch, T, d = shape
        matrices = lambda count: jnp.zeros((*batch, count, d, d), dtype)
        return cls(jnp.zeros(shape, dtype), matrices(T), matrices(T - 1))

    @property
    def second(self) -> Array:
        """The squares of the entries, x²."""
        return jnp.diagonal(self.outer, axis1=-2, axis2=-1)

    def belief(self) -> GaussianChain:
        # Returns the chain, whose expectations are those of a smoother.
        return self.family.from_natural((self.first, self.outer, self.cross), None)

    def log_partition(self) -> Array:
        # Returns the log-partition by the recursion of the filter.
        return self.family.partition((self.first, self.outer, self.cross), None)

    def mode(self) -> Array:
        return self.belief().mean


@record
class States(Statistics):
    """A series of T categories of K, each with the one before."""

    probabilities: Any  # one-hot vectors `[T, K]`
    pairs: Any  # `[T − 1, K, K]`

    words = "a series of categories"
    events = 2
    family: ClassVar[type[MarkovChain]] = MarkovChain

    @classmethod
    def of(cls, value: Any) -> States:
        """Returns one-hot vectors and their pairs."""
        return cls(value, value[..., :-1, :, None] * value[..., 1:, None, :])

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: DTypeLike) -> States:
        """Returns zeros."""
        *batch, T, K = shape
        return cls(jnp.zeros(shape, dtype), jnp.zeros((*batch, T - 1, K, K), dtype))

    @classmethod
    def under(cls, belief: Belief) -> States:
        """Returns the probabilities of all K categories and all pairs, of which the family leaves the last one out."""
        single, pair = belief.expectation().values
        whole = jnp.concatenate([single, 1.0 - jnp.sum(single, axis=-1, keepdims=True)], axis=-1)
        last = whole[..., :-1, :-1] - jnp.sum(pair, axis=-1)
        rows = jnp.concatenate([pair, last[..., None]], axis=-1)
        column = whole[..., 1:, :] - jnp.sum(rows, axis=-2)
        return cls(whole, jnp.concatenate([rows, column[..., None, :]], axis=-2))

    def belief(self) -> MarkovChain:
        return self.family.from_natural(self._minimal()[0], None)

    def log_partition(self) -> Array:
        # Returns the log of the sum over all series, by the forward recursion.
        values, constant = self._minimal()
        return self.family.partition(values, None) + constant

    def mode(self) -> Any:
        # Raises a TypeError: no factor makes a point of a series of categories.
        raise TypeError("a series of categories is summed out, and is no point")

    def _minimal(self) -> tuple[tuple[Array, Array], Array]:
        """Returns λ without the last category, and what that leaves out."""
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


# A factor of a graph is affine in the statistics of each of its arguments, so that one function F of statistics is the
# exact log joint at \(T(\theta)\), the expected log joint at \(\mu = E_q[T(\theta)]\), and its gradient the natural
# parameters of a message. All three have the same shape, and are held by the same record, one class for each kind of
# variable.
#
# | class | variable | T | belief |
# |---|---|---|---|
# | `Numbers` | numbers | \((x, x^2)\) | `Gaussian` with a diagonal |
# | `Vectors` | vectors | \((x, xx^\top)\) | `MultivariateNormal` |
# | `Positive` | rates, precisions | \((\log x, x)\) | `Gamma` |
# | `Reciprocal` | variances | \((\log x, 1/x)\) | `InverseGamma` |
# | `Precisions` | precision matrices | \((\log\det\Lambda, \Lambda)\) | `Wishart` |
# | `Located` | a mean and a precision | \((\log\tau, \tau, \tau x, \tau x^2)\) | `NormalGamma` |
# | `LocatedVectors` | a vector, a matrix | \((\log\det\Lambda, \Lambda, \Lambda x, x^\top\Lambda x)\) | `NormalWishart`
# |
# | `Simplex` | probabilities that sum to one | \(\log\pi\) | `Dirichlet` |
# | `Chance` | one probability | \((\log p, \log(1-p))\) | `Beta` |
# | `Categories` | one of K | one-hot | `Categorical` |
# | `Bits` | zeros and ones | \(x\) | `Bernoulli` |
# | `Series` | a series of vectors | \((x_t, x_t x_t^\top, x_t x_{t+1}^\top)\) | `GaussianChain` |
# | `States` | a series of categories | one-hot, and pairs | `MarkovChain` |
# | `ParallelSeries`, `ParallelStates` | the same two | the same | recursions by associative scans |
# | `Observed` | counts and targets, observed | \(x\) | none |


_OF_FAMILY: dict[type, type[Statistics]] = {
    MultivariateNormal: Vectors,
    Gamma: Positive,
    InverseGamma: Reciprocal,
    Wishart: Precisions,
    NormalGamma: Located,
    NormalWishart: LocatedVectors,
    Dirichlet: Simplex,
    Beta: Chance,
}


def kind_of(belief: Belief) -> type[Statistics]:
    """Returns the statistics of a belief's variables."""
    if isinstance(belief, Gaussian) and isinstance(belief.precision, Diagonal):
        return Numbers
    kind = _OF_FAMILY.get(type(belief))
    if kind is None:
        known = ", ".join(family.__name__ for family in _OF_FAMILY)
        raise TypeError(
            f"a {type(belief).__name__} is no prior of a graph's variable; give one of {known}, or a factor such as "
            "graphs.Normal(0.0, precision=1.0)"
        )
    return kind
