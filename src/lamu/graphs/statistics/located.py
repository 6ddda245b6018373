"""Statistics of a mean and its precision as one variable."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from lamu.families import NormalGamma, NormalWishart
from lamu.graphs.statistics.interface import Statistics, kept, symmetric
from lamu.record import record

__all__ = ["Located", "LocatedVectors"]


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
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Located:
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
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> LocatedVectors:
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
