"""Warnings about leaks: features that determine the target, and test rows that are also training rows."""

from __future__ import annotations

import numpy as np

from lamu.data.copies import row_hashes
from lamu.data.table import Table
from lamu.data.wording import listed, plural

__all__ = ["leaks"]

_ROWS_A_LEVEL = 5  # with fewer rows per category, one class for each category is no surprise
_EXACT = 1e-9  # of a correlation
_FEWEST = 30
_TOLD_APART = 0.5  # share of the pairs of rows with two targets that an ordered feature must distinguish
_GLANCE = 1000  # rows that are checked first, which rules out nearly every feature
_CHANCE = 1e-6  # probability that categories have one target each by chance


def leaks(table: Table, train: np.ndarray, test: np.ndarray) -> tuple[str, ...]:
    """Returns one sentence for each leak that inflates the scores; nothing is changed."""
    # A feature determines the target if it is an affine function of it, or, for classes, if one interval of its values,
    # or a set of its categories, is each class. A feature is ordered like a number if no two rows have it and
    # the target in opposite orders, as its logarithm, its rounding, or any monotone function of it; and a category
    # determines a number if all rows of each category have one target. Rows repeat if features and target are equal
    # to the last digit.
    y = np.asarray(table.y, float)[train]
    regression = table.encoding.task == "regression"
    perfect, ordered = [], []
    for index, (name, levels) in enumerate(zip(table.encoding.names, table.encoding.cardinalities, strict=True)):
        if len(y) < _FEWEST:
            break
        column = table.x[train, index]
        if _determines(column, y, levels, regression):
            perfect.append(name)
        elif regression and not levels and _in_order(column, y):
            ordered.append(name)
    target = repr(table.encoding.target)
    notes = []
    if perfect:
        verb = "predicts" if len(perfect) == 1 else "predict"
        notes.append(f"the {plural('feature', perfect)} {listed(perfect)} {verb} {target} perfectly; {_leave(perfect)}")
    if ordered:
        verb = "stands" if len(ordered) == 1 else "stand"
        notes.append(
            f"the {plural('feature', ordered)} {listed(ordered)} {verb} in the order of {target} without exception, as "
            f"a copy of it in another unit would; {_leave(ordered)}"
        )
    beside = [column for name, column in table.beside.items() if name != "groups"]
    marks = row_hashes([*table.x.T, np.asarray(table.y, float), *beside])
    # A row in both parts, each with some of its cases, is no repetition.
    parted = np.isin(table.numbers[test], table.numbers[train])
    repeated = int((np.isin(marks[test], marks[train]) & ~parted).sum())
    if repeated:
        notes.append(
            f"{repeated} of {len(test)} test rows stand among the training rows too, features and target alike, so "
            "that the scores flatter; drop duplicates if they are not rows of their own"
        )
    return tuple(notes)


def _leave(names: list[str]) -> str:
    single = len(names) == 1
    return (
        f"leave {'it' if single else 'them'} out if {'it is' if single else 'they are'} not known before the target is"
    )


def _determines(column: np.ndarray, y: np.ndarray, levels: int, regression: bool) -> bool:
    """Returns whether one column determines the target."""
    if column.min() == column.max():
        return False
    if regression and not levels:
        return bool(np.unique(y[:_GLANCE]).size > 2 and abs(np.corrcoef(column, y)[0, 1]) > 1 - _EXACT)
    order = np.lexsort((y, column))
    same, differs = np.diff(column[order]) == 0, np.diff(y[order]) != 0
    if (same & differs).any():
        return False
    if regression:
        # Each row after the first of its category must have the same target.
        shares = np.unique(y, return_counts=True)[1] / len(y)
        return bool(same.sum() * np.log(np.sum(shares**2)) < np.log(_CHANCE))
    if levels:
        return bool(np.unique(column, return_counts=True)[1].min() >= _ROWS_A_LEVEL)
    return int(differs.sum()) == len(np.unique(y)) - 1


def _in_order(column: np.ndarray, y: np.ndarray) -> bool:
    """Returns whether column and target have the same or the opposite order, and the column has enough values."""
    if column.min() == column.max() or np.unique(y[:_GLANCE]).size < 3:
        return False
    if not (_is_monotone(column, y) or _is_monotone(column, -y)):
        return False
    pairs = lambda values: 1 - np.sum((np.unique(values, return_counts=True)[1] / len(values)) ** 2)
    return bool(pairs(column) >= _TOLD_APART * pairs(y))


def _is_monotone(column: np.ndarray, y: np.ndarray) -> bool:
    """Returns whether no two rows have the column and y in opposite orders."""
    if len(y) > _GLANCE and not _is_monotone(column[:_GLANCE], y[:_GLANCE]):
        return False
    return bool((np.diff(y[np.lexsort((y, column))]) >= 0).all())
