"""Work over many rows in equal chunks, so that memory is bounded and one compilation serves all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from lamu.typing import Array, RandomKey

__all__ = ["equal_chunks", "in_chunks", "row_keys"]


def equal_chunks(x: Any, rows: int) -> Iterator[tuple[Any, int]]:
    """Yields the rows some at a time, all chunks of one size: the last one is padded by repeating its last row.

    Args:
        x: all rows: an array, or a tree of arrays with the same leading axis.
        rows: how many at a time; where there are no more than these in all, they come unpadded.

    Yields:
        A chunk, on the device, and how many of its rows are real.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives.rows import equal_chunks
        >>> [(chunk.tolist(), kept) for chunk, kept in equal_chunks(jnp.arange(3), rows=2)]
        [([0, 1], 2), ([2, 2], 1)]
    """
    total = _count(x)
    for start in range(0, total, rows):
        kept = min(rows, total - start)
        part = jax.tree.map(lambda leaf: jnp.asarray(leaf[start : start + rows]), x)  # noqa: B023  (at once)
        if kept < min(rows, total):
            part = jax.tree.map(lambda leaf: _padded(leaf, rows), part)
        yield part, kept


def in_chunks(function: Callable[[Any], Any], x: Any, rows: int, axis: int = 0) -> Any:
    """Returns `function(x)`, computed some rows at a time.

    Args:
        function: maps rows to arrays whose `axis` is the rows'; each row's result must depend on it alone.
        x: all rows: an array, or a tree of arrays with the same leading axis.
        rows: how many at a time.
        axis: where the rows stand in the results.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives.rows import in_chunks
        >>> in_chunks(lambda rows: 2 * rows, jnp.arange(5), rows=2).tolist()
        [0, 2, 4, 6, 8]
    """
    if _count(x) <= rows:
        return function(jax.tree.map(jnp.asarray, x))
    parts = []
    for chunk, kept in equal_chunks(x, rows):
        result = function(chunk)
        parts.append(jax.tree.map(lambda leaf: jax.lax.slice_in_dim(leaf, 0, kept, axis=axis), result))  # noqa: B023  (at once)
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=axis), *parts)


def row_keys(key: RandomKey, rows: int, first: Any = 0) -> Array:
    """Returns a key for each of some rows, which depends on the key and the row's number alone.

    Args:
        key: a random key.
        rows: how many.
        first: the number of the first one.

    Examples:
        >>> import jax
        >>> from lamu.predictives.rows import row_keys
        >>> bool(row_keys(jax.random.key(0), 3)[2] == row_keys(jax.random.key(0), 1, first=2)[0])
        True
    """
    return jax.vmap(lambda row: jax.random.fold_in(key, row))(first + jnp.arange(rows))


def _count(x: Any) -> int:
    return jax.tree.leaves(x)[0].shape[0]


def _padded(leaf: Array, rows: int) -> Array:
    return jnp.concatenate([leaf, jnp.broadcast_to(leaf[-1:], (rows - leaf.shape[0], *leaf.shape[1:]))])
