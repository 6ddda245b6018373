r"""Transforms of an unconstrained parameter ρ, which gradient descent moves, to a positive scale s(ρ)."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu.record import record

__all__ = ["ExpTransform", "PositiveTransform", "SoftplusTransform"]


@runtime_checkable
class PositiveTransform(Protocol):
    """An increasing function from all numbers onto the positive ones."""

    def __call__(self, raw: Any) -> Any:
        """Returns s."""
        ...

    def inverse(self, scale: Any) -> Any:
        """Returns ρ."""
        ...


@record
class SoftplusTransform:
    r"""\(s = \log(1 + e^\rho)\), exponential for small scales and linear for large ones."""

    def __call__(self, raw: Any) -> Any:
        """Returns log(1 + exp ρ)."""
        return jax.nn.softplus(raw)

    def inverse(self, scale: Any) -> Any:
        """Returns log(exp s − 1), without overflow."""
        return scale + jnp.log(-jnp.expm1(-scale))


@record
class ExpTransform:
    r"""\(s = e^\rho\), so that a step of ρ is a factor of s."""

    def __call__(self, raw: Any) -> Any:
        """Returns exp ρ."""
        return jnp.exp(raw)

    def inverse(self, scale: Any) -> Any:
        """Returns log s."""
        return jnp.log(scale)
