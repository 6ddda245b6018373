"""Rows padded to blocks of few sizes: one program serves many numbers of rows."""

# A program is of one shape, and rows come in any number. They are padded to a ladder of sizes by repeating the last
# one, and what is answered is cut to the rows that were asked for. No row sees another one, so that nothing changes but
# the rounding of products, whose order of summation is the shape's.

from __future__ import annotations

import functools
from collections.abc import Iterator

import jax
import numpy as np

from lamu.typing import Array, PyTree

__all__ = ["block", "filled", "is_spread", "joined_blocks", "ladder", "padded_blocks"]

_FEW = 64  # rows up to which every second size is a power of two; above, every fourth


def ladder(count: int) -> int:
    """Returns the next of 1, 2, 3, 4, 6, 8, 12, ..., 64, 80, 96, 112, 128, 160, ...: a quarter of few rows more."""
    return -(-count // _step(count - 1)) * _step(count - 1)


@functools.lru_cache(maxsize=1024)
def block(count: int, most: int) -> int:
    """Returns how many rows each block of so many has: a size of the ladder, and at most `most`."""
    most = most // _step(most) * _step(most)
    return ladder(-(-count // -(-count // most)))


def _step(below: int) -> int:
    """Returns how far the sizes around a number are apart."""
    power = 1 << below.bit_length()
    return max(1, power // (4 if power <= _FEW else 8))


def is_spread(x: object) -> bool:
    """Whether rows lie on several devices, from which padding would gather them."""
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
    """Returns an array with its last row so many times more."""
    return np.concatenate([leaf, np.repeat(np.take(leaf, [-1], axis), missing, axis)], axis) if missing else leaf


def joined_blocks(leaves: tuple[Array | np.ndarray, ...], count: int, axis: int) -> Array:
    """Returns what blocks answer as one array, without the rows that fill the last."""
    host = [np.asarray(leaf) for leaf in leaves]
    whole = host[0] if len(host) == 1 else np.concatenate(host, axis=axis)
    return jax.device_put(whole[(slice(None),) * axis + (slice(0, count),)])  # `jnp.asarray` compiles for each shape
