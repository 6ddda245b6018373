"""Products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu.typing import Array

__all__ = ["PRODUCTS"]


def _linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    product = x @ weight.T
    return product if bias is None else product + bias


def _added(bias: Array, left: Array, right: Array, *, beta: Any = 1, alpha: Any = 1) -> Array:
    return beta * bias + alpha * (left @ right)


def _embedding(weight: Array, codes: Array, padding: int = -1, *_: Any) -> Array:
    if padding >= 0:  # the row of padding does not learn
        weight = weight.at[padding].set(jax.lax.stop_gradient(weight[padding]))
    return weight[codes]


PRODUCTS: dict[str, Callable[..., Any]] = {
    "linear": _linear,
    "matmul": jnp.matmul,
    "mm": jnp.matmul,
    "bmm": jnp.matmul,
    "mv": jnp.matmul,
    "dot": jnp.matmul,
    "outer": jnp.outer,
    "addmm": _added,
    "baddbmm": _added,
    "einsum": lambda equation, operands, path=None: jnp.einsum(equation, *operands),
    "bilinear": lambda a, b, weight, bias=None: (
        jnp.einsum("...i,oij,...j->...o", a, weight, b) + (0 if bias is None else bias)
    ),
    "embedding": _embedding,
}
