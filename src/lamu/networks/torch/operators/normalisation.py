"""Normalisation: by a row's own statistics, or by those of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lamu.networks.torch.mode import Mode
from lamu.typing import Array

__all__ = ["NORMALISATION", "NORMALISATION_WITH_MODE"]


def _scaled(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    mean = jnp.mean(x, axis=axes, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), axis=axes, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + eps)


def _along(feature: Array, x: Array) -> Array:
    return feature.reshape(1, -1, *[1] * (x.ndim - 2))


def _affine(x: Array, weight: Array | None, bias: Array | None) -> Array:
    x = x if weight is None else x * _along(weight, x)
    return x if bias is None else x + _along(bias, x)


def _layer_norm(
    x: Array, shape: Sequence[int], weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5, *_: Any
) -> Array:
    x = _scaled(x, tuple(range(-len(shape), 0)), eps)
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _rms_norm(x: Array, shape: Sequence[int], weight: Array | None = None, eps: float | None = None) -> Array:
    eps = float(jnp.finfo(x.dtype).eps) if eps is None else eps
    square = jnp.mean(jnp.square(x), axis=tuple(range(-len(shape), 0)), keepdims=True)
    x = x * jax.lax.rsqrt(square + eps)
    return x if weight is None else x * weight


def _group_norm(
    x: Array, groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5, *_: Any
) -> Array:
    grouped = x.reshape(x.shape[0], groups, -1)
    return _affine(_scaled(grouped, (2,), eps).reshape(x.shape), weight, bias)


def _batch_norm(
    mode: Mode,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array | None,
    variance: Array | None,
    training: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> tuple[Array, dict[int, Array]]:
    """Returns the normalised features, and the running statistics by the places of their arguments."""
    if mean is not None and variance is not None and not (training and mode.train):
        return _affine((x - _along(mean, x)) * jax.lax.rsqrt(_along(variance, x) + eps), weight, bias), {}
    axes = (0, *range(2, x.ndim))
    rows = jnp.ones(x.shape[0], bool) if mode.mask is None else mode.mask > 0
    real = rows.reshape(-1, *[1] * (x.ndim - 1))
    x = jnp.where(real, x, jnp.zeros_like(x))  # nonsense in padded rows spoils no gradient
    size = jnp.maximum(jnp.sum(rows), 1).astype(x.dtype) * (x.size // x.shape[0] // x.shape[1])
    now = jnp.sum(x, axis=axes) / size
    deviation = jnp.where(real, x - _along(now, x), jnp.zeros_like(x))
    spread = jnp.sum(jnp.square(deviation), axis=axes) / size
    f = _affine((x - _along(now, x)) * jax.lax.rsqrt(_along(spread, x) + eps), weight, bias)
    if mean is None or variance is None:
        return f, {}
    rate = momentum * jnp.minimum(jnp.sum(rows), 1).astype(x.dtype)
    unbiased = spread * size / jnp.maximum(size - 1, 1)  # PyTorch normalises by one and remembers the other
    return f, {3: mean + rate * (now - mean), 4: variance + rate * (unbiased - variance)}


def _instance_norm(
    mode: Mode, x: Array, weight: Array | None, bias: Array | None, mean: Any, variance: Any, use: bool, *rest: Any
) -> tuple[Array, dict[int, Array]]:
    if mean is not None and not (use and mode.train):
        return _batch_norm(mode, x, weight, bias, mean, variance, False, *rest)
    return _affine(_scaled(x, tuple(range(2, x.ndim)), rest[1]), weight, bias), {}


NORMALISATION: dict[str, Callable[..., Any]] = {
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
}
NORMALISATION_WITH_MODE: dict[str, Callable[..., Any]] = {"batch_norm": _batch_norm, "instance_norm": _instance_norm}
