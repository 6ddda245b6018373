"""Copies of rows, which are repeated or have a whole weight, and whether folds may separate them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import jax
import numpy as np

from lamu.data.arrays import Arrays
from lamu.data.imputation import mixed
from lamu.supports import value_of

__all__ = ["are_cells", "cases", "copies_apart", "copies_together", "repeats", "row_hashes", "seen_rows"]

# Copies may be cases, of a table of frequencies or of few values: then a new row is a copy too, and a fold with all
# cases of a target in a cell leaves the others to be learned as if the cell had no such target. Or they stand for the
# importance of a row that no new row equals: then copies on both sides of a fold reward what knows rows by heart.
# Weights of two for a tenth, a quarter, a half and all rows of diabetes cost new rows .01, .3, 1.0 and 3.0 nats.


_MOST_REPEATED = 100_000  # rows, beyond which copies are fewer and have larger weights
# Up to this share of the rows copies are as they happen to be, and a test set has them too: of wine_red, with .15, rows
# of a test set have .1 to .8 nats less with copies apart, and those that are no copies .03 to .12 more.
_CHANCE = 0.2
_GLANCE = 32  # columns that are read first: in most tables they tell that no row has a copy


def copies_together(rows: Arrays) -> Arrays:
    """Returns the rows with the copies of each as a group, unless they have groups or folds may separate copies."""
    if rows.groups is not None:
        return rows
    y = np.column_stack([np.asarray(leaf).reshape(rows.count, -1) for leaf in jax.tree.leaves((rows.y, rows.offset))])
    x = np.asarray(rows.x).reshape(rows.count, -1)
    glance = np.linspace(0, max(x.shape[1] - 1, 0), min(x.shape[1], _GLANCE)).astype(int)
    marks = row_hashes([*y.T, *x[:, glance].T])
    _, row, times = np.unique(marks, return_inverse=True, return_counts=True)
    alike = np.flatnonzero(times[row] > 1)
    marks[alike] = row_hashes([*y[alike].T, *x[alike].T])
    _, first, row = np.unique(marks, return_index=True, return_inverse=True)
    times = np.bincount(row, repeats(np.asarray(rows.weight, float), np.ones(rows.count)))
    if len(first) in (1, rows.count) or copies_apart(times, np.bincount(row), x[first], y[first]):
        return rows
    return replace(rows, groups=jax.device_put(row.astype(np.int32)))


def cases(rows: Arrays) -> Arrays:
    """Returns the rows that folds divide: copies of a row as rows of their own, or as one row of their weight."""
    # Equal rows of two groups are no copies: the groups say which rows are independent.
    x, y = np.asarray(rows.x).reshape(rows.count, -1), np.asarray(value_of(rows.y)).reshape(rows.count, -1)
    offset = () if rows.offset is None else np.asarray(rows.offset).reshape(rows.count, -1).T
    groups = () if rows.groups is None else (np.asarray(rows.groups),)
    marks, weight = row_hashes([*x.T, *y.T, *offset, *groups]), np.asarray(rows.weight, float)
    times = repeats(weight, np.ones(rows.count))
    _, first, row = np.unique(marks[weight > 0], return_index=True, return_inverse=True)
    first = np.flatnonzero(weight > 0)[first]
    if copies_apart(np.bincount(row, times[weight > 0]), np.bincount(row), x[first], y[first]):
        written = np.repeat(np.arange(rows.count), times)
        weight = (weight / np.maximum(times, 1))[written]
    else:
        order = np.argsort(first)
        written, weight = first[order], np.bincount(row, weight[weight > 0])[order]
    if np.array_equal(written, np.arange(rows.count)):
        return rows
    return replace(rows.take(written), weight=weight.astype(rows.weight.dtype))


def repeats(weight: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Returns the number of copies of each row, so that folds can separate them; zero for rows without weight."""
    # Whole weights count copies. Other weights are a row's importance: it has as many copies as in the input.
    times = np.where(weight > 0, weight if (weight == np.rint(weight)).all() else given, 0.0)
    return np.ceil(times * min(1.0, _MOST_REPEATED / times.sum())).astype(int)


def copies_apart(times: np.ndarray, given: np.ndarray, x: np.ndarray, y: np.ndarray) -> bool:
    """Whether folds may separate the copies of distinct rows: cases of cells, or few that are in the input."""
    # `times`: the copies of each row by its weight; `given`: those in the input.
    few = (times == given).all() and 1 - len(times) / times.sum() <= _CHANCE
    return bool(few) or are_cells(x, y)


def are_cells(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether half or more of the distinct rows have the features of a row with another target."""
    features = row_hashes(x.reshape(len(x), -1).T) if x.size else np.zeros(len(x), np.uint64)  # all rows have none
    _, first = np.unique(row_hashes([features, *y.reshape(len(y), -1).T]), return_index=True)
    targets = np.unique(features[first], return_counts=True)[1]
    return bool(targets[targets > 1].sum() >= len(first) / 2)


def seen_rows(rows: Sequence[np.ndarray], training: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the numbers of the rows that are training rows too; none where copies within these explain them."""
    # Rows are given by their parts, `[N, columns]` each, such as inputs and targets: joined they would be copied.
    # A table with repeated rows has equal rows on both sides of any split: as many as the share of training rows with a
    # copy explains, plus three standard errors.
    if [part.shape[1] for part in rows] != [part.shape[1] for part in training]:
        return np.zeros(0, int)
    places = [np.linspace(0, part.shape[1] - 1, min(part.shape[1], _GLANCE)).astype(int) for part in rows]
    glance = lambda parts: row_hashes(c for part, some in zip(parts, places, strict=True) for c in part[:, some].T)
    whole = lambda parts, chosen: row_hashes(c for part in parts for c in part[chosen].T)
    ours, theirs = glance(rows), glance(training)
    times = np.unique(theirs, return_counts=True)[1]
    repeated, alike = float(np.sum(times[times > 1]) / len(theirs)), np.flatnonzero(np.isin(ours, theirs))
    alike = alike[np.isin(whole(rows, alike), whole(training, np.isin(theirs, ours)))]
    explained = len(ours) * repeated + 3 * math.sqrt(len(ours) * repeated * (1 - repeated))
    return alike if len(alike) > explained else alike[:0]


def row_hashes(columns: Iterable[np.ndarray]) -> np.ndarray:
    """Returns 64-bit hashes of rows, `[rows]`, which identify equal rows: collisions occur once in 1e19 pairs."""
    mark = np.uint64(0)
    for column in columns:
        bits = column if column.dtype == np.uint64 else np.ascontiguousarray(column, np.float64).view(np.uint64)
        mark = mixed(mark ^ bits)
    return np.asarray(mark)
