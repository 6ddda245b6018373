"""Columns whose spread float32 would lose: they are rejected, or centred and scaled."""

# Seven digits are enough for a column that is counted from near zero. A column far from zero relative to its spread
# (Unix seconds of one day, 1e12 ± 1) becomes constant, and of a target beyond 1e15 or below 1e-15 the variance is
# infinite or zero. `lamu.fit` rejects both; the command line counts such a column from its own origin, in its own
# unit.

from __future__ import annotations

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np

from lamu.data.mapped import blocks
from lamu.data.wording import quoted
from lamu.typing import DTypeLike, Inputs, Rows

__all__ = ["LEVELS", "crowded_from", "origin_and_unit", "refuse_lost", "unscaled"]

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
    return (low, spread) if _crowded(low, high, spread, finfo) or _out_of_range(spread, finfo) else None


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
        crowded = wide and _crowded(low, high, spread, kept)
        if crowded and (target or not _told_apart(columns[:, index], float(spread), dtype)):
            raise ValueError(
                f"{runs}, too far from zero for {dtype}, which keeps {kept.precision + 1} digits; subtract "
                f"{_shown(low)} from it first"
            )
        if target and values.dtype.kind == "f" and _out_of_range(spread, kept):
            raise ValueError(f"{runs}, and {dtype} cannot hold the square of that; divide it by {spread:.1g} first")
        if wide and float(spread) < LEVELS * float(kept.tiny):
            raise ValueError(f"{runs}, which is zero in {dtype}; divide it by {spread:.1g} first")


def crowded_from(values: np.ndarray) -> int | None:
    """Returns the smallest of integers that even float64 would not distinguish; None if it does."""
    if not len(values):
        return None
    low, high = int(values.min()), int(values.max())
    return low if high > low and _crowded(low, high, high - low, np.finfo(np.float64)) else None


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


def _crowded(low: float | int, high: float | int, spread: float | int, kept: np.finfo) -> bool:
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
