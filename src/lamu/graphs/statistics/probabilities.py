"""Statistics of probabilities, and of what has them: categories, zeros and ones, and counts."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu.families import Bernoulli, Beta, Categorical, Dirichlet
from lamu.graphs.statistics.interface import Statistics, kept
from lamu.record import record
from lamu.typing import Array

__all__ = ["Bits", "Categories", "Chance", "Counts", "Simplex"]


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
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Simplex:
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
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Chance:
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
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Categories:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype))

    @classmethod
    def under(cls, belief: Any) -> Categories:
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
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Bits:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype))

    def belief(self) -> Bernoulli:
        return Bernoulli(self.value)

    def mode(self) -> Any:
        # Returns one where the logit is positive.
        return jnp.asarray(self.value > 0, self.value.dtype)


@record
class Counts(Statistics):
    """Whole numbers that are observed."""

    value: Any  # x

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
        # Raises a TypeError: a count that is not observed has no closed form here.
        raise TypeError("a count that is not in the data has no closed form; observe it, or leave it out")

    def mode(self) -> Any:
        # Raises a TypeError: a count that is not observed has no closed form here.
        raise TypeError("a count that is not in the data has no closed form; observe it, or leave it out")
