"""Operators that move numbers and do not change them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lamu.typing import Array

__all__ = ["SHAPES"]


def _flatten(x: Array, start: int = 0, end: int = -1) -> Array:
    if x.ndim == 0:
        return x.reshape(1)
    start, end = start % x.ndim, end % x.ndim
    return x.reshape(*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :])


def _unflatten(x: Array, dim: int, sizes: Sequence[int]) -> Array:
    dim = dim % x.ndim
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


def _squeeze(x: Array, dim: Any = None) -> Array:
    dims = range(x.ndim) if dim is None else ([dim] if isinstance(dim, int) else dim)
    return jnp.squeeze(x, tuple(each % x.ndim for each in dims if x.shape[each] == 1))


def _expand(x: Array, size: Sequence[int], *, implicit: bool = False) -> Array:
    new = len(size) - x.ndim
    return jnp.broadcast_to(x, [x.shape[i - new] if each == -1 else each for i, each in enumerate(size)])


def _repeat(x: Array, repeats: Sequence[int]) -> Array:
    return jnp.tile(x.reshape(*[1] * (len(repeats) - x.ndim), *x.shape), repeats)


def _along(x: Array, dim: int, index: Any) -> Array:
    return x[(slice(None),) * (dim % x.ndim) + (index,)]


def _slice(x: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Array:
    return _along(x, dim, slice(start, end, step))


def _index(x: Array, indices: Sequence[Any]) -> Array:
    return x[tuple(slice(None) if each is None else each for each in indices)]


def _pieces(x: Array, sizes: Sequence[int], dim: int = 0) -> list[Array]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [_slice(x, dim, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _split(x: Array, size: Any, dim: int = 0) -> list[Array]:
    if not isinstance(size, int):
        return _pieces(x, size, dim)
    whole = x.shape[dim]
    return _pieces(x, [min(size, whole - start) for start in range(0, whole, size)], dim)


def _chunk(x: Array, chunks: int, dim: int = 0) -> list[Array]:
    return _split(x, -(-x.shape[dim] // chunks), dim)


def _pad(x: Array, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Array:
    widths = [(0, 0)] * x.ndim
    for i in range(len(pad) // 2):  # PyTorch names the last axis first
        widths[-1 - i] = (pad[2 * i], pad[2 * i + 1])
    if mode != "constant":
        return jnp.pad(x, widths, {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode])
    cut = tuple(slice(max(-low, 0), size - max(-high, 0)) for (low, high), size in zip(widths, x.shape, strict=True))
    grown = [(max(low, 0), max(high, 0)) for low, high in widths]
    return jnp.pad(x[cut], grown, constant_values=0 if value is None else value)


def _pixel_shuffle(x: Array, factor: int) -> Array:
    *rows, channels, height, width = x.shape
    x = x.reshape(*rows, channels // factor**2, factor, factor, height, width)
    n = len(rows)
    x = x.transpose(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return x.reshape(*rows, channels // factor**2, height * factor, width * factor)


def _topk(x: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    last = jnp.moveaxis(x, dim, -1)
    values, places = jax.lax.top_k(last if largest else -last, k)
    return tuple(jnp.moveaxis(each, -1, dim) for each in (values if largest else -values, places))  # type: ignore[return-value]


def _sort(x: Array, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> tuple[Array, Array]:
    places = jnp.argsort(x, axis=dim, descending=descending)
    return jnp.take_along_axis(x, places, axis=dim), places


def _sort_stable(x: Array, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    return _sort(x, dim, descending)


def _gather(x: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    cut = tuple(slice(None) if axis == dim % x.ndim else slice(size) for axis, size in enumerate(index.shape))
    return jnp.take_along_axis(x[cut], index, axis=dim)


def _to(x: Array, *args: Any, dtype: Any = None, **_: Any) -> Array:
    given = [each for each in args if isinstance(each, jnp.dtype | type) and not isinstance(each, bool)]
    dtype = given[0] if given else dtype
    return x if dtype is None else jnp.asarray(x, dtype)


def _same(x: Array, *_: Any, **__: Any) -> Array:
    return x


SHAPES: dict[str, Callable[..., Any]] = {
    "view": lambda x, size: x.reshape(size),
    "view.dtype": lambda x, dtype: x.view(dtype),
    "_unsafe_view": lambda x, size: x.reshape(size),
    "reshape": lambda x, size: x.reshape(size),
    "view_as": lambda x, other: x.reshape(other.shape),
    "flatten": _flatten,
    "unflatten": _unflatten,
    "permute": lambda x, dims: jnp.transpose(x, dims),
    "transpose": jnp.swapaxes,
    "swapaxes": jnp.swapaxes,
    "t": jnp.transpose,
    "numpy_T": jnp.transpose,
    "movedim": jnp.moveaxis,
    "unsqueeze": jnp.expand_dims,
    "squeeze": _squeeze,
    "expand": _expand,
    "expand_as": lambda x, other: jnp.broadcast_to(x, other.shape),
    "broadcast_to": jnp.broadcast_to,
    "repeat": _repeat,
    "repeat_interleave": lambda x, repeats, dim=None: jnp.repeat(x, repeats, axis=dim),
    "cat": lambda tensors, dim=0: jnp.concatenate(tensors, axis=dim),
    "stack": lambda tensors, dim=0: jnp.stack(tensors, axis=dim),
    "split": _split,
    "split_with_sizes": _pieces,
    "chunk": _chunk,
    "unbind": lambda x, dim=0: [_along(x, dim, i) for i in range(x.shape[dim])],
    "slice": _slice,
    "narrow": lambda x, dim, start, length: _slice(x, dim, start, start + length),
    "select": _along,
    "index": _index,
    "index_select": _along,
    "gather": _gather,
    "topk": _topk,
    "sort": _sort,
    "sort.stable": _sort_stable,
    "argsort": lambda x, dim=-1, descending=False: _sort(x, dim, descending)[1],
    "flip": lambda x, dims: jnp.flip(x, dims),
    "roll": lambda x, shifts, dims: jnp.roll(x, shifts, dims or None),
    "pad": _pad,
    "constant_pad_nd": lambda x, pad, value=0: _pad(x, pad, value=value),
    "pixel_shuffle": _pixel_shuffle,
    "tril": lambda x, diagonal=0: jnp.tril(x, diagonal),
    "triu": lambda x, diagonal=0: jnp.triu(x, diagonal),
    "diagonal": lambda x, offset=0, dim1=0, dim2=1: jnp.diagonal(x, offset, dim1, dim2),
    "sym_numel": lambda x: x.size,
    "sym_size": lambda x, dim: x.shape[dim],
    "to": _to,
    "_to_copy": _to,
    "type_as": lambda x, other: x.astype(other.dtype),
    "contiguous": _same,
    "clone": _same,
    "detach": _same,
    "detach_": _same,
    "alias": _same,
    "lift_fresh_copy": _same,
    "copy": lambda x, source, *_: jnp.broadcast_to(source, x.shape).astype(x.dtype),
}
