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
    rows = weight[codes]
    if padding < 0:
        return rows
    return jnp.where((codes == padding)[..., None], jax.lax.stop_gradient(rows), rows)  # it does not learn


def _embedding_bag(
    weight: Array,
    codes: Array,
    offsets: Array,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding: int | None = None,
) -> tuple[Array, Any, Any, Any]:
    """The sum, mean or largest value of the rows in each bag, whose codes begin at its offset; 0 in an empty one."""
    bags = offsets.shape[0] - include_last_offset
    bag = jnp.searchsorted(offsets[:bags], jnp.arange(codes.shape[0]), side="right") - 1
    counted = jnp.ones(codes.shape, bool) if padding is None or padding < 0 else codes != padding
    size = jax.ops.segment_sum(counted.astype(weight.dtype), bag, bags)[:, None]
    rows = weight[codes]
    if mode == 2:
        rows = jnp.where(counted[:, None], rows, -jnp.inf)
        return jnp.where(size > 0, jax.ops.segment_max(rows, bag, bags), 0), None, None, None
    share = counted.astype(weight.dtype) if per_sample_weights is None else counted * per_sample_weights
    total = jax.ops.segment_sum(rows * share[:, None], bag, bags)
    return total if mode == 0 else total / jnp.maximum(size, 1), None, None, None


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
    "embedding_bag": _embedding_bag,
}
