"""The targets of a score, refused where the prediction is of another task or shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu import memory

__all__ = ["by_row", "nodes_at_once", "target"]

_NEEDS = {
    ("regression",): "regression (classes have accuracy and brier)",
    ("binary", "classes"): "classes (regression has rmse and crps)",
}


def target(score: str, pred: Any, y: Any, *tasks: str) -> np.ndarray:
    """Returns the targets as a NumPy array, if the score is for this prediction and these targets are its own.

    Args:
        score: the name of the score, for the message.
        pred: the prediction.
        y: the targets: `[N]`, or `[N, outputs]` for regression with several outputs.
        *tasks: the tasks that the score is for; none for all of them.

    Raises:
        ValueError: if the task is another one, the shapes differ, or there are no rows. A target of shape `[N, 1]`
            against a mean of shape `[N]` would otherwise broadcast to `[N, N]` unseen.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.scores.target import target
        >>> pred = SimpleNamespace(task="regression", mean=np.zeros(2))
        >>> target("rmse", pred, [1.0, 2.0], "regression").tolist()
        [1.0, 2.0]
    """
    if tasks and pred.task not in tasks:
        raise ValueError(f"{score} is for {_NEEDS[tasks]}, and this prediction's task is {pred.task!r}")
    y = np.asarray(y)
    shape = np.shape(pred.mean)
    expected = shape[:1] if pred.task == "classes" else shape
    if y.shape != expected:
        raise ValueError(
            f"{score} needs targets of shape {expected}, one for each prediction, and these have {y.shape}"
        )
    if y.size == 0:
        raise ValueError(f"{score} is an average over rows, and there are none; give at least one")
    return y


def by_row(values: np.ndarray) -> np.ndarray:
    """Returns the mean over the outputs of each row, `[N]`, of values `[N]` or `[N, K]`."""
    return values.reshape(len(values), -1).mean(axis=1)


def nodes_at_once(nodes: int, numbers: int) -> int:
    """Returns at how many nodes of a quadrature there is room for all rows at once; groups of one size compile once.

    Args:
        nodes: how many there are.
        numbers: targets of all rows together.
    """
    most = int(np.clip(memory.budget() // (32 * max(numbers, 1)), 8, nodes))
    return 2 ** int(np.log2(most)) if most < nodes else nodes
