"""Memory-mapped arrays, read in blocks whose pages are released."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from lamu import memory
from lamu.typing import Rows

__all__ = ["blocks", "is_mapped", "moments", "require_room", "still_mapped"]

_BLOCK = 2**22  # bytes
_LARGE = 2**26  # bytes, from which 64-bit copies are made in blocks


def is_mapped(array: object) -> bool:
    """Returns whether an array is memory-mapped, as `numpy.load(path, mmap_mode="r")` and `numpy.memmap` return it."""
    return _mapping(array) is not None


def _mapping(array: object) -> mmap.mmap | None:
    """Returns the memory map that an array views."""
    while isinstance(array, np.ndarray):
        array = array.base
    if isinstance(array, memoryview):
        array = array.obj
    return array if isinstance(array, mmap.mmap) else None


def blocks(array: Rows) -> Iterator[tuple[int, Rows]]:
    """Yields an array in blocks of rows, each with its first row's number; releases the pages of a file."""
    if not isinstance(array, np.ndarray):  # on a device
        yield 0, array
        return
    rows = max(1, _BLOCK // max(array[:1].nbytes, 1))
    mapping = _mapping(array)
    for start in range(0, len(array), rows):
        yield start, array[start : start + rows]
        if mapping is not None and _is_shared(array):
            mapping.madvise(mmap.MADV_DONTNEED)


def _is_shared(array: object) -> bool:
    """Returns whether released pages can be read again from the file, unlike those of a copy on write."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and array.mode != "c":
            return hasattr(mmap.mmap, "madvise") and hasattr(mmap, "MADV_DONTNEED")
        array = array.base
    return False


def still_mapped(parts: Mapping[str, Rows]) -> dict[str, Rows]:
    """Returns the memory-mapped arrays among some."""
    return {name: part for name, part in parts.items() if is_mapped(part)}


def require_room(parts: Mapping[str, Rows], copies: int = 1) -> int:
    """Raises a ValueError, before reading, if memory-mapped arrays are larger in memory than the limit."""
    parts = still_mapped(parts)
    if not parts:
        return 0
    sizes = {name: part.size * _dtype_in_memory(part).itemsize for name, part in parts.items()}
    size = copies * sum(sizes.values())
    twice = "" if copies == 1 else " with the rows that are set aside"
    memory.demand(
        size,
        f"what is mapped from a file ({', '.join(parts)}){twice}",
        "give an object that yields batches of rows, which are read one after the other (with data_size=N), or "
        f"max_memory={memory.at_least(size)!r} or more",
    )
    return size


def _dtype_in_memory(part: Rows) -> np.dtype:
    floating = part.dtype if np.issubdtype(part.dtype, np.floating) else np.dtype(np.float64)
    return jax.dtypes.canonicalize_dtype(floating)


def moments(array: object, weight: object = None) -> tuple[Any, Any]:
    """Returns every column's mean and standard deviation in 64 bits, computed in blocks if an array is large."""
    weight = None if weight is None else np.asarray(weight, np.float64)
    if not (isinstance(array, np.ndarray) and (is_mapped(array) or array.nbytes > _LARGE)):
        values = np.asarray(array, np.float64)
        if weight is None:
            return values.mean(axis=0), values.std(axis=0)
        mean = np.average(values, axis=0, weights=weight)
        return mean, np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weight))
    weight = np.ones(len(array)) if weight is None else weight
    weighted_sum = lambda start, block: np.tensordot(weight[start : start + len(block)], block, axes=1)
    total = weight.sum()
    mean = sum(weighted_sum(start, block.astype(np.float64)) for start, block in blocks(array)) / total
    square = sum(weighted_sum(start, (block - mean) ** 2) for start, block in blocks(array)) / total
    return np.asarray(mean), np.sqrt(np.asarray(square))
