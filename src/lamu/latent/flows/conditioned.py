"""Numbers of a flow that are an affine function of a context."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.typing import Array, Params, RandomKey

__all__ = ["conditioned", "init_conditioned"]


def init_conditioned(key: RandomKey, context: int, numbers: int, dtype: Any) -> Params:
    """Returns a kernel, zero at first, and a bias of small random numbers.

    Args:
        key: a random key.
        context: the length of the context.
        numbers: how many numbers.
        dtype: of the parameters.

    Examples:
        >>> import jax
        >>> from lamu.latent.flows.conditioned import init_conditioned
        >>> init_conditioned(jax.random.key(0), 2, 3, float)["kernel"].shape
        (2, 3)
    """
    bias = 0.1 * jax.random.normal(key, (numbers,), dtype)
    return {"kernel": jnp.zeros((context, numbers), dtype), "bias": bias}


def conditioned(params: Params, context: Array) -> Array:
    """Returns the numbers at a context.

    Args:
        params: of `init_conditioned`.
        context: `[C]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.latent.flows.conditioned import conditioned
        >>> conditioned({"kernel": jnp.ones((1, 2)), "bias": jnp.zeros(2)}, jnp.array([3.0])).tolist()
        [3.0, 3.0]
    """
    return jnp.matmul(context.astype(params["kernel"].dtype), params["kernel"]) + params["bias"]
