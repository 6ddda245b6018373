"""Work over the rows of a graph, as many at a time as memory has room for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu import memory
from lamu.typing import Array

__all__ = ["over_blocks"]

_MOST = 4096  # rows at a time: more are no faster
_AT_ONCE = 2  # arrays of the largest size: what an operation reads and what it makes


def over_blocks(function: Callable[[Any, Array], Any], data: Any, axis: int = 0) -> Any:
    """Returns the function of all rows, in blocks of one size that fit in `lamu.memory.budget()`."""
    leaves = jax.tree.leaves(data)
    count, zero = leaves[0].shape[0], jnp.zeros((), jnp.int32)
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        return function(data, zero)
    most = min(count, _MOST)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((most, *leaf.shape[1:]), jnp.asarray(leaf).dtype), data)
    taken = _AT_ONCE * memory.largest_array(function, shapes, zero)
    rows = most if taken <= memory.budget() else max(1, most * memory.budget() // taken)
    if rows >= count:
        return function(data, zero)
    parts = []
    for start in range(0, count, rows):
        # The last block begins early enough to be whole, so that one compiled program serves all.
        begin = min(start, count - rows)
        block = jax.tree.map(lambda leaf: jnp.asarray(leaf)[begin : begin + rows], data)  # noqa: B023  (at once)
        result = function(block, jnp.asarray(begin, jnp.int32))
        cut = lambda leaf: jax.lax.slice_in_dim(leaf, start - begin, rows, axis=axis)  # noqa: B023  (at once)
        parts.append(jax.tree.map(cut, result))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=axis), *parts)
