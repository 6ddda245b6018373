"""Columns whose spread float32 would lose, rejected or rescaled; memory-mapped arrays, read in blocks."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory
from lamu.base.arguments import number
from lamu.data.wording import quoted
from lamu.typing import Data, DTypeLike, Inputs, Rows

__all__ = [
    "LEVELS",
    "blocks",
    "first_indistinguishable",
    "is_mapped",
    "moments",
    "origin_and_unit",
    "refuse_lost",
    "require_room",
    "still_mapped",
    "unscaled",
]

# Seven digits are enough for a column that is counted from near zero. A column far from zero relative to its spread
# (Unix seconds of one day, 1e12 ± 1) becomes constant, and of a target beyond 1e15 or below 1e-15 the variance is
# infinite or zero. `lamu.fit` rejects both; the command line counts such a column from its own origin, in its own
# unit.


LEVELS = 4096  # numbers that a dtype must distinguish within the range of a column
_FEWEST = 64  # with so few, all of a column's distinct numbers must stay distinct
_LARGEST_INPUT = 50.0  # above which a network learns slowly
_NOISE = 64  # units of rounding within which a column is constant


def origin_and_unit(values: np.ndarray) -> tuple[float, float] | None:
    """Returns the origin and range of a column that float32 cannot hold as it is; else None."""
    present = values[np.isfinite(values)]
    if not len(present):
        return None
    low, high = float(present.min()), float(present.max())
    spread, finfo = high - low, np.finfo(np.float32)
    if not _varies(low, high, spread) or not np.isfinite(spread):
        return None
    return (low, spread) if _loses_digits(low, high, spread, finfo) or _out_of_range(spread, finfo) else None


def refuse_lost(name: str, values: Rows, target: bool = False) -> None:
    """Raises a ValueError if JAX's dtype would lose too much of a column."""
    # An array on a device has already lost its digits: only the range of its squares is checked.
    dtype = jax.dtypes.canonicalize_dtype(np.float64)
    kept = np.finfo(dtype)
    if isinstance(values, jax.Array):
        if not target or not jnp.issubdtype(values.dtype, jnp.floating):
            return
        values = np.asarray(values, np.float32 if kept.bits < 64 else np.float64)
    if values.ndim == 0 or len(values) == 0 or values.dtype.kind not in "iuf":
        return
    wide = values.dtype.itemsize > 4 and kept.bits < 64
    if not (wide or target):
        return
    columns = values.reshape(len(values), -1)
    lows, highs = (
        reduce(least, [function(block, axis=0) for _, block in blocks(columns)])
        for least, function in ((np.minimum, np.min), (np.maximum, np.max))
    )
    for index in _suspects(lows, highs, kept, target):
        # Python integers, whose difference is exact.
        low, high = lows[index].item(), highs[index].item()
        spread = high - low
        if not _varies(low, high, spread) or not np.isfinite(float(spread)):
            continue
        where = name if values.ndim == 1 else f"{name} in column {index}"
        runs = f"{where} runs from {_shown(low)} to {_shown(high)}"
        crowded = wide and _loses_digits(low, high, spread, kept)
        if crowded and (target or not _told_apart(columns[:, index], float(spread), dtype)):
            raise ValueError(
                f"{runs}, too far from zero for {dtype}, which keeps {kept.precision + 1} digits; subtract "
                f"{_shown(low)} from it first"
            )
        if target and values.dtype.kind == "f" and _out_of_range(spread, kept):
            raise ValueError(f"{runs}, and {dtype} cannot hold the square of that; divide it by {spread:.1g} first")
        if wide and float(spread) < LEVELS * float(kept.tiny):
            raise ValueError(f"{runs}, which is zero in {dtype}; divide it by {spread:.1g} first")


def first_indistinguishable(values: np.ndarray) -> int | None:
    """Returns the smallest of integers that even float64 would not distinguish; None if it does."""
    if not len(values):
        return None
    low, high = int(values.min()), int(values.max())
    return low if high > low and _loses_digits(low, high, high - low, np.finfo(np.float64)) else None


def _suspects(lows: np.ndarray, highs: np.ndarray, kept: np.finfo, target: bool) -> list[int]:
    """Returns the columns that may lose precision, which are then checked one by one."""
    low, high = lows.astype(np.float64), highs.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = high - low
        near = spread <= LEVELS * float(kept.eps) * np.maximum(np.abs(low), np.abs(high))
    least = LEVELS * float(kept.tiny)
    return np.flatnonzero(near | (spread < least) | target).tolist()


def _varies(low: float | int, high: float | int, spread: float | int) -> bool:
    if isinstance(spread, int):
        return spread > 0
    return bool(spread > _NOISE * float(np.finfo(np.float64).eps) * max(abs(low), abs(high)))


def _loses_digits(low: float | int, high: float | int, spread: float | int, kept: np.finfo) -> bool:
    """Returns whether a range far from zero holds few numbers of a dtype."""
    return bool(float(spread) < LEVELS * float(kept.eps) * float(max(abs(low), abs(high))))


def _out_of_range(spread: float | int, kept: np.finfo) -> bool:
    """Returns whether squares of the spread, scaled by a model, would leave the range of a dtype."""
    least, most = 1e4 * float(kept.tiny) ** 0.5, 1e-4 * float(kept.max) ** 0.5
    return not least < float(spread) < most


def _told_apart(column: np.ndarray, spread: float, dtype: DTypeLike) -> bool:
    """Returns whether a narrower dtype keeps a column's numbers distinct, and moves none by more than a small share."""
    # Integers below 2**24 are the same in float32; and with few rows two may be close without being
    # crowded.
    column = np.asarray(column)
    kept = column.astype(dtype).astype(np.float64)
    if np.array_equal(kept, column.astype(np.float64)):
        return True
    step = float(np.finfo(dtype).eps) * float(np.abs(column).max())
    return spread >= _FEWEST * step and len(np.unique(kept)) == len(np.unique(column))


def _shown(value: float | int) -> str:
    """Returns a number as one would type it."""
    is_integer = isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e15)
    return quoted(int(value)) if is_integer else repr(float(value))


def unscaled(parts: Inputs, remedy: str) -> str:
    """Returns the clause about inputs far above one, from which a network learns slowly; else empty."""
    leaves = [leaf for leaf in jax.tree.leaves(parts) if jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.floating)]
    largest = max((float(np.nanmax(np.abs(np.asarray(leaf)), initial=0.0)) for leaf in leaves), default=0.0)
    if not largest > _LARGEST_INPUT:
        return ""
    return f"the inputs are not scaled (up to {largest:.3g}), from which a network learns slowly; {remedy}"


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


def bytes_in_memory(data: Data, validation: object) -> int:
    """Returns the bytes that data in files will take in memory, and refuses those beyond the limit."""
    named = dict(zip(("x", "y"), data, strict=False)) if isinstance(data, tuple | list) else data
    if not isinstance(named, Mapping):
        return 0
    parts = {name: part for name, part in named.items() if isinstance(part, np.ndarray)}
    require_room(parts, copies=2 if number(validation) is not None else 1)
    return require_room(parts)


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
