"""A prediction as the columns of a file, and as scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu import scores
from lamu.data import TargetEncoding

__all__ = ["LEVEL", "columns", "score"]

LEVEL = 0.9  # the probability of the intervals that are written


def columns(pred: Any, rows: Any, y: Any, encoding: TargetEncoding) -> dict[str, np.ndarray]:
    """Returns a prediction as named columns, in the original units and labels.

    Args:
        pred: what `posterior.predict` returned.
        rows: the number of each row in its table, `[rows]`; the first row of data is 0.
        y: the targets as numbers, `[rows]`, or None where they are not known.
        encoding: the meaning of the numbers.

    Returns:
        `row`; `target` where it is known; `mean`, `lower`, `upper` for regression, or `prediction` and one `p_<label>`
        a class; `log_prob`, in nats, where the target is known.
    """
    table: dict[str, np.ndarray] = {"row": np.asarray(rows)}
    if y is not None:
        table["target"] = encoding.decode(y)
    if encoding.task == "regression":
        lower, upper = pred.interval(LEVEL)
        table |= {"mean": np.asarray(pred.mean), "lower": np.asarray(lower), "upper": np.asarray(upper)}
    else:
        mean = np.asarray(pred.mean)
        probabilities = np.stack([1 - mean, mean], axis=1) if encoding.task == "binary" else mean
        table["prediction"] = encoding.decode(probabilities.argmax(axis=1))
        table |= {f"p_{label}": probabilities[:, index] for index, label in enumerate(encoding.labels)}
    if y is not None:
        table["log_prob"] = np.asarray(pred.log_prob(y))
    return table


def score(pred: Any, y: Any) -> dict[str, float]:
    """Returns the scores that suit the task: how right, how probable (nats a row), how well calibrated.

    Args:
        pred: what `posterior.predict` returned.
        y: the targets as numbers, `[rows]`.

    Returns:
        `rmse`, `nll` and `coverage` of the 90 % interval for regression; `accuracy`, `nll` and `ece` otherwise.
    """
    if pred.task == "regression":
        return {
            "rmse": float(scores.rmse(pred, y)),
            "nll": float(scores.nll(pred, y)),
            "coverage": float(scores.coverage(pred, y, LEVEL)),
        }
    return {
        "accuracy": float(scores.accuracy(pred, y)),
        "nll": float(scores.nll(pred, y)),
        "ece": float(scores.ece(pred, y)),
    }
