"""What a row brings beside its target: the trials of a count of successes, the indicator of a censored value."""

from __future__ import annotations

import numpy as np

from lamu.data.columns import kind, numbers
from lamu.data.sources import Source
from lamu.data.spelling import nearest
from lamu.data.wording import DataError, at, quoted

__all__ = ["beside"]


def beside(source: Source, target: str, name: str, column: str, y: np.ndarray | None) -> np.ndarray:
    """Returns the trials or the indicators of the rows, float64, checked against the target."""
    if column == target:
        raise DataError(f"{column!r} is the target and cannot be its {name} as well; name another column")
    if column not in source.frame:
        raise DataError(f"{source.name} has no column {column!r} with {name}; {nearest(column, source.names)}")
    if kind(source.frame[column]) != "numbers":
        raise DataError(f"the column {column!r} of {name} holds no numbers; give whole numbers")
    values = numbers(source.frame[column])
    if name == "censored":
        _refuse(~((values == 0) | (values == 1)), values, column, "an indicator is 1 where a row is censored, else 0")
        return values
    _refuse(~((values >= 0) & (values == np.floor(values))), values, column, "trials are whole numbers from 0")
    if y is not None:
        _refuse(~((y >= 0) & (y == np.floor(y))), y, target, "successes are whole numbers from 0")
        if (y > values).any():
            row = int(np.argmax(y > values))
            raise DataError(
                f"{target!r} is {y[row]:g} of {values[row]:g} trials ({column!r}) {at(row)}; give as many trials"
            )
    return values


def _refuse(wrong: np.ndarray, values: np.ndarray, column: str, rule: str) -> None:
    """Raises a DataError that names the first row at fault."""
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"the column {column!r} has {quoted(float(values[row]))} {at(row)}; {rule}")
