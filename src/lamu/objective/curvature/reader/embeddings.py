"""Rows of a table that were looked up, some of them more than once."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lamu.typing import Array

__all__ = ["is_lookup", "merged", "rows_of"]


def is_lookup(settings: dict[str, Any], table: tuple[int, ...], output: tuple[int, ...]) -> bool:
    """Whether an equation `gather` reads whole rows of a table, `[..., *row]` from `[rows, *row]`."""
    numbers = settings["dimension_numbers"]
    plain = (numbers.collapsed_slice_dims, numbers.start_index_map, numbers.operand_batching_dims) == ((0,), (0,), ())
    width = len(table) - 1
    trailing = tuple(numbers.offset_dims) == tuple(range(len(output) - width, len(output)))
    return plain and trailing and tuple(settings["slice_sizes"]) == (1, *table[1:])


def rows_of(indices: Array, count: int, mode: Any) -> Array:
    """Returns which rows are read, those outside the table clipped or, as nothing is read there, set to `count`."""
    if mode == jax.lax.GatherScatterMode.CLIP:
        return jnp.clip(indices, 0, count - 1)
    return jnp.where((indices < 0) | (indices >= count), jnp.full_like(indices, count), indices)


def merged(indices: Array, cotangents: Array) -> Array:
    """Returns what each row receives in all, where it is read first, and zeros where it is read again."""
    count = math.prod(indices.shape)
    same = indices[:, None] == indices[None, :]
    again = jnp.any(same & jnp.tril(jnp.ones((count, count), bool), -1), axis=1)
    return jnp.tensordot((same & ~again[:, None]).astype(cotangents.dtype), cotangents, 1)
