"""Statistics of positive numbers and precision matrices."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from lamu.families import Gamma, InverseGamma, Wishart
from lamu.graphs.statistics.interface import Statistics, kept, symmetric
from lamu.record import record

__all__ = ["Positive", "Precisions", "Reciprocal"]


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
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Positive:
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
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Reciprocal:
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
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Precisions:
        """Returns zeros."""
        return cls(jnp.zeros(shape[:-2], dtype), jnp.zeros(shape, dtype))

    def belief(self) -> Wishart:
        return Wishart.from_natural((self.logdet, symmetric(self.matrix)), ())

    def mode(self) -> Any:
        # Returns −λ₁ λ₂⁻¹.
        return kept(self.logdet)[..., None, None] * jnp.linalg.inv(-symmetric(self.matrix))
