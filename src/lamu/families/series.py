"""Series of different lengths in one array: which times of each are data, and which are padding."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu.typing import Array

__all__ = ["checked_lengths", "full_lengths", "times"]


def times(length: Array, steps: int) -> Array:
    """Returns which of the times belong to each series, `[..., steps]`."""
    shape = (*length.shape, steps)
    return jax.lax.broadcasted_iota(length.dtype, shape, length.ndim) < length[..., None]


def full_lengths(series: Any) -> Any:
    """Returns the lengths of series without padding, leaf by leaf."""
    return jax.tree.map(lambda leaf: jnp.full(leaf.shape[:-1], leaf.shape[-1], jnp.int32), series)


def checked_lengths(length: Any, series: Any, name: str) -> Any:
    """Returns given lengths as a tree of whole numbers."""
    single = jax.tree.structure(0) == jax.tree.structure(length)
    trees = jax.tree.map(lambda _: length, series) if single else length

    def leaf(count: Any, array: Array) -> Array:
        T = array.shape[-1]
        if not isinstance(count, Tracer):
            known = np.asarray(count)
            sound = (known >= 1) & (known <= T) & (known == np.floor(known))
            if not np.all(sound):
                raise ValueError(
                    f"{name}: the length {known[~sound].flat[0]:g} is no whole number from 1 to {T}, the number of "
                    "times with padding; give the number of times that each series has"
                )
        return jnp.broadcast_to(jnp.asarray(count, jnp.int32), array.shape[:-1])

    return jax.tree.map(leaf, trees, series)
