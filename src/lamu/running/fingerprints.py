"""What identifies a run, in words and by its values: a checkpoint is of that run or of another."""

from __future__ import annotations

import hashlib
import re
from dataclasses import fields
from typing import Any

import jax
import numpy as np

from lamu.data.arrays import Arrays

__all__ = ["described", "rows_described"]

_SHOWN, _DIGITS = 100, 8
_WHOLE = 256 * 2**20  # bytes of an array up to which all of it is read
_SPREAD = 4096  # rows of a larger one
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def described(value: Any) -> str:
    """Returns a value as it is written, with a fingerprint of all its parts, the same in every process."""
    leaves, structure = jax.tree.flatten(value)
    if jax.tree_util.all_leaves([value]) and not isinstance(value, int | float | np.ndarray | jax.Array):
        return type(value).__name__
    seen = hashlib.sha256(_ADDRESS.sub("", str(structure)).encode())
    for leaf in leaves:
        _feed(seen, leaf)
    words = _ADDRESS.sub("", repr(value)) if sum(map(np.size, leaves)) <= _SHOWN else type(value).__name__
    words = words if len(words) <= _SHOWN else f"{words[: _SHOWN - 3]}..."
    return f"{words} #{seen.hexdigest()[:_DIGITS]}"


def rows_described(rows: Any) -> str:
    """Returns how many rows there are, with a fingerprint of their values; batches that come as they come have none."""
    if not isinstance(rows, Arrays):
        return "batches"
    seen = hashlib.sha256()
    for field in fields(rows):
        part = getattr(rows, field.name)
        if isinstance(part, np.ndarray | jax.Array):
            seen.update(field.name.encode())
            _feed(seen, part)
    return f"{rows.count} rows #{seen.hexdigest()[:_DIGITS]}"


def _feed(seen: Any, leaf: Any) -> None:
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if not isinstance(leaf, int | float | bool | np.ndarray | np.generic | jax.Array):
        seen.update(_ADDRESS.sub("", repr(leaf)).encode())
        return
    array = np.asarray(leaf)
    # A number is the same number in an array, and in any width that holds it.
    seen.update(f"{array.shape}".encode())
    if array.nbytes > _WHOLE and array.ndim:
        array = array[np.linspace(0, len(array) - 1, min(len(array), _SPREAD)).astype(int)]
    if array.ndim == 0:
        seen.update(repr(array.item()).encode())
    else:
        seen.update(str(array.dtype).encode())
        seen.update(np.ascontiguousarray(array).tobytes())
