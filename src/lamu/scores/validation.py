"""The targets of a score, refused where the prediction is of another task or shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu import memory
from lamu.supports import value_of

__all__ = ["by_row", "nodes_at_once", "target"]

_NEEDS = {
    False: "regression (classes have accuracy and brier)",
    True: "classes (regression has rmse and crps)",
}


def target(score: str, pred: Any, y: Any, has_classes: bool | None = None) -> np.ndarray:
    """Returns the targets as a NumPy array, if the score is for this prediction and these targets are its own."""
    # `ValueError`: if the prediction is of another kind, the shapes differ, there are no rows, a target is unknown
    # (NaN, masked), or a label is no class of the prediction. A target of shape `[N, 1]` against a mean of shape `[N]`
    # would otherwise broadcast to `[N, N]` unseen.
    y = value_of(y)
    if has_classes is not None and pred.support.has_classes is not has_classes:
        raise ValueError(f"{score} is for {_NEEDS[has_classes]}, and this prediction's task is {pred.support.task!r}")
    if np.ma.is_masked(y):
        count = int(np.ma.count_masked(y))
        raise ValueError(f"{score} needs known targets, and {count} of {y.size} are masked; leave them out")
    y = np.asarray(y)
    shape = np.shape(pred.mean)
    expected = pred.support.shape(shape)
    if y.shape != expected:
        raise ValueError(
            f"{score} needs targets of shape {expected}, one for each prediction, and these have {y.shape}"
        )
    if y.size == 0:
        raise ValueError(f"{score} is an average over rows, and there are none; give at least one")
    _require_known(score, y)
    if pred.support.has_classes:
        y = pred.support.numbers(y)
        _require_classes(score, y, 2 if len(shape) == 1 else shape[-1])
    return y


def _require_known(score: str, y: np.ndarray) -> None:
    if not np.issubdtype(y.dtype, np.floating):
        return
    unknown = int(np.sum(~np.isfinite(y)))
    if unknown:
        raise ValueError(f"{score} needs known targets, and {unknown} of {y.size} are NaN or infinite; leave them out")


def _require_classes(score: str, y: np.ndarray, count: int) -> None:
    """Labels that were not numbered from zero would be scored as those of other classes."""
    other = np.unique(y[(y != np.floor(y)) | (y < 0) | (y >= count)])
    if other.size:
        raise ValueError(
            f"{score} has labels numbered from 0 to {count - 1}, and these hold {other[0]:g}; number the "
            "classes as they were for the fit"
        )


def by_row(values: np.ndarray) -> np.ndarray:
    """Returns the mean over the outputs of each row, `[N]`, of values `[N]` or `[N, K]`."""
    return values.reshape(len(values), -1).mean(axis=1)


def nodes_at_once(nodes: int, numbers: int) -> int:
    """Returns at how many nodes of a quadrature there is room for all rows at once; groups of one size compile once."""
    most = int(np.clip(memory.budget() // (32 * max(numbers, 1)), 8, nodes))
    return 2 ** int(np.log2(most)) if most < nodes else nodes
