"""What makes scores flatter than they are: a feature that is the target, and test rows that were learned from."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.data.table import Table
from lamu.data.wording import listed, plural

__all__ = ["leaks"]

_ROWS_A_LEVEL = 5  # fewer rows of a category, and that each category has one class is no surprise
_EXACT = 1e-9  # of a correlation
_FEWEST = 30


def leaks(table: Table, train: Any, test: Any) -> tuple[str, ...]:
    """Returns one sentence for each thing that flatters the scores; nothing is changed.

    A feature says the target where it is an affine function of it, or, of classes, where one interval of its values,
    or a set of its categories, is each class. Rows repeat where features and target are the same to the last digit.

    Args:
        table: the table, as its training rows encode it.
        train: the training rows.
        test: the test rows.

    Examples:
        >>> import numpy as np
        >>> from dataclasses import replace
        >>> from lamu.data import split, table
        >>> from lamu.data.leaks import leaks
        >>> read = table.read("diabetes")
        >>> train, test = split(len(read.x))
        >>> leaks(read, train, test)
        ()
        >>> x = np.column_stack([read.x[:, :9], 3.0 * read.y + 1.0])
        >>> leaks(replace(read, x=x), train, test)[0]
        "the feature 's6' predicts 'target' perfectly; leave it out if it is not known before the target is"
    """
    x, y = table.x[train], np.asarray(table.y)[train]
    encoding = table.encoding
    perfect = [
        name
        for column, name, levels in zip(x.T, encoding.names, encoding.cardinalities, strict=True)
        if len(y) >= _FEWEST and _says(column, y, levels, encoding.task == "regression")
    ]
    notes = []
    if perfect:
        notes.append(
            f"the {plural('feature', perfect)} {listed(perfect)} {'predicts' if len(perfect) == 1 else 'predict'} "
            f"{encoding.target!r} perfectly; leave {'it' if len(perfect) == 1 else 'them'} out if "
            f"{'it is' if len(perfect) == 1 else 'they are'} not known before the target is"
        )
    rows = np.column_stack([table.x, np.asarray(table.y, float)])
    known = {row.tobytes() for row in rows[train]}
    repeated = sum(row.tobytes() in known for row in rows[test])
    if repeated:
        notes.append(
            f"{repeated} of {len(test)} test rows stand among the training rows too, features and target alike, so "
            "that the scores flatter; drop duplicates if they are not rows of their own"
        )
    return tuple(notes)


def _says(column: np.ndarray, y: np.ndarray, levels: int, regression: bool) -> bool:
    """Whether one column decides the target."""
    if len(np.unique(column)) < 2:
        return False
    if regression:
        return not levels and len(np.unique(y)) > 2 and bool(abs(np.corrcoef(column, y)[0, 1]) > 1 - _EXACT)
    if levels:
        kinds, counts = np.unique(column, return_counts=True)
        return bool(counts.min() >= _ROWS_A_LEVEL) and all(len(np.unique(y[column == each])) == 1 for each in kinds)
    order = np.lexsort((y, column))
    tied = (np.diff(column[order]) == 0) & (np.diff(y[order]) != 0)
    return not bool(tied.any()) and int((np.diff(y[order]) != 0).sum()) == len(np.unique(y)) - 1
