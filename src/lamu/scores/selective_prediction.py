"""Whether doubt is raised where it should be: on rows of another kind, and on rows that are then wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lamu.scores.validation import target

__all__ = ["RiskCoverage", "aurc", "auroc", "risk_coverage"]


def auroc(known: Any, unknown: Any) -> float:
    r"""Returns how often a row of another kind raises more doubt than a known one.

    \[ \frac{1}{N M} \sum_{i=1}^N \sum_{j=1}^M \mathbf 1[u_i < v_j] + \tfrac12 \mathbf 1[u_i = v_j] \]

    the area under the curve of true against false alarms (Hendrycks & Gimpel 2017). The doubt is whatever one chooses:
    `pred.total` or `pred.epistemic`, or one less the largest probability.

    Args:
        known: doubts u about rows like those of training, `[N]`.
        unknown: doubts v about rows of another kind, `[M]`.

    Returns:
        A fraction, 0 to 1: one half where doubt tells nothing, one where it tells all.

    Raises:
        ValueError: for arrays that are not one number a row, empty ones, or NaN.

    Examples:
        >>> from lamu.scores import auroc
        >>> auroc([0.1, 0.2, 0.6], [0.5, 0.9])
        0.8333333333333334
    """
    u, v = (np.asarray(doubts, float) for doubts in (known, unknown))
    for name, doubts in (("known", u), ("unknown", v)):
        if doubts.ndim != 1 or not doubts.size:
            raise ValueError(f"{name} has the shape {doubts.shape}; give one number a row, for instance pred.total")
        if np.isnan(doubts).any():
            raise ValueError(f"{name} holds NaN in {int(np.isnan(doubts).sum())} rows; their doubt cannot be ranked")
    ordered = np.sort(u)
    below = np.searchsorted(ordered, v, side="left") + np.searchsorted(ordered, v, side="right")
    return float(np.mean(below) / 2 / len(u))


@dataclass(frozen=True)
class RiskCoverage:
    """The mean error among the rows about which there is least doubt, for every share of them.

    Attributes:
        share: the share of rows that is kept, `[N]`, rising to one.
        risk: their mean error, `[N]`: the fraction of wrong labels, or the mean square in the target's units.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import risk_coverage
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.9, 0.6]), total=np.array([0.3, 0.7]))
        >>> risk_coverage(pred, np.array([1, 0])).risk.tolist()
        [0.0, 0.5]
    """

    share: np.ndarray
    risk: np.ndarray


def risk_coverage(pred: Any, y: Any, doubt: Any = None) -> RiskCoverage:
    """Returns the error among the rows that are kept, where the most doubtful are left to somebody else.

    Rows of equal doubt share their mean error, so that it does not count which of them comes first.

    Args:
        pred: a prediction of any task; of a regression with one output.
        y: targets, `[N]`.
        doubt: one number a row, `[N]`, by which rows are ranked; `pred.total` where none is given.

    Returns:
        Shares and errors.

    Raises:
        ValueError: if the shapes differ.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import Real
        >>> from lamu.scores import risk_coverage
        >>> pred = SimpleNamespace(support=Real(), mean=np.array([0.0, 0.0]), total=np.array([2.0, 1.0]))
        >>> risk_coverage(pred, np.array([3.0, 1.0])).risk.tolist()
        [1.0, 5.0]
    """
    y = target("risk_coverage", pred, y)
    if y.ndim != 1:
        raise ValueError(f"risk_coverage ranks rows with one target, and these have the shape {y.shape}")
    mean = np.asarray(pred.mean, float)
    if not pred.support.has_classes:
        error = (mean - y) ** 2
    else:
        label = pred.support.labels(mean)
        error = (label.astype(int) != y.astype(int)).astype(float)
    ranked = np.asarray(pred.total if doubt is None else doubt, float)
    if ranked.shape != y.shape:
        raise ValueError(f"doubt has the shape {ranked.shape}, and there are {len(y)} rows; give one number a row")
    _, group = np.unique(ranked, return_inverse=True)
    averaged = (np.bincount(group, weights=error) / np.bincount(group))[group]  # ties share their error
    kept = np.arange(1, len(y) + 1)
    return RiskCoverage(kept / len(y), np.cumsum(averaged[np.argsort(ranked, kind="stable")]) / kept)


def aurc(pred: Any, y: Any, doubt: Any = None) -> float:
    """Returns the area under the risk–coverage curve: the mean of its risks.

    Args:
        pred: a prediction of any task; of a regression with one output.
        y: targets, `[N]`.
        doubt: one number a row, `[N]`; `pred.total` where none is given.

    Returns:
        An error, in the units of `risk_coverage`; lower is better.

    Raises:
        ValueError: if the shapes differ.

    Source: Geifman, Uziel & El-Yaniv (2019).

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import aurc
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.9, 0.6]), total=np.array([0.3, 0.7]))
        >>> aurc(pred, np.array([1, 0]))
        0.25
    """
    return float(np.mean(risk_coverage(pred, y, doubt).risk))
