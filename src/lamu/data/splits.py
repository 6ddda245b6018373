"""Splits of rows into training and test rows, and into folds, which keep groups together or later rows apart."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from lamu.record import record
from lamu.typing import DTypeLike, Rows

__all__ = [
    "Groups",
    "RowTimes",
    "folds_of",
    "group_codes",
    "groups_of",
    "num_groups",
    "require_folds",
    "split",
    "sums_of_groups",
]


@record
class RowTimes:
    """Groups of rows that are in an order, that of time: splits hold out later ones, or blocks of successive ones."""

    rank: Rows  # the number of each row's time, int32 `[rows]`, from the earliest on

    @classmethod
    def of(cls, time: object, rows: int, name: str = "time") -> RowTimes:
        """Returns the times of rows: numbers, dates, or text as in 2019-04-03; raises a ValueError for others."""
        values = np.asarray(time)
        if values.shape != (rows,):
            raise ValueError(f"{name} has the shape {values.shape}; pass one time a row, the shape ({rows},)")
        lacking = values != values  # NaN and NaT differ from themselves
        if values.dtype == object:
            from pandas import isna  # imported here, as numbers need none of it

            lacking = isna(values)
        if lacking.any():
            raise ValueError(
                f"{name} has no value in {lacking.sum()} of {rows} rows, first in row {int(lacking.argmax())}; give "
                "each row its time, or leave out those without"
            )
        if isinstance(values[0], str):
            try:
                values = values.astype("datetime64[us]")
            except ValueError:
                raise ValueError(
                    f"{name} is text such as {str(values[0])!r}; give numbers, dates, or text as in 2019-04-03"
                ) from None
        rank = np.unique(values, return_inverse=True)[1].astype(np.int32)
        if rank.max() == 0:
            raise ValueError(
                f"{name} is {values[0]} in all rows, so that none is later; leave it out, or add rows of other times"
            )
        return cls(rank)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.rank, dtype)

    def __getitem__(self, rows: Rows | slice) -> RowTimes:
        return RowTimes(self.rank[rows])

    def blocks(self, shares: Sequence[float]) -> np.ndarray:
        """Returns each row's block of successive times, from 0 for the earliest, of about these shares of the rows."""
        time, counts = np.unique(np.asarray(self), return_inverse=True, return_counts=True)[1:]
        ends, starts = np.append(0, np.cumsum(counts)), [0]
        for block, share in enumerate(np.cumsum(shares[:-1]), 1):
            nearest = int(np.abs(ends - share * ends[-1]).argmin())
            starts.append(min(max(nearest, starts[-1] + 1), len(counts) - len(shares) + block))
        return np.searchsorted(starts, time, side="right") - 1


Groups: TypeAlias = Rows | RowTimes
"""The group of each row, a code, or their times."""


