"""Operators that sum, average, compare or normalise along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu.typing import Array

__all__ = ["REDUCTIONS"]


def _axes(dim: Any) -> Any:
    """Returns PyTorch's dims as JAX's axes: none or an empty list are all of them."""
    if dim is None or isinstance(dim, int):
        return dim
    return tuple(dim) or None


def _reduction(function: Callable[..., Array]) -> Callable[..., Array]:
    def reduced(x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
        return function(x if dtype is None else x.astype(dtype), axis=_axes(dim), keepdims=keepdim)

    return reduced


def _with_place(best: Callable[..., Array], place: Callable[..., Array]) -> Callable[..., tuple[Array, Array]]:
    def reduced(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
        return best(x, axis=dim, keepdims=keepdim), place(x, axis=dim, keepdims=keepdim)

    return reduced


def _place(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, dim=None, keepdim=False: function(x, axis=dim, keepdims=keepdim)


def _variance(
    x: Array, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
) -> Any:
    lost = int(unbiased) if correction is None else correction
    return jnp.var(x, axis=_axes(dim), ddof=lost, keepdims=keepdim)


def _norm(x: Array, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
    axes, ord = _axes(dim), 2 if ord is None else ord
    if ord == 2:
        return jnp.sqrt(jnp.sum(jnp.square(x), axis=axes, keepdims=keepdim))
    if ord == float("inf"):
        return jnp.max(jnp.abs(x), axis=axes, keepdims=keepdim)
    return jnp.sum(jnp.abs(x) ** ord, axis=axes, keepdims=keepdim) ** (1 / ord)


def _soft(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, dim, dtype=None: function(x if dtype is None or dtype is False else x.astype(dtype), axis=dim)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": _reduction(jnp.sum),
    "mean": _reduction(jnp.mean),
    "prod": _reduction(jnp.prod),
    "amax": _reduction(jnp.max),
    "amin": _reduction(jnp.min),
    "any": _reduction(jnp.any),
    "all": _reduction(jnp.all),
    "logsumexp": _reduction(jax.scipy.special.logsumexp),
    "max": jnp.max,
    "max.other": jnp.maximum,
    "max.dim": _with_place(jnp.max, jnp.argmax),
    "min": jnp.min,
    "min.other": jnp.minimum,
    "min.dim": _with_place(jnp.min, jnp.argmin),
    "argmax": _place(jnp.argmax),
    "argmin": _place(jnp.argmin),
    "var": _variance,
    "var.default": lambda x, unbiased=True: _variance(x, None, unbiased),
    "std.default": lambda x, unbiased=True: jnp.sqrt(_variance(x, None, unbiased)),
    "std": lambda *args, **options: jnp.sqrt(_variance(*args, **options)),
    "linalg_vector_norm": _norm,
    "norm": _norm,
    "cumsum": lambda x, dim, *, dtype=None: jnp.cumsum(x, axis=dim, dtype=dtype),
    "softmax": _soft(jax.nn.softmax),
    "_softmax": _soft(jax.nn.softmax),
    "log_softmax": _soft(jax.nn.log_softmax),
    "_log_softmax": _soft(jax.nn.log_softmax),
}
