"""Selective prediction: answer the rows for which a small error is guaranteed, and defer the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lamu.base.arguments import whole_number
from lamu.data.copies import seen_rows
from lamu.scores.proper_scores import right, target
from lamu.typing import Prediction, Targets

__all__ = ["Selective", "require_unseen", "selective"]


def require_unseen(calibration: object, training: object) -> None:
    """Raises a ValueError if calibration rows occur among the training rows.

    Rows are equal if features and target agree bit for bit. A table with repeated rows has equal rows on both
    sides of any split: the number allowed is the one that the share of training rows with a duplicate in training
    explains, plus three standard errors.

    Args:
        calibration: `(x, y)`, the calibration rows.
        training: `(x, y)`, the training rows.

    Raises:
        ValueError: if they overlap, or have different features.

    Examples:
        >>> import numpy as np
        >>> from lamu.calibration import require_unseen
        >>> x, y = np.arange(6.0)[:, None], np.arange(6.0)
        >>> require_unseen((x[4:], y[4:]), (x[:4], y[:4]))
        >>> require_unseen((x[3:], y[3:]), (x[:4], y[:4]))
        Traceback (most recent call last):
            ...
        ValueError: 1 of 3 rows to calibrate on are rows of training too, the first one row 0; calibrate on others
    """
    ours = _numbers(calibration)
    shared = seen_rows(ours, _numbers(training))
    if len(shared):
        raise ValueError(
            f"{len(shared)} of {len(ours[0])} rows to calibrate on are rows of training too, the first one row "
            f"{shared[0]}; calibrate on others"
        )


def _numbers(rows: Any) -> list[np.ndarray]:
    """Returns features and targets, `[N, columns]` each."""
    x, y = (np.asarray(part) for part in rows)
    if len(x) != len(y) or not len(x):
        raise ValueError(f"the rows have features of shape {x.shape} and targets of shape {y.shape}; give one of each")
    # One dtype: equal numbers in different dtypes are equal rows.
    return [part.reshape(len(x), -1).astype(np.float32, copy=False) for part in (x, y)]


# Rows are ranked by doubt. Of held-out rows, those below the z-th smallest doubt are z − 1 independent draws of the
# rows that such a threshold would answer, so that their errors are binomial, and an upper confidence bound on the
# error of all new rows follows exactly (Clopper & Pearson 1934).


@dataclass(frozen=True)
class Selective:
    """A threshold on doubt, with its error bound.

    Attributes:
        threshold: rows with less doubt than this are answered.
        risk: the requested error.
        bound: the upper bound on the error among answered rows.
        share: the share of the held-out rows that is answered.
        confidence: the probability with which the bound holds.

    Examples:
        >>> from lamu.calibration import Selective
        >>> Selective(0.5, 0.1, 0.08, 0.7, 0.95).answers([0.2, 0.9]).tolist()
        [True, False]
    """

    threshold: float
    risk: float
    bound: float
    share: float
    confidence: float

    def answers(self, doubt: object) -> np.ndarray:
        """Returns which rows are answered, `[N]` of booleans.

        Args:
            doubt: one number per row, of the same kind as in calibration; or a prediction, whose `total` it is.
        """
        return _doubt(doubt, None) < self.threshold


def selective(
    pred: Prediction,
    y: Targets,
    risk: float,
    confidence: float = 0.95,
    doubt: object = None,
    tolerance: float | None = None,
    candidates: int = 20,
) -> Selective:
    r"""Returns the threshold on doubt that answers the most rows with a guaranteed error.

    \[ \Pr\big( R(\text{threshold}) \le \text{risk} \big) \ge \text{confidence}, \qquad
       R(t) = \Pr(\text{wrong} \mid \text{doubt} < t) \]

    The candidates are the thresholds that answer 1/c, 2/c, …, all of the held-out rows, each tested at the level
    (1 − confidence)/c by the binomial bound; the largest that passes is taken. Their ranks are fixed beforehand, in
    place of a binary search whose path depends on the errors, so that the union bound is exact.

    Args:
        pred: the prediction of held-out rows.
        y: their targets, `[N]`.
        risk: the largest acceptable error, for instance 0.02.
        confidence: the probability that the guarantee holds, over the draw of the held-out rows.
        doubt: one number per row, by which rows are ranked; `pred.total` by default.
        tolerance: for regression: the error, in the target's units, above which a prediction is wrong.
        candidates: c.

    Returns:
        The threshold and its guarantee.

    Raises:
        ValueError: if no threshold meets the guarantee, or an argument does not fit.

    Source: Geifman & El-Yaniv (2017), algorithm 1 and lemma 3.1; Angelopoulos et al. (2021) for the union bound.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.calibration import selective
        >>> p, generator = np.linspace(0.5, 1.0, 2000), np.random.default_rng(0)
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=p, total=1 - p)
        >>> selected = selective(pred, (generator.uniform(size=2000) < p).astype(int), risk=0.1)
        >>> round(selected.share, 2), round(selected.bound, 3)
        (0.2, 0.076)
    """
    y = target("selective", pred, y)
    for name, value in (("risk", risk), ("confidence", confidence)):
        if not 0 < value < 1:
            raise ValueError(f"{name}={value!r} is not a probability strictly between 0 and 1")
    candidates = whole_number("candidates", candidates)
    wrong, ranked = _wrong(pred, y, tolerance), _doubt(pred, doubt)
    if ranked.shape != y.shape or not np.isfinite(ranked).all():
        raise ValueError(
            f"doubt has the shape {ranked.shape} or is not finite; give one number for each of {len(y)} rows"
        )
    order = np.argsort(ranked, kind="stable")
    ranked, errors, n = ranked[order], np.concatenate([[0], np.cumsum(wrong[order])]), len(y)
    best: Selective | None = None
    for j in range(1, candidates + 1):
        # All rows: the threshold is above every doubt.
        place = n if j == candidates else int(np.ceil(n * j / candidates)) - 1
        threshold = np.inf if j == candidates else float(ranked[place])
        answered = int(np.searchsorted(ranked, threshold, side="left"))  # rows of equal doubt stay together
        bound = _upper(int(errors[answered]), answered, (1 - confidence) / candidates)
        if bound <= risk:
            best = Selective(threshold, risk, bound, answered / n, confidence)
    if best is None:
        raise ValueError(
            f"with {n} rows no threshold promises an error of {risk:g} with a confidence of {confidence:g}; accept "
            "more, or calibrate on more rows"
        )
    return best


def _upper(errors: int, count: int, level: float) -> float:
    """Returns the Clopper–Pearson upper bound on a binomial probability."""
    from scipy.stats import beta

    return 1.0 if errors >= count else float(beta.ppf(1 - level, errors + 1, count - errors))


def _wrong(pred: Prediction, y: np.ndarray, tolerance: float | None) -> np.ndarray:
    if pred.support.has_classes:
        return 1 - right(pred, y)
    if tolerance is None or y.ndim != 1:
        raise ValueError(
            "for a regression of one output say from where on a prediction is wrong, for instance tolerance=1.0"
        )
    return (np.abs(y - np.asarray(pred.mean, float)) > tolerance).astype(float)


def _doubt(pred: object, doubt: object) -> np.ndarray:
    return np.asarray(getattr(pred, "total", pred) if doubt is None else doubt, float)
