"""Work over many rows in equal chunks, so that memory is bounded and one compilation serves all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu import memory
from lamu.shape_cache import once_a_shape
from lamu.typing import Array, RandomKey

__all__ = ["draw_in_chunks", "equal_chunks", "in_chunks", "in_room", "require_room", "room_for", "row_keys"]

MOST = 4096  # rows at a time: more are no faster
_AT_ONCE = 2  # arrays of the largest size: what an operation reads and what it makes


def equal_chunks(x: Any, rows: int) -> Iterator[tuple[Any, int]]:
    """Yields the rows some at a time, all chunks of one size: the last one is padded by repeating its last row."""
    total = _count(x)
    for start in range(0, total, rows):
        kept = min(rows, total - start)
        part = jax.tree.map(lambda leaf: jnp.asarray(leaf[start : start + rows]), x)  # noqa: B023  (at once)
        if kept < min(rows, total):
            part = jax.tree.map(lambda leaf: _padded(leaf, rows), part)
        yield part, kept


def in_chunks(function: Callable[[Any], Any], x: Any, rows: int, axis: int = 0) -> Any:
    """Returns `function(x)`, computed some rows at a time."""
    if _count(x) <= rows:
        return function(jax.tree.map(jnp.asarray, x))
    parts = []
    for chunk, kept in equal_chunks(x, rows):
        result = function(chunk)
        parts.append(jax.tree.map(lambda leaf: jax.lax.slice_in_dim(leaf, 0, kept, axis=axis), result))  # noqa: B023  (at once)
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=axis), *parts)


def in_room(function: Callable[..., Any], parts: tuple[Any, ...], x: tuple[Any, ...], axis: int = 0) -> Any:
    """Returns `function(*parts, *x)`, computed as many rows at a time as `lamu.memory.budget()` has room for."""
    # `function`: a compiled function of parts and rows, as for `in_chunks`; one object, so that its size is found once.
    return in_chunks(lambda rows: function(*parts, *rows), x, rows=room_for(function, parts, x), axis=axis)


def room_for(function: Callable[..., Any], parts: tuple[Any, ...], x: tuple[Any, ...]) -> int:
    """Returns how many rows at a time there is room for in `function(*parts, *x)`, one at least."""
    count = _count(x)
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((parts, x))):
        return count
    most = min(count, MOST)
    taken = _taken(function, parts, jax.tree.map(lambda leaf: _some(leaf, most), x))
    return most if taken <= memory.budget() else max(1, most * memory.budget() // taken)


def draw_in_chunks(draw: Callable[..., Array], *each: Any) -> Array:
    """Returns `draw` of every leading entry of the arguments, as many at once as there is room for."""
    count = jax.tree.leaves(each)[0].shape[0]
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), each)
    require_room(count, memory.bytes_of(jax.eval_shape(draw, *one)))
    at_once = max(1, memory.budget() // max(_AT_ONCE * memory.largest_array(draw, *one), 1))
    if at_once >= count:
        return jax.vmap(draw)(*each)
    return jnp.asarray(jax.lax.map(lambda entry: draw(*entry), each, batch_size=at_once))


def require_room(draws: int, size: int) -> None:
    """Raises a ValueError where draws of all targets cannot be held."""
    fewer = memory.limit() // max(size, 1)
    instead = f"ask for {fewer:,} at a time, or for fewer rows" if fewer else "ask for fewer rows at a time"
    memory.demand(draws * size, f"a sample of {draws:,} draws", instead)


def row_keys(key: RandomKey, rows: int, first: Any = 0) -> Array:
    """Returns a key for each of some rows, which depends on the key and the row's number alone."""
    return jax.vmap(lambda row: jax.random.fold_in(key, row))(first + jnp.arange(rows))


@once_a_shape
def _taken(function: Callable[..., Any], parts: tuple[Any, ...], x: tuple[Any, ...]) -> int:
    """The bytes that so many rows take, beside the parts."""
    return _AT_ONCE * memory.largest_array(function, *parts, *x)


def _some(leaf: Any, rows: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), jax.dtypes.canonicalize_dtype(leaf.dtype))


def _count(x: Any) -> int:
    return jax.tree.leaves(x)[0].shape[0]


def _padded(leaf: Array, rows: int) -> Array:
    return jnp.concatenate([leaf, jnp.broadcast_to(leaf[-1:], (rows - leaf.shape[0], *leaf.shape[1:]))])
