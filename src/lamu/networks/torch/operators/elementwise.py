"""Operators that act on every number by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu.typing import Array

__all__ = ["ELEMENTWISE"]


def _add(a: Any, b: Any, alpha: Any = 1) -> Array:
    return jnp.add(a, b if alpha == 1 else alpha * b)


def _sub(a: Any, b: Any, alpha: Any = 1) -> Array:
    return jnp.subtract(a, b if alpha == 1 else alpha * b)


def _div(a: Any, b: Any, *, rounding_mode: str | None = None) -> Array:
    if rounding_mode is None:
        return jnp.true_divide(a, b)
    return jnp.floor_divide(a, b) if rounding_mode == "floor" else jnp.trunc(jnp.true_divide(a, b))


def _clamp(x: Array, min: Any = None, max: Any = None) -> Array:
    return jnp.clip(x, min, max)


def _gelu(x: Array, *, approximate: str = "none") -> Array:
    return jax.nn.gelu(x, approximate=approximate == "tanh")


def _elu(x: Array, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Array:
    return scale * jnp.where(x > 0, x, alpha * jnp.expm1(input_scale * jnp.minimum(x, 0)))


def _softplus(x: Array, beta: Any = 1, threshold: Any = 20) -> Array:
    return jnp.where(x * beta > threshold, x, jax.nn.softplus(x * beta) / beta)


def _prelu(x: Array, weight: Array) -> Array:
    slope = weight if weight.size == 1 else weight.reshape(1, -1, *[1] * (x.ndim - 2))
    return jnp.where(x > 0, x, slope * x)


def _threshold(x: Array, threshold: Any, value: Any) -> Array:
    return jnp.where(x > threshold, x, jnp.asarray(value, x.dtype))


def _masked_fill(x: Array, mask: Array, value: Any) -> Array:
    return jnp.where(mask, jnp.asarray(value, x.dtype), x)


def _hardsigmoid(x: Array) -> Array:
    return jnp.clip(x / 6 + 0.5, 0, 1)


def _glu(x: Array, dim: int = -1) -> Array:
    value, gate = jnp.split(x, 2, axis=dim)
    return value * jax.nn.sigmoid(gate)


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "abs": jnp.abs,
    "neg": jnp.negative,
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "log": jnp.log,
    "log1p": jnp.log1p,
    "log2": jnp.log2,
    "sqrt": jnp.sqrt,
    "rsqrt": jax.lax.rsqrt,
    "square": jnp.square,
    "reciprocal": jnp.reciprocal,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tanh": jnp.tanh,
    "atan": jnp.arctan,
    "erf": jax.lax.erf,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "round": jnp.round,
    "sign": jnp.sign,
    "sigmoid": jax.nn.sigmoid,
    "log_sigmoid": jax.nn.log_sigmoid,
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "silu": jax.nn.silu,
    "selu": jax.nn.selu,
    "mish": jax.nn.mish,
    "elu": _elu,
    "celu": lambda x, alpha=1.0: _elu(x, alpha, 1, 1 / alpha),
    "gelu": _gelu,
    "glu": _glu,
    "leaky_relu": lambda x, negative_slope=0.01: jnp.where(x > 0, x, negative_slope * x),
    "hardtanh": lambda x, min_val=-1, max_val=1: jnp.clip(x, min_val, max_val),
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda x: x * _hardsigmoid(x),
    "softplus": _softplus,
    "prelu": _prelu,
    "threshold": _threshold,
    "clamp": _clamp,
    "clamp_min": lambda x, min: jnp.maximum(x, min),
    "clamp_max": lambda x, max: jnp.minimum(x, max),
    "add": _add,
    "sub": _sub,
    "rsub": lambda a, b, alpha=1: _sub(b, a, alpha=alpha),
    "mul": jnp.multiply,
    "div": _div,
    "floor_divide": jnp.floor_divide,
    "remainder": jnp.remainder,
    "fmod": jnp.fmod,
    "pow": jnp.power,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "atan2": jnp.arctan2,
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
    "logical_and": jnp.logical_and,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
    "logical_not": jnp.logical_not,
    "bitwise_and": jnp.bitwise_and,
    "bitwise_or": jnp.bitwise_or,
    "bitwise_not": jnp.bitwise_not,
    "isnan": jnp.isnan,
    "isinf": jnp.isinf,
    "where": jnp.where,
    "masked_fill": _masked_fill,
    "addcmul": lambda x, a, b, *, value=1: x + value * a * b,
    "addcdiv": lambda x, a, b, *, value=1: x + value * a / b,
    "lerp": lambda a, b, weight: a + weight * (b - a),
}
