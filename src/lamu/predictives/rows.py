"""Work over many rows in equal chunks, so that memory is bounded and one compilation serves all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu.typing import Array, Rows

__all__ = ["in_chunks"]


def in_chunks(function: Callable[[Array], Any], x: Rows, rows: int, axis: int = 0) -> Any:
    """Returns `function(x)`, computed some rows at a time; the last chunk is padded by repeating its last row.

    Args:
        function: maps rows `[B, ...]` to arrays whose `axis` is the rows'; each row's result must depend on it alone.
        x: all rows.
        rows: how many at a time.
        axis: where the rows stand in the results.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives.rows import in_chunks
        >>> in_chunks(lambda rows: 2 * rows, jnp.arange(5), rows=2).tolist()
        [0, 2, 4, 6, 8]
    """
    total = x.shape[0]
    if total <= rows:
        return function(jnp.asarray(x))
    parts = []
    for start in range(0, total, rows):
        part = jnp.asarray(x[start : start + rows])
        kept = part.shape[0]
        if kept < rows:
            part = jnp.concatenate([part, jnp.broadcast_to(part[-1:], (rows - kept, *part.shape[1:]))])
        result = function(part)
        parts.append(jax.tree.map(lambda leaf: jax.lax.slice_in_dim(leaf, 0, kept, axis=axis), result))  # noqa: B023  (at once)
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=axis), *parts)
