"""Splits of rows into training and test rows, and into folds, which keep the rows of a group together."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

from lamu.typing import Rows

__all__ = ["folds_of", "group_codes", "num_groups", "require_folds", "split", "sums_of_groups"]


def split(
    rows: object, test_size: float = 0.2, seed: int = 0, stratify: bool = False, groups: object = None
) -> tuple[np.ndarray, np.ndarray]:
    """Splits rows into training and test rows, the same way for the same seed.

    Args:
        rows: the number of rows, or the targets `[rows]`, which are needed for a stratified split.
        test_size: the share of test rows, between zero and one (rounded up to whole rows).
        seed: seed of the shuffle.
        stratify: whether to keep the share of each class in both parts.
        groups: the group of each row, `[rows]`, numbers or words; None if rows are independent. All rows of a group are
            in one part, so that the shares of rows and classes are as near to those requested as whole groups allow.

    Returns:
        The indices of the training rows and of the test rows, each ascending.

    Raises:
        ValueError: if a part would be empty, or, without groups, a class has too few rows for both parts.

    Examples:
        >>> from lamu import data
        >>> train, test = data.split([0, 0, 0, 0, 1, 1, 1, 1], test_size=0.5, stratify=True)
        >>> len(train), len(test)
        (4, 4)
        >>> train, test = data.split(6, test_size=0.3, groups=["ann", "ann", "bob", "bob", "eve", "eve"])
        >>> test.tolist()
        [0, 1]
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
            one fold, and sizes and classes are then as even as whole groups allow.

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
        groups = group_codes(groups, len(y))
        require_folds(folds, len(y), groups)
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


def sums_of_groups(values: np.ndarray, groups: Rows | None) -> np.ndarray:
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


def _held_out_groups(shares: np.ndarray, share: float, rng: np.random.RandomState) -> np.ndarray:
    """Returns which groups are held out: at random, each that brings all shares nearer to the requested one."""
    # A class of few groups has a whole number of them held out, rounded at random: else none of two ever was. A group
    # that has all rows of a class is not.
    groups = np.sum(shares > 0, axis=0)
    missing, held_out = np.floor(share * groups + rng.uniform(size=len(groups))) / groups, np.zeros(len(shares), bool)
    missing[0], missing[groups < 2] = share, 0.0
    distances = lambda groups: np.sum((missing - groups) ** 2, axis=-1)
    order = rng.permutation(len(shares))
    for group in order[:-1]:
        if distances(shares[group]) < distances(0.0):
            held_out[group], missing = True, missing - shares[group]
    if not held_out.any():  # all groups are large
        held_out[order[np.argmin(distances(shares[order]))]] = True
    return held_out


def _dealt(shares: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Returns the fold of each group: the largest first, each to the fold with the least of its rows and classes."""
    # The least sum of squares of the folds' shares after each group, as scikit-learn's `StratifiedGroupKFold`.
    order = rng.permutation(len(shares))
    order = order[np.argsort(-shares[order].max(axis=1), kind="stable")]
    fold, totals = np.zeros(len(shares), int), np.zeros((folds, shares.shape[1]))
    for group in order:
        fold[group] = np.argmin(totals @ shares[group])
        totals[fold[group]] += shares[group]
    return fold
