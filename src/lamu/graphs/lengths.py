"""Rows of different lengths, in blocks that are padded to about their own length."""

# Documents come padded to the longest. Sorted by length and in blocks, a block needs the padding of its own longest row
# alone, and what an iteration reads again and again is small enough for a processor's cache.

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lamu.typing import Array

__all__ = ["in_blocks", "over_rows"]

ROWS = 64
WIDTHS = 8
_AT_ONCE = 256  # rows whose gradients are taken together: enough for two threads, and few enough for a cache


def over_rows(function: Callable[[Mapping[str, Any]], Any], data: Mapping[str, Any]) -> Any:
    """Returns the function of every row, with a leading axis of rows: `jax.vmap`, in blocks where lengths differ."""
    documents = _documents(data)
    rows = jax.tree.leaves(data)[0].shape[0]
    if not documents or rows <= ROWS:
        return jax.vmap(function)(data)
    longest = max(data[f"{name}.counts"].shape[1] for name in documents)
    widths = sorted({-(-longest * part // WIDTHS) for part in range(1, WIDTHS + 1)})
    length = jnp.max(jnp.stack([_length(data[f"{name}.counts"]) for name in documents]), axis=0)
    order = jnp.argsort(length)
    padded = jnp.concatenate([order, jnp.broadcast_to(order[-1:], (-rows % ROWS,))]).reshape(-1, ROWS)

    def at_width(width: int) -> Callable[[Mapping[str, Any]], Any]:
        ours = {f"{name}.{part}" for name in documents for part in ("ids", "counts")}

        def cut(block: Mapping[str, Any]) -> Any:
            return jax.vmap(function)({name: leaf[:, :width] if name in ours else leaf for name, leaf in block.items()})

        return cut

    def of_block(places: Array) -> Any:
        block = jax.tree.map(lambda leaf: leaf[places], dict(data))
        place = jnp.searchsorted(jnp.asarray(widths), jnp.max(length[places]))
        return jax.lax.switch(place, [at_width(width) for width in widths], block)

    back = jnp.argsort(order)
    results = jax.lax.map(of_block, padded)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[back], results)


def in_blocks(function: Callable[..., Any], data: Mapping[str, Any], *beside: Any) -> Any:
    """Returns the function of every row, with a leading axis of rows: `jax.vmap`, documents in blocks of some rows."""
    # Gradients pass, and so all blocks have one width: what the words of a document are looked up in fills a cache, and
    # not the memory.
    if not _documents(data) or len(jax.tree.leaves(data)[0]) <= _AT_ONCE:
        return jax.vmap(function)(data, *beside)
    return jax.lax.map(lambda row: function(*row), (dict(data), *beside), batch_size=_AT_ONCE)


def _documents(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of the documents of a row."""
    return tuple(name.removesuffix(".counts") for name in data if name.endswith(".counts"))


def _length(counts: Array) -> Array:
    """Returns the place after the last word of every row."""
    return jnp.max(jnp.where(counts > 0, jnp.arange(1, counts.shape[1] + 1), 0), axis=1)
