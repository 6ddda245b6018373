"""Numbers of a flow that are an affine function of a context."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.typing import Array, Params, RandomKey

__all__ = ["conditioned", "init_conditioned"]


def init_conditioned(key: RandomKey, context: int, numbers: int, dtype: Any) -> Params:
    """Returns a kernel, zero at first, and a bias of small random numbers."""
    bias = 0.1 * jax.random.normal(key, (numbers,), dtype)
    return {"kernel": jnp.zeros((context, numbers), dtype), "bias": bias}


def conditioned(params: Params, context: Array) -> Array:
    """Returns the numbers at a context."""
    return jnp.matmul(context.astype(params["kernel"].dtype), params["kernel"]) + params["bias"]
