"""How far the predicted mean is from the target: in labels, in probability, in the target's units."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.scores.validation import by_row, target

__all__ = ["accuracy", "brier", "right", "rmse", "squared_distance", "squared_error"]


def accuracy(pred: Any, y: Any) -> float:
    r"""Returns the fraction of rows whose most probable label is the true one.

    \[ \frac1N \sum_i \mathbf 1[\hat y_i = y_i], \qquad \hat y_i = \arg\max_k p_{ik} \]

    For a binary target the label is one where \(p_i > 1/2\). Of equally probable classes the first counts.

    Args:
        pred: a prediction of classes, or of a binary target.
        y: labels, `[N]`.

    Returns:
        A fraction, 0 to 1; higher is better.

    Raises:
        ValueError: if the prediction is of a regression, or the shapes differ.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import accuracy
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.9, 0.2, 0.7, 0.1]))
        >>> accuracy(pred, np.array([1, 0, 0, 0]))
        0.75
    """
    return float(np.mean(right(pred, y)))


def right(pred: Any, y: Any) -> np.ndarray:
    """Returns 1 where a row's most probable label is the true one, else 0, `[N]`, whose mean is `accuracy`."""
    y = target("accuracy", pred, y, has_classes=True)
    label = pred.support.labels(np.asarray(pred.mean, float))
    return (label == y).astype(float)


def brier(pred: Any, y: Any) -> float:
    r"""Returns the Brier score, the mean squared distance of the probabilities from the outcome.

    \[ \text{classes: } \frac1N \sum_i \sum_k (p_{ik} - \mathbf 1[y_i = k])^2, \qquad
       \text{binary: } \frac1N \sum_i (p_i - y_i)^2 \]

    The sum over classes is Brier's own (1950, eq. 2), so that two classes score twice what the same prediction scores
    as a binary one, by the convention of scikit-learn too.

    Args:
        pred: a prediction of classes, or of a binary target.
        y: labels, `[N]`.

    Returns:
        A squared probability, 0 to 2 for classes, 0 to 1 for a binary target; lower is better.

    Raises:
        ValueError: if the prediction is of a regression, or the shapes differ.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import Classes
        >>> from lamu.scores import brier
        >>> brier(SimpleNamespace(support=Classes(3), mean=np.array([[0.5, 0.5, 0.0]])), np.array([0]))
        0.5
    """
    return float(np.mean(squared_distance(pred, y)))


def squared_distance(pred: Any, y: Any) -> np.ndarray:
    """Returns the squared distance of each row's probabilities from its outcome, `[N]`, whose mean is `brier`."""
    y = target("brier", pred, y, has_classes=True)
    p = np.asarray(pred.mean, float)
    if p.ndim == 1:
        return (p - y) ** 2
    outcome = y[:, None] == np.arange(p.shape[1])[None]
    return np.sum((p - outcome) ** 2, axis=-1)


def rmse(pred: Any, y: Any) -> float:
    r"""Returns the root mean squared error of the predicted mean, over rows and outputs alike.

    \[ \sqrt{\frac1{NK} \sum_{ik} (E[y_{ik}] - y_{ik})^2} \]

    Args:
        pred: a prediction of a regression.
        y: targets, `[N]` or `[N, K]`.

    Returns:
        An error in the target's units; lower is better.

    Raises:
        ValueError: if the prediction is of classes, or the shapes differ.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import Real
        >>> from lamu.scores import rmse
        >>> rmse(SimpleNamespace(support=Real(), mean=np.zeros(2)), np.array([3.0, -3.0]))
        3.0
    """
    return float(np.sqrt(np.mean(squared_error(pred, y))))


def squared_error(pred: Any, y: Any) -> np.ndarray:
    """Returns the squared error of each row, the mean of its outputs', `[N]`, whose mean is the square of `rmse`."""
    y = target("rmse", pred, y, has_classes=False)
    return by_row((np.asarray(pred.mean, float) - y) ** 2)
