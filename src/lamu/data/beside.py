"""What a row brings beside its target: the trials of a count of successes, the indicator of a censored value."""

from __future__ import annotations

import numpy as np

from lamu.data.columns import kind, numbers
from lamu.data.sources import Source
from lamu.data.spelling import nearest
from lamu.data.wording import DataError, at, quoted

__all__ = ["beside"]


def beside(source: Source, target: str, name: str, column: str, y: np.ndarray | None) -> np.ndarray:
    """Returns the trials or the indicators of the rows, float64, checked against the target.

    Args:
        source: the table.
        target: the target's column.
        name: "trials" or "censored".
        column: the column that holds them.
        y: the target as it was read; None where it is not known.

    Raises:
        DataError: for a column that is missing or holds something else than numbers, trials that are no whole numbers
            from 0 or fewer than the successes, or an indicator other than 0 and 1, with the first row at fault.

    Examples:
        >>> import pandas as pd
        >>> from lamu.data.beside import beside
        >>> from lamu.data.sources import Source
        >>> table = Source("seeds.csv", pd.DataFrame({"grown": [1, 4], "sown": [3, 3]}), None, ())
        >>> beside(table, "grown", "trials", "sown", table.frame["grown"].to_numpy(float))
        Traceback (most recent call last):
            ...
        lamu.data.wording.DataError: 'grown' is 4 of 3 trials ('sown') in row 1 (the first is 0); give as many trials
    """
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