def split(
    rows: object,
    test_size: float = 0.2,
    seed: int = 0,
    stratify: bool = False,
    groups: object = None,
    time: object = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Splits rows into training and test rows, the same way for the same seed.

    Args:
        rows: the number of rows, or the targets `[rows]`, which are needed for a stratified split.
        test_size: the share of test rows, between zero and one (rounded up to whole rows).
        seed: seed of the shuffle.
        stratify: whether to keep the share of each class in both parts.
        groups: the group of each row, `[rows]`, numbers or words; None if rows are independent. All rows of a group are
            in one part, so that the shares of rows and classes are as near to those requested as whole groups allow.
        time: the time of each row, `[rows]`, numbers or dates: the test rows are then the latest, and rows of one time
            are in one part. None if rows have no order.

    Returns:
        The indices of the training rows and of the test rows, each ascending.

    Raises:
        ValueError: if a part would be empty, a class has too few rows for both parts without groups and time, or both
            of these are given.

    Examples:
        >>> from lamu import data
        >>> train, test = data.split([0, 0, 0, 0, 1, 1, 1, 1], test_size=0.5, stratify=True)
        >>> len(train), len(test)
        (4, 4)
        >>> train, test = data.split(6, test_size=0.3, groups=["ann", "ann", "bob", "bob", "eve", "eve"])
        >>> test.tolist()
        [0, 1]
        >>> data.split(4, test_size=0.3, time=["2024-01-03", "2024-01-01", "2024-01-04", "2024-01-02"])[1].tolist()
        [0, 2]
    """
    if not 0.0 < test_size < 1.0:
        raise ValueError(f"test_size is {test_size!r}; it is the share of test rows and lies between 0 and 1")
    if isinstance(rows, int | np.integer):
        if stratify:
            raise ValueError(f"a stratified split needs the targets, not their number {rows!r}; pass y")
        classes, count = None, int(rows)
    else:
        targets = np.asarray(rows)
        classes, count = (targets if stratify else None), len(targets)
    test = math.ceil(test_size * count)
    if test >= count:
        raise ValueError(f"{count} rows with a test share of {test_size!r} leave no row to learn from; pass more rows")
    # The same splits as scikit-learn's, which takes longer to import than JAX.
    rng = np.random.RandomState(seed)
    groups = groups_of(groups, time, count)
    if isinstance(groups, RowTimes):
        later = groups.blocks([1 - test / count, test / count])
        return np.flatnonzero(later == 0), np.flatnonzero(later)
    if groups is not None:
        shares, group = _shares_of_groups(classes, group_codes(groups, count))
        held_out = _held_out_groups(shares, test / count, rng)[group]
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)
    if classes is None:
        order = rng.permutation(count)
        return np.sort(order[test:]), np.sort(order[:test])
    classes = _one_class_a_row(classes)
    labels, inverse, counts = np.unique(classes, return_inverse=True, return_counts=True)
    if counts.min() < 2:
        raise ValueError(
            f"the class {labels[counts.argmin()].item()!r} has one row, which cannot be in both parts of a split; "
            "add rows or leave that class out"
        )
    if min(test, count - test) < len(labels):
        raise ValueError(
            f"{count} rows with a test share of {test_size!r} give parts of {count - test} and {test} rows, too "
            f"few for {len(labels)} classes; change test_size or pass more rows"
        )
    trained = _shares(counts, count - test, rng)
    _shares(counts - trained, test, rng)  # for the same random numbers after it
    of_class = np.split(np.argsort(inverse, kind="stable"), np.cumsum(counts)[:-1])
    shuffled = [rows[rng.permutation(len(rows))] for rows in of_class]
    parts = [np.split(rows, [taken]) for rows, taken in zip(shuffled, trained, strict=True)]
    train_rows, test_rows = (np.sort(np.concatenate(part)) for part in zip(*parts, strict=True))
    return train_rows, test_rows


def _shares(counts: np.ndarray, draws: int, rng: np.random.RandomState) -> np.ndarray:
    """Returns how many of `draws` rows are of each class, in proportion to `counts`; ties are broken at random."""
    exact = counts / counts.sum() * draws
    taken = np.floor(exact)
    missing = int(draws - taken.sum())
    for remainder in np.unique(exact - taken)[::-1]:
        if missing == 0:
            break
        tied = np.flatnonzero(exact - np.floor(exact) == remainder)
        more = rng.choice(tied, size=min(len(tied), missing), replace=False)
        taken[more] += 1
        missing -= len(more)
    return taken.astype(int)


def _one_class_a_row(classes: np.ndarray) -> np.ndarray:
    """Returns the class of each row; of several outputs, each combination of them is one."""
    return np.array([" ".join(row.astype(str)) for row in classes]) if classes.ndim > 1 else classes


def folds_of(y: np.ndarray, folds: int, seed: int, stratify: bool, groups: object = None) -> list[np.ndarray]:
    """Returns the rows of each fold, of sizes that differ by at most one, optionally stratified.

    Args:
        y: targets `[N]` or `[N, outputs]`.
        folds: K.
        seed: seed of the shuffle.
        stratify: whether the rows of a class are dealt to the folds in turn.
        groups: the group of each row, `[N]`, numbers or words; None if rows are independent. All rows of a group are in
            one fold, and sizes and classes are then as even as whole groups allow. Of `RowTimes` each fold is a block
            of successive ones, the first fold the latest.

    Raises:
        ValueError: for fewer groups than folds.

    Examples:
        >>> import numpy as np
        >>> from lamu.folds import folds_of
        >>> labels = np.array([0, 0, 0, 1, 1, 1])
        >>> [labels[part].tolist() for part in folds_of(labels, 3, seed=0, stratify=True)]
        [[0, 1], [0, 1], [0, 1]]
        >>> [part.tolist() for part in folds_of(labels, 2, seed=0, stratify=False, groups=[7, 7, 8, 8, 8, 7])]
        [[0, 1, 5], [2, 3, 4]]
    """
    rng = np.random.default_rng(seed)
    if groups is not None:
        require_folds(folds, len(y), groups)
        if isinstance(groups, RowTimes):
            block = groups.blocks([1 / folds] * folds)
            return [np.flatnonzero(block == k) for k in reversed(range(folds))]
        groups = group_codes(groups, len(y))
        shares, group = _shares_of_groups(np.asarray(y) if stratify else None, groups)
        fold = _dealt(shares, folds, rng)[group]
        return [np.flatnonzero(fold == k) for k in range(folds)]
    order = rng.permutation(len(y))
    if stratify:
        order = order[np.argsort(y[order], kind="stable")]
    return [np.sort(order[k::folds]) for k in range(folds)]


def require_folds(folds: int, rows: int, groups: object) -> None:
    """Raises a ValueError for fewer than two folds, or more than there are rows or groups to divide."""
    units, name = (rows, "rows") if groups is None else (num_groups(groups, rows), "groups")
    name = "times" if isinstance(groups, RowTimes) else name
    if not 2 <= folds <= units:
        raise ValueError(f"folds={folds!r} cannot be made of {units} {name}; give a number from 2 to the {name}")


def num_groups(groups: object, rows: int) -> int:
    """Returns the number of groups; raises a ValueError where one group has all rows."""
    count = len(np.unique(group_codes(groups, rows)))
    if count < 2:
        raise ValueError(
            "groups is the same in all rows, so that no row is left to judge by; leave groups out where the rows are "
            "independent, or add rows of other groups"
        )
    return count


def groups_of(groups: object, time: object, rows: int) -> Groups | None:
    """Returns the groups of rows as codes, or their times; None without both."""
    if groups is not None and time is not None:
        raise ValueError(
            "groups and time are both given, which hold out whole groups or later rows; give groups to predict new "
            "groups, and time to predict later rows of the same ones"
        )
    if time is not None:
        return RowTimes.of(time, rows)
    return groups if groups is None or isinstance(groups, RowTimes) else group_codes(groups, rows)


def group_codes(groups: Any, rows: int) -> np.ndarray:
    """Returns the groups of rows as int32 `[rows]`, equal for equal values, also in other shares of the rows."""
    values = np.asarray(np.ma.filled(groups.astype(object), None) if np.ma.isMaskedArray(groups) else groups)
    if values.shape != (rows,):
        raise ValueError(f"groups has the shape {values.shape}; pass one group a row, the shape ({rows},)")
    if values.dtype.kind in "iu" and np.array_equal(values.astype(np.int32), values):
        return values.astype(np.int32)
    from pandas import factorize  # imported here, as whole numbers need none of it

    codes, names = factorize(values)
    if (codes < 0).any():
        raise ValueError(
            f"groups has no value in {np.sum(codes < 0)} of {rows} rows, first in row {int(np.argmin(codes))}; give "
            "each row its group, for instance a new one where it stands alone"
        )
    # Equal hashes of two groups, with 10,000 groups once in a hundred tables, only keep these two together.
    return np.array([zlib.crc32(str(name).encode()) for name in names], np.uint32).view(np.int32)[codes]


def sums_of_groups(values: np.ndarray, groups: Groups | None) -> np.ndarray:
    """Returns the sums of values over the rows of each group, `[groups]`; the values where rows are independent."""
    return values if groups is None else np.bincount(np.unique(groups, return_inverse=True)[1], values)


def _shares_of_groups(classes: np.ndarray | None, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns each group's shares of all rows and of the rows of each class, and the number of each row's group."""
    num_groups(groups, len(groups))
    group = np.unique(groups, return_inverse=True)[1]
    columns = [group] if classes is None else [group, np.unique(_one_class_a_row(classes), return_inverse=True)[1]]
    counts = np.zeros([column.max() + 1 for column in columns])
    np.add.at(counts, tuple(columns), 1.0)
    counts = counts.reshape(len(counts), -1)
    counts = np.column_stack([counts.sum(axis=1), counts])
    return counts / counts.sum(axis=0), group


def _alike(shares: np.ndarray, rng: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the groups in random order, those of equal shares together, and of each its place and number of these."""
    order = rng.permutation(len(shares))
    order = order[np.lexsort(shares[order].T)]
    first = np.flatnonzero(np.append(True, (np.diff(shares[order], axis=0) != 0).any(axis=1)))
    counts = np.diff(first, append=len(order))
    return order, np.arange(len(order)) - np.repeat(first, counts), np.repeat(counts, counts)


def _held_out_groups(shares: np.ndarray, share: float, rng: np.random.RandomState) -> np.ndarray:
    """Returns which groups are held out: at random, each that brings all shares nearer to the requested one."""
    # A class of few groups has a whole number of them held out, rounded at random: else none of two ever was. A group
    # that has all rows of a class is not.
    groups = np.sum(shares > 0, axis=0)
    missing = np.floor(share * groups + rng.uniform(size=len(groups))) / groups
    missing[0], missing[groups < 2] = share, 0.0
    distances = lambda groups: np.sum((missing - groups) ** 2, axis=-1)
    # Of equal groups the share is held out, rounded down, and one more where it brings the shares nearer.
    order, place, alike = _alike(shares, rng)
    held_out, candidates = np.zeros(len(shares), bool), rng.permutation(order[place == np.floor(share * alike)])
    held_out[order[place < np.floor(share * alike)]] = True
    missing = missing - shares[held_out].sum(axis=0)
    left = np.sum(~held_out)
    for group in candidates:
        if left > 1 and distances(shares[group]) < distances(0.0):
            held_out[group], missing, left = True, missing - shares[group], left - 1
    if not held_out.any():  # all groups are large
        held_out[candidates[np.argmin(distances(shares[candidates]))]] = True
    return held_out


def _dealt(shares: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Returns the fold of each group: the largest first, each to the fold with the least of its rows and classes."""
    # The least sum of squares of the folds' shares after each group, as scikit-learn's `StratifiedGroupKFold`. Of equal
    # groups each fold has as many, and only the others are dealt one by one.
    order, place, alike = _alike(shares, rng)
    fold, totals = np.zeros(len(shares), int), np.zeros((folds, shares.shape[1]))
    fold[order] = place % folds
    order = rng.permutation(order[place >= alike - alike % folds])
    for group in order[np.argsort(-shares[order].max(axis=1), kind="stable")]:
        fold[group] = np.argmin(totals @ shares[group])
        totals[fold[group]] += shares[group]
    return fold
