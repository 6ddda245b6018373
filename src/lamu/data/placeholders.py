"""What stands for a missing value: error cells of spreadsheets, marks such as `?`, and numbers such as −999."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

__all__ = ["Sentinels", "placeholders", "sentinels"]

_ERROR = re.compile(
    r"#(DIV/0!|N/A|VALUE!|REF!|NAME\?|NUM!|NULL!|SPILL!|CALC!|FIELD!|BLOCKED!|ERROR!|GETTING_DATA)|Err:\d+"
)
_MARKS = ("?", "??", "???", "-", "--", "---", "–", "—", "−", ".", "..", "...", "…")
_AMONG_NUMBERS = (
    "n.a.", "n.a", "na", "n/a", "n/d", "nd", "nan", "null", "nil", "missing", "unknown", "unk", "not available",
    "not applicable", "no data", "blank", "(missing)", "(blank)", "*", "x", "_", "/",
)  # fmt: skip
_LIMITS = (32767.0, -32768.0, 2147483647.0, -2147483648.0, 9.96921e36, -999.25)
_REPEATED = 3  # rows, at the least
_FAR = 3.0  # of the others' range, from which on nothing but a missing value is likely
_APART = 0.5  # of it, from which on a person should look
_FEWEST = 10  # other values


def placeholders(levels: Collection[str], numbers: bool) -> tuple[str, ...]:
    """Returns those of a column's texts that stand for a missing value."""
    marks = () if "+" in levels else _MARKS
    known = lambda level: _ERROR.fullmatch(level) or level in marks or (numbers and level.lower() in _AMONG_NUMBERS)
    return tuple(level for level in levels if known(level))


@dataclass(frozen=True)
class Sentinels:
    """Numbers of a column that stand for a missing value, with how many rows have each."""

    certain: dict[float, int]  # those of which the evidence is overwhelming
    suspected: dict[float, int]  # those that a person should look at
    low: float  # the smallest of the other numbers
    high: float  # the largest of the other numbers


def sentinels(values: np.ndarray) -> Sentinels:
    """Returns the numbers that stand for a missing value, such as −999, 99 or 9999."""
    # One is certain where at least three rows have it, and it is three times the range of the other numbers or more
    # away from them. It is suspected where it is that far and fewer rows have it, where it is half of the range away,
    # and where it alone is below zero.
    left = values[np.isfinite(values)]
    certain: dict[float, int] = {}
    suspected: dict[float, int] = {}
    while len(left) > _FEWEST:
        ends = (float(left.min()), float(left.max()))
        found = next((end for end in ends if _usual(end) and _judged(left, end)), None)
        if found is None:
            break
        (certain if _judged(left, found) == "certain" else suspected)[found] = int((left == found).sum())
        left = left[left != found]
    return Sentinels(certain, suspected, float(left.min(initial=np.inf)), float(left.max(initial=-np.inf)))


def _judged(values: np.ndarray, end: float) -> str:
    """Returns "certain", "suspected" or nothing for the smallest or the largest of some numbers."""
    others = values[values != end]
    if len(others) < _FEWEST or others.min() == others.max():
        return ""
    low, high, count = float(others.min()), float(others.max()), len(values) - len(others)
    apart = (low - end if end < low else end - high) / (high - low)
    if _usual(low if end < low else high) and apart < _FAR:  # 98 beside 99
        rest = others[others != (low if end < low else high)]
        if len(rest) >= _FEWEST and rest.min() < rest.max():
            apart = (rest.min() - end if end < low else end - rest.max()) / (rest.max() - rest.min())
    if apart >= _FAR:
        return "certain" if count >= _REPEATED else "suspected"
    return "suspected" if count >= _REPEATED and (apart >= _APART or (end < 0.0 <= low)) else ""


def _usual(value: float) -> bool:
    """Whether a number is of the kind that stands for a missing value: 99, −999, 9998, the limits of integers, 1e20."""
    if value in _LIMITS or abs(value) >= 1e20:
        return True
    digits = f"{abs(value):.10g}".replace(".", "")
    repeated = re.fullmatch(r"9+[789]?|8+|7+", digits) is not None
    return repeated and (len(digits) > 1 or value < 0)
