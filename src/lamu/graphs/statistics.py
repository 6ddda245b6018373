r"""Sufficient statistics T of a variable: of a value, in expectation, or as natural parameters.

A factor of a graph is affine in the statistics of each of its arguments, so that one function F of statistics is the
exact log joint at \(T(\theta)\), the expected log joint at \(\mu = E_q[T(\theta)]\), and its gradient the natural
parameters of a message. All three have the same shape, and are held by the same record, one class for each kind of
variable.

| class | variable | T | belief |
|---|---|---|---|
| `Numbers` | numbers | \((x, x^2)\) | `Gaussian` with a diagonal |
| `Vectors` | vectors | \((x, xx^\top)\) | `MultivariateNormal` |
| `Positive` | rates, precisions | \((\log x, x)\) | `Gamma` |
| `Reciprocal` | variances | \((\log x, 1/x)\) | `InverseGamma` |
| `Precisions` | precision matrices | \((\log\det\Lambda, \Lambda)\) | `Wishart` |
| `Located` | a mean and a precision | \((\log\tau, \tau, \tau x, \tau x^2)\) | `NormalGamma` |
| `LocatedVectors` | a vector, a matrix | \((\log\det\Lambda, \Lambda, \Lambda x, x^\top\Lambda x)\) | `NormalWishart` |
| `Simplex` | probabilities that sum to one | \(\log\pi\) | `Dirichlet` |
| `Chance` | one probability | \((\log p, \log(1-p))\) | `Beta` |
| `Categories` | one of K | one-hot | `Categorical` |
| `Counts` | counts, observed | \(x\) | none |
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp

from lamu.families import (
    Beta,
    Categorical,
    Dirichlet,
    Gamma,
    Gaussian,
    InverseGamma,
    MultivariateNormal,
    NormalGamma,
    NormalWishart,
    Wishart,
)
from lamu.operators import Diagonal
from lamu.record import record
from lamu.typing import Array

__all__ = [
    "KINDS",
    "Categories",
    "Chance",
    "Counts",
    "Located",
    "LocatedVectors",
    "Numbers",
    "Positive",
    "Precisions",
    "Reciprocal",
    "Simplex",
    "Statistics",
    "Vectors",
    "kind_of",
]

S = TypeVar("S", bound="Statistics")


class Statistics(ABC):
    r"""T of one kind of variable.

    Attributes:
        words: what such a variable is called in messages.
        neutral: a value of the support, which stands in the place of a missing one.
        events: how many trailing axes of a value belong to one variable.
        constraint: the support by the path below the variable, as `lamu.constraints` names it.
    """

    words: ClassVar[str]
    neutral: ClassVar[float] = 0.0
    events: ClassVar[int] = 0
    constraint: ClassVar[dict[str, Any]] = {}

    @classmethod
    @abstractmethod
    def of(cls: type[S], value: Any) -> S:
        """Returns T of a value."""

    @classmethod
    @abstractmethod
    def zeros(cls: type[S], shape: tuple[int, ...], dtype: Any) -> S:
        """Returns the zero of the space of T, for values of a shape."""

    @abstractmethod
    def belief(self) -> Any:
        r"""Returns the belief whose natural parameters λ these are."""

    @abstractmethod
    def mode(self) -> Any:
        r"""Returns the x at which \(\langle\lambda, T(x)\rangle\) is largest, of natural parameters λ."""

    @classmethod
    def under(cls: type[S], belief: Any) -> S:
        r"""Returns \(E_q[T]\) of a belief."""
        return cls(*jax.tree.leaves(belief.expectation().values))

    def log_partition(self) -> Array:
        r"""Returns \(\log \int e^{\langle\lambda, T(x)\rangle}\, dx\) of natural parameters λ, a sum over members."""
        return self.belief().log_partition()


@record
class Numbers(Statistics):
    """Real numbers, independent of each other in a belief.

    Attributes:
        first: x.
        second: x².
    """

    first: Any
    second: Any

    words = "numbers"

    @classmethod
    def of(cls, value: Any) -> Numbers:
        """Returns (x, x²)."""
        return cls(value, value**2)

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Numbers:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def belief(self) -> Gaussian:
        """Returns the Gaussian with precision −2 λ₂."""
        return Gaussian.from_natural((self.first, Diagonal(self.second)), ())

    def log_partition(self) -> Array:
        """Returns the log of the integral of the Gaussian, whose family keeps the power of 2π in its base measure."""
        log = -(self.first**2) / (4.0 * self.second) - jnp.log(-2.0 * self.second) / 2.0
        return jnp.sum(log + math.log(2.0 * math.pi) / 2.0)

    def mode(self) -> Any:
        """Returns −λ₁ / 2λ₂."""
        return -self.first / (2.0 * self.second)


@record
class Vectors(Statistics):
    """Real vectors, whose entries a belief keeps together.

    Attributes:
        first: x `[..., d]`.
        outer: x xᵀ `[..., d, d]`.
    """

    first: Any
    outer: Any

    words = "vectors"
    events = 1

    @classmethod
    def of(cls, value: Any) -> Vectors:
        """Returns (x, x xᵀ)."""
        return cls(value, value[..., :, None] * value[..., None, :])

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Vectors:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype), jnp.zeros((*shape, shape[-1]), dtype))

    @property
    def second(self) -> Array:
        """The squares of the entries, x²."""
        return jnp.diagonal(self.outer, axis1=-2, axis2=-1)

    def belief(self) -> Any:
        """Returns the Gaussian with precision −2 λ₂."""
        outer = (self.outer + jnp.swapaxes(self.outer, -1, -2)) / 2.0
        return MultivariateNormal.from_natural((self.first, outer), ())

    def mode(self) -> Any:
        """Returns −λ₂⁻¹ λ₁ / 2."""
        return jnp.linalg.solve(-2.0 * self.outer, self.first[..., None])[..., 0]


@record
class Positive(Statistics):
    """Positive numbers.

    Attributes:
        log: log x.
        value: x.
    """

    log: Any
    value: Any

    words = "positive numbers"
    neutral = 1.0
    constraint: ClassVar[dict[str, Any]] = {"": "positive"}

    @classmethod
    def of(cls, value: Any) -> Positive:
        """Returns (log x, x)."""
        return cls(jnp.log(value), value)

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Positive:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def belief(self) -> Gamma:
        """Returns the Gamma belief."""
        return Gamma.from_natural((self.log, self.value), ())

    def mode(self) -> Any:
        """Returns −λ₁ / λ₂; next to zero, where the density has its peak there."""
        return _kept(self.log) / -self.value


@record
class Reciprocal(Statistics):
    """Positive numbers whose reciprocal counts: variances.

    Attributes:
        log: log x.
        inverse: 1 / x.
    """

    log: Any
    inverse: Any

    words = "variances"
    neutral = 1.0
    constraint: ClassVar[dict[str, Any]] = {"": "positive"}

    @classmethod
    def of(cls, value: Any) -> Reciprocal:
        """Returns (log x, 1/x)."""
        return cls(jnp.log(value), 1.0 / value)

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Reciprocal:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def belief(self) -> InverseGamma:
        """Returns the inverse Gamma belief."""
        return InverseGamma.from_natural((self.log, self.inverse), ())

    def mode(self) -> Any:
        """Returns λ₂ / λ₁."""
        return self.inverse / self.log


@record
class Precisions(Statistics):
    """Precision matrices.

    Attributes:
        logdet: log det Λ.
        matrix: Λ `[..., p, p]`.
    """

    logdet: Any
    matrix: Any

    words = "precision matrices"
    events = 2
    constraint: ClassVar[dict[str, Any]] = {"": "positive_definite"}

    @classmethod
    def of(cls, value: Any) -> Precisions:
        """Returns (log det Λ, Λ)."""
        return cls(jnp.linalg.slogdet(value)[1], value)

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Precisions:
        """Returns zeros."""
        return cls(jnp.zeros(shape[:-2], dtype), jnp.zeros(shape, dtype))

    def belief(self) -> Wishart:
        """Returns the Wishart belief."""
        return Wishart.from_natural((self.logdet, _symmetric(self.matrix)), ())

    def mode(self) -> Any:
        """Returns −λ₁ λ₂⁻¹."""
        return _kept(self.logdet)[..., None, None] * jnp.linalg.inv(-_symmetric(self.matrix))


@record
class Located(Statistics):
    """A number and its precision, as one variable.

    Attributes:
        log: log τ.
        precision: τ.
        first: τ x.
        second: τ x².
    """

    log: Any
    precision: Any
    first: Any
    second: Any

    words = "a mean with its precision"
    constraint: ClassVar[dict[str, Any]] = {"precision": "positive"}

    @classmethod
    def of(cls, value: Any) -> Located:
        """Returns (log τ, τ, τ x, τ x²)."""
        x, precision = value["mean"], value["precision"]
        return cls(jnp.log(precision), precision, precision * x, precision * x**2)

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Located:
        """Returns zeros."""
        return cls(*(jnp.zeros(shape, dtype) for _ in range(4)))

    def belief(self) -> NormalGamma:
        """Returns the Normal-Gamma belief."""
        return NormalGamma.from_natural((self.log, self.precision, self.first, self.second), ())

    def mode(self) -> Any:
        """Returns the mean and the precision at the peak."""
        left = self.precision - self.first**2 / (4.0 * self.second)
        return {"mean": -self.first / (2.0 * self.second), "precision": _kept(self.log) / -left}


@record
class LocatedVectors(Statistics):
    """A vector and its precision matrix, as one variable.

    Attributes:
        logdet: log det Λ.
        precision: Λ.
        first: Λ x.
        second: xᵀ Λ x.
    """

    logdet: Any
    precision: Any
    first: Any
    second: Any

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
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> LocatedVectors:
        """Returns zeros."""
        one = jnp.zeros(shape[:-1], dtype)
        return cls(one, jnp.zeros((*shape, shape[-1]), dtype), jnp.zeros(shape, dtype), one)

    def belief(self) -> NormalWishart:
        """Returns the Normal-Wishart belief."""
        return NormalWishart.from_natural((self.logdet, _symmetric(self.precision), self.first, self.second), ())

    def mode(self) -> Any:
        """Returns the mean and the precision matrix at the peak."""
        mean = -self.first / (2.0 * self.second)[..., None]
        left = _symmetric(self.precision) + self.first[..., :, None] * mean[..., None, :] / 2.0
        return {"mean": mean, "precision": _kept(self.logdet)[..., None, None] * jnp.linalg.inv(-left)}


@record
class Simplex(Statistics):
    """Probabilities that sum to one.

    Attributes:
        log: log π `[..., K]`.
    """

    log: Any

    words = "probabilities that sum to one"
    events = 1
    constraint: ClassVar[dict[str, Any]] = {"": "simplex"}

    @classmethod
    def of(cls, value: Any) -> Simplex:
        """Returns log π."""
        return cls(jnp.log(value))

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Simplex:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype))

    def belief(self) -> Dirichlet:
        """Returns the Dirichlet belief."""
        return Dirichlet.from_natural(self.log, ())

    def mode(self) -> Any:
        """Returns λ over its sum; next to zero where it is negative and the peak is at the edge."""
        counts = _kept(self.log)
        return counts / jnp.sum(counts, axis=-1, keepdims=True)


@record
class Chance(Statistics):
    """Probabilities, each of one event.

    Attributes:
        log: log p.
        log_complement: log(1 − p).
    """

    log: Any
    log_complement: Any

    words = "probabilities"
    neutral = 0.5
    constraint: ClassVar[dict[str, Any]] = {"": "unit_interval"}

    @classmethod
    def of(cls, value: Any) -> Chance:
        """Returns (log p, log(1 − p))."""
        return cls(jnp.log(value), jnp.log1p(-value))

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Chance:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def belief(self) -> Beta:
        """Returns the Beta belief."""
        return Beta.from_natural((self.log, self.log_complement), ())

    def mode(self) -> Any:
        """Returns λ₁ / (λ₁ + λ₂), inside the interval."""
        events, others = _kept(self.log), _kept(self.log_complement)
        return events / (events + others)


@record
class Categories(Statistics):
    """One of K categories: of a value the one-hot vector, of a belief the probabilities of all K.

    Attributes:
        probabilities: `[..., K]`.
    """

    probabilities: Any

    words = "categories"
    events = 1

    @classmethod
    def of(cls, value: Any) -> Categories:
        """Returns one-hot vectors as they are."""
        return cls(value)

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Categories:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype))

    @classmethod
    def under(cls, belief: Any) -> Categories:
        """Returns the probabilities."""
        return cls(belief.mean)

    def belief(self) -> Categorical:
        """Returns the belief with these logits."""
        return Categorical(self.probabilities)

    def log_partition(self) -> Array:
        """Returns the log of the sum of exponentials over all K."""
        return jnp.sum(jax.nn.logsumexp(self.probabilities, axis=-1))

    def mode(self) -> Any:
        """Returns the one-hot vector of the most probable category."""
        K = self.probabilities.shape[-1]
        return jax.nn.one_hot(jnp.argmax(self.probabilities, axis=-1), K, dtype=self.probabilities.dtype)


@record
class Counts(Statistics):
    """Whole numbers that are observed.

    Attributes:
        value: x.
    """

    value: Any

    words = "counts"

    @classmethod
    def of(cls, value: Any) -> Counts:
        """Returns x."""
        return cls(value)

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Counts:
        """Raises a TypeError: a count that is not observed has no closed form here."""
        raise TypeError("a count that is not in the data has no closed form; observe it, or leave it out")

    def belief(self) -> Any:
        """Raises a TypeError: a count that is not observed has no closed form here."""
        raise TypeError("a count that is not in the data has no closed form; observe it, or leave it out")

    def mode(self) -> Any:
        """Raises a TypeError: a count that is not observed has no closed form here."""
        raise TypeError("a count that is not in the data has no closed form; observe it, or leave it out")


KINDS: dict[str, type[Statistics]] = {
    kind.__name__: kind
    for kind in (
        Numbers,
        Vectors,
        Positive,
        Reciprocal,
        Precisions,
        Located,
        LocatedVectors,
        Simplex,
        Chance,
        Categories,
        Counts,
    )
}
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


def kind_of(belief: Any) -> type[Statistics]:
    """Returns the statistics of a belief's variables.

    Args:
        belief: a belief of an exponential family.

    Raises:
        TypeError: for a family that no factor takes.

    Examples:
        >>> from lamu.families import Gamma
        >>> from lamu.graphs.statistics import kind_of
        >>> kind_of(Gamma(1.0, 1.0)).__name__
        'Positive'
    """
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


def _symmetric(matrix: Array) -> Array:
    """What a gradient wrote in one half of a symmetric matrix belongs to both."""
    return (matrix + jnp.swapaxes(matrix, -1, -2)) / 2.0


def _kept(natural: Array) -> Array:
    """Returns the counts of a peak, at least so large that its logarithm is finite: a peak at the edge stays inside."""
    return jnp.maximum(natural, jnp.asarray(jnp.finfo(natural.dtype).tiny ** 0.25, natural.dtype))
