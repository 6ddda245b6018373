"""Operators that sum, average, compare or normalise along axes."""

from __future__ import annotations

import math
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


def _spread_mean(spread: Callable[..., Array]) -> dict[str, Callable[..., tuple[Array, Array]]]:
    """Returns the overloads of `var_mean` or `std_mean`, by the ends of their names."""

    def both(
        x: Array, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
    ) -> tuple[Array, Array]:
        return spread(x, dim, unbiased, keepdim, correction=correction), jnp.mean(x, axis=_axes(dim), keepdims=keepdim)

    return {"": both, ".default": lambda x, unbiased=True: both(x, None, unbiased)}


def _std(*args: Any, **options: Any) -> Array:
    return jnp.sqrt(_variance(*args, **options))


def _at(x: Array, index: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
    """Returns the values at one place along an axis, and the places."""
    places = jnp.expand_dims(index, dim)
    values = jnp.take_along_axis(x, places, axis=dim)
    return (values, places) if keepdim else (jnp.squeeze(values, dim), index)


def _order_statistic(x: Array, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    return _at(x, jnp.take(jnp.argsort(x, axis=dim), k - 1, axis=dim), dim, keepdim)


def _median(x: Array, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    """The lower of the two middle values, as PyTorch's; NaN where there is one, which sorts last."""
    size = x.shape[dim]
    rank = jnp.where(jnp.isnan(x).any(axis=dim, keepdims=True), size - 1, (size - 1) // 2)
    index = jnp.take_along_axis(jnp.argsort(x, axis=dim), rank, axis=dim)
    return _at(x, jnp.squeeze(index, dim), dim, keepdim)


def _cosine_similarity(a: Array, b: Array, dim: int = 1, eps: float = 1e-8) -> Array:
    a, b = jnp.broadcast_arrays(a, b)
    lengths = (jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(each), axis=dim), eps**2)) for each in (a, b))
    return jnp.sum(a * b, axis=dim) / math.prod(lengths)


def _pairwise_distance(a: Array, b: Array, p: float = 2, eps: float = 1e-6, keepdim: bool = False) -> Array:
    return _norm(a - b + eps, p, -1, keepdim)


def _weight_norm(direction: Array, length: Array, dim: int = 0) -> Array:
    axes = tuple(axis for axis in range(direction.ndim) if dim == -1 or axis != dim % direction.ndim)
    return direction * (length / jnp.sqrt(jnp.sum(jnp.square(direction), axis=axes, keepdims=dim != -1)))


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
    "std": _std,
    **{f"var_mean{overload}": each for overload, each in _spread_mean(_variance).items()},
    **{f"std_mean{overload}": each for overload, each in _spread_mean(_std).items()},
    "median": _median,
    "median.default": lambda x: _median(x.reshape(-1))[0],
    "kthvalue": _order_statistic,
    "cosine_similarity": _cosine_similarity,
    "pairwise_distance": _pairwise_distance,
    "_weight_norm": _weight_norm,
    "linalg_vector_norm": _norm,
    "norm": _norm,
    "cumsum": lambda x, dim, *, dtype=None: jnp.cumsum(x, axis=dim, dtype=dtype),
    "softmax": _soft(jax.nn.softmax),
    "_softmax": _soft(jax.nn.softmax),
    "log_softmax": _soft(jax.nn.log_softmax),
    "_log_softmax": _soft(jax.nn.log_softmax),
}
