"""The data and the splits that the benchmarks of quality share, and how paired differences are printed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

import lamu

__all__ = ["DEVELOPMENT", "JUDGED", "UCI_JUDGED", "arrays", "folder", "paired", "seeds"]

# 80/20, stratified for classes: the seeds of lamu.data.split. Settings may be chosen on the first ten; figures are of
# the others (benchmarks/README.md).
DEVELOPMENT = tuple(range(10))
JUDGED = tuple(range(100, 110))
# Of the twenty standard splits of a UCI set: settings may be chosen on the first ten.
UCI_JUDGED = tuple(range(10, 20))


def folder() -> Path:
    """Returns the folder of the larger data sets, which LAMU_DATA names."""
    place = os.environ.get("LAMU_DATA")
    if not place or not Path(place).is_dir():
        raise SystemExit("these sets are not bundled; set LAMU_DATA to the folder that holds them")
    return Path(place)


def arrays(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of a set: bundled, of `tabular` (classes, numbered from zero) or of `uci` (regression)."""
    if name in lamu.data.names():
        x, y = lamu.data.load(name)
        return np.asarray(x, np.float64), np.asarray(y)
    uci = folder() / "uci" / f"{name}.npz"
    with np.load(uci if uci.exists() else folder() / "tabular" / f"{name}.npz") as archive:
        x, y = archive["X"].astype(np.float64), archive["y"]
    return (x, y.astype(np.float64)) if uci.exists() else (x, np.unique(y, return_inverse=True)[1].astype(np.int32))


def seeds(argument: list[str]) -> tuple[int, ...]:
    """Returns the judged splits to run: all ten, or the first few where a number is given on the command line."""
    return JUDGED[: int(argument[0])] if argument else JUDGED


def paired(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Returns the mean difference over splits with its standard error, as text."""
    difference = np.asarray(ours) - np.asarray(theirs)
    error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else float("nan")
    return f"{difference.mean():+.4f} ± {error:.4f}"
