"""Pads rows to blocks of few sizes, so that one compiled program serves many numbers of rows."""

# A program has one shape, and the number of rows varies. Rows are padded to a ladder of sizes by repeating the last
# one, and the results are cut to the original rows. Rows are independent, so that only the rounding of products
# changes, whose order of summation depends on the shape.

from __future__ import annotations

import functools
from collections.abc import Iterator

import jax
import numpy as np

from lamu.typing import Array, PyTree

__all__ = ["block", "filled", "is_spread", "joined_blocks", "ladder", "padded_blocks"]

_FEW = 64  # up to this size every second size is a power of two; above, every fourth


def ladder(count: int) -> int:
    """Returns the next of the sizes 1, 2, 3, 4, 6, 8, 12, ..., 64, 80, 96, 112, 128, 160, ..."""
    return -(-count // _step(count - 1)) * _step(count - 1)


@functools.lru_cache(maxsize=1024)
def block(count: int, most: int) -> int:
    """Returns the size of blocks for `count` rows: a size of the ladder, and at most `most`."""
    most = most // _step(most) * _step(most)
    return ladder(-(-count // -(-count // most)))


def _step(below: int) -> int:
    """Returns the distance between the sizes around a number."""
    power = 1 << below.bit_length()
    return max(1, power // (4 if power <= _FEW else 8))


def is_spread(x: object) -> bool:
    """Whether rows are on several devices, from which padding would gather them."""
    return isinstance(x, jax.Array) and len(x.sharding.device_set) > 1


def padded_blocks(rows: PyTree, count: int, size: int) -> Iterator[PyTree]:
    """Yields blocks of rows, all of one size; the last one repeats its last row."""
    if count == size:
        yield rows
        return
    rows = jax.tree.map(np.asarray, rows)
    for start in range(0, count, size):
        missing = max(0, start + size - count)
        yield jax.tree.map(lambda leaf: filled(leaf[start : start + size], missing), rows)  # noqa: B023  (at once)


def filled(leaf: np.ndarray, missing: int, axis: int = 0) -> np.ndarray:
    """Returns an array with its last row repeated `missing` more times."""
    return np.concatenate([leaf, np.repeat(np.take(leaf, [-1], axis), missing, axis)], axis) if missing else leaf


def joined_blocks(leaves: tuple[Array | np.ndarray, ...], count: int, axis: int) -> Array:
    """Joins the results of blocks into one array, without the padding of the last block."""
    host = [np.asarray(leaf) for leaf in leaves]
    joined = host[0] if len(host) == 1 else np.concatenate(host, axis=axis)
    return jax.device_put(joined[(slice(None),) * axis + (slice(0, count),)])  # `jnp.asarray` compiles for each shape
