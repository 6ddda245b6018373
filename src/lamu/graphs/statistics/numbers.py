"""Statistics of real numbers and vectors."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from lamu.families import Gaussian, MultivariateNormal
from lamu.graphs.statistics.interface import Statistics
from lamu.operators import Diagonal
from lamu.record import record
from lamu.typing import Array

__all__ = ["Numbers", "Vectors"]


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
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Numbers:
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
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Vectors:
        """Returns zeros."""
        return cls(jnp.zeros(shape, dtype), jnp.zeros((*shape, shape[-1]), dtype))

    @property
    def second(self) -> Array:
        """The squares of the entries, x²."""
        return jnp.diagonal(self.outer, axis1=-2, axis2=-1)

    def belief(self) -> Any:
        # Returns the Gaussian with precision −2 λ₂.
        outer = (self.outer + jnp.swapaxes(self.outer, -1, -2)) / 2.0
        return MultivariateNormal.from_natural((self.first, outer), ())

    def mode(self) -> Any:
        # Returns −λ₂⁻¹ λ₁ / 2.
        return self.belief().mean
