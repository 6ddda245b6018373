"""Pooling and resizing of `[batch, channels, ...]`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.typing import Array

__all__ = ["POOLING"]


def _each(value: Any, n: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * n if len(values) == 1 else values


def _windows(x: Array, size: list[int], stride: Any, padding: Any, dilation: Any, ceil: bool) -> tuple[Any, ...]:
    n = len(size)
    strides = _each(stride, n) if stride not in (None, []) else size
    pads, dilations = _each(padding, n), _each(dilation, n)
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, size, strict=True)]
    ends = []
    for length, r, s, p in zip(x.shape[-n:], reach, strides, pads, strict=True):
        steps = (length + 2 * p - r) / s
        count = math.ceil(steps) if ceil else math.floor(steps)
        if ceil and count * s >= length + p:  # a window that begins in the padding on the right is none
            count -= 1
        ends.append((p, max(count * s + r - length - p, 0)))
    ahead = x.ndim - n
    return (
        (1,) * ahead + tuple(size),
        (1,) * ahead + tuple(strides),
        ((0, 0),) * ahead + tuple(ends),
        (1,) * ahead + tuple(dilations),
    )


def _max_pool(n: int) -> Callable[..., Array]:
    def pooled(
        x: Array, size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Array:
        window, strides, pads, dilations = _windows(x, _each(size, n), stride, padding, dilation, ceil_mode)
        least = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
        return jax.lax.reduce_window(x, least, jax.lax.max, window, strides, pads, window_dilation=dilations)

    return pooled


def _average_pool(n: int) -> Callable[..., Array]:
    def pooled(
        x: Array,
        size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Array:
        window, strides, pads, _ = _windows(x, _each(size, n), stride, padding, 1, ceil_mode)

        def total(x: Array, pads: Any) -> Array:
            return jax.lax.reduce_window(x, np.zeros((), x.dtype), jax.lax.add, window, strides, pads)

        if divisor_override is not None:
            return total(x, pads) / divisor_override
        ones = jnp.ones_like(x)
        if count_include_pad:  # what is padded counts, but not what only the rounding up adds
            own = _each(padding, n)
            ones = jnp.pad(ones, ((0, 0),) * (x.ndim - n) + tuple((p, p) for p in own), constant_values=1)
            beyond = tuple((0, max(high - p, 0)) for (_, high), p in zip(pads[-n:], own, strict=True))
            return total(x, pads) / total(ones, ((0, 0),) * (x.ndim - n) + beyond)
        return total(x, pads) / total(ones, pads)

    return pooled


def _adaptive(function: Callable[..., Array], n: int) -> Callable[..., Array]:
    def pooled(x: Array, sizes: Any) -> Array:
        for axis, size in zip(range(-n, 0), _each(sizes, n), strict=True):
            length = x.shape[axis]
            starts = [i * length // size for i in range(size)]
            ends = [-(-(i + 1) * length // size) for i in range(size)]
            pieces = [
                function(jax.lax.slice_in_dim(x, start, end, axis=axis % x.ndim), axis=axis, keepdims=True)
                for start, end in zip(starts, ends, strict=True)
            ]
            x = jnp.concatenate(pieces, axis=axis)
        return x

    return pooled


def _target(x: Array, size: Any, scales: Any, n: int) -> list[int]:
    if size is not None:
        return _each(size, n)
    factors: Sequence[float] = scales
    return [math.floor(length * factor) for length, factor in zip(x.shape[-n:], factors, strict=True)]


def _nearest(n: int) -> Callable[..., Array]:
    def resized(x: Array, size: Any = None, scales: Any = None) -> Array:
        for axis, target in zip(range(-n, 0), _target(x, size, scales, n), strict=True):
            x = jnp.take(x, jnp.arange(target) * x.shape[axis] // target, axis=axis)
        return x

    return resized


def _linear(n: int) -> Callable[..., Array]:
    def resized(x: Array, size: Any, align_corners: bool, scales: Any = None) -> Array:
        targets = _target(x, size, scales, n)
        for axis, target in zip(range(-n, 0), targets, strict=True):
            length = x.shape[axis]
            steps = jnp.arange(target, dtype=x.dtype)
            if align_corners:
                at = steps * ((length - 1) / max(target - 1, 1))
            else:
                at = jnp.maximum((steps + 0.5) * (length / target) - 0.5, 0)
            low = jnp.floor(at).astype(int)
            high = jnp.minimum(low + 1, length - 1)
            share = (at - low).reshape(-1, *[1] * (-1 - axis))
            x = jnp.take(x, low, axis=axis) * (1 - share) + jnp.take(x, high, axis=axis) * share
        return x

    return resized


POOLING: dict[str, Callable[..., Any]] = {
    "max_pool1d": _max_pool(1),
    "max_pool2d": _max_pool(2),
    "max_pool3d": _max_pool(3),
    "avg_pool1d": _average_pool(1),
    "avg_pool2d": _average_pool(2),
    "avg_pool3d": _average_pool(3),
    "adaptive_avg_pool1d": _adaptive(jnp.mean, 1),
    "adaptive_avg_pool2d": _adaptive(jnp.mean, 2),
    "adaptive_max_pool2d": lambda x, sizes: (_adaptive(jnp.max, 2)(x, sizes), None),
    "upsample_nearest1d": _nearest(1),
    "upsample_nearest2d": _nearest(2),
    "upsample_linear1d": _linear(1),
    "upsample_bilinear2d": _linear(2),
}
