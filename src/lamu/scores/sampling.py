"""The standard error of a score: how far it would move if the test rows were drawn again."""

# Every score is a statistic of one value a row (for the calibration error, two), so rows are the unit that is drawn. A
# statistic is given here with its *deviations*, numbers whose squares sum to its squared standard error:
#
# | score | statistic of the rows' values v | deviations |
# |---|---|---|
# | accuracy, nll, brier, crps, coverage | \(\bar v\) | \((v_i - \bar v) / \sqrt{n (n - 1)}\) |
# | rmse | \(\sqrt{\bar v}\), v the squared error | those of \(\bar v\), over \(2 \sqrt{\bar v}\) (delta method) |
# | ece | bins, see `ece` | \((s_b - \bar s) / \sqrt{B - 1}\) of B bootstrap samples |
#
# Deviations of two predictions on the same rows subtract, which makes the error of a paired difference.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamu.data.spelling import nearest
from lamu.scores.calibration import confidence_and_right, coverage, covered, ece, gap_of_bins
from lamu.scores.errors import accuracy, brier, right, rmse, squared_distance, squared_error
from lamu.scores.estimate import Estimate
from lamu.scores.proper_scores import crps, crps_of_rows, nll, surprise

__all__ = ["difference", "estimate", "rows_of", "with_error"]

RESAMPLES = 200
MOST_RESAMPLED = 10_000  # rows of a bootstrap sample; a standard error falls as one over the root of their number


def with_error(score: Callable[..., float], pred: Any, y: Any, **options: Any) -> Estimate:
    """Returns a score with its standard error over the rows.

    The error says how far the score would move with other test rows of the same kind; it does not know how it would
    move with other training rows, or another seed.

    Args:
        score: a function of this package: `accuracy`, `nll`, `brier`, `ece`, `rmse`, `crps` or `coverage`.
        pred: a prediction.
        y: targets, `[N]` or `[N, K]`; the K outputs of a row count as one observation.
        **options: those of the score, such as `level`.

    Returns:
        The score and its standard error: of a mean, by the delta method (`rmse`), or by a bootstrap with a fixed seed
        (`ece`). Of one row the error is NaN, and so it is where the score of a row is not finite.

    Raises:
        ValueError: if the score is none of this package, and for what the score refuses.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu import scores
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.9, 0.2, 0.7, 0.1]))
        >>> scores.with_error(scores.accuracy, pred, np.array([1, 0, 0, 0]))
        Estimate(value=0.75, error=0.25)
    """
    return estimate(score, rows_of(score, pred, y, **options), **options)


def difference(score: Callable[..., float], pred: Any, reference: Any, y: Any, **options: Any) -> Estimate:
    """Returns how much more one prediction scores than another on the same rows, with the error of the pairs.

    What makes a row hard makes it hard for both, and drops out of the difference: its error is often far below that of
    either score.

    Args:
        score: a function of this package.
        pred: a prediction.
        reference: another prediction of the same rows, whose score is subtracted.
        y: targets, `[N]` or `[N, K]`.
        **options: those of the score.

    Returns:
        The difference of the scores and its standard error.

    Raises:
        ValueError: if the score is none of this package, and for what the score refuses.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import Real
        >>> from lamu import scores
        >>> pred, other = (SimpleNamespace(support=Real(), mean=np.array(m)) for m in ([0.0, 1.0], [1.0, 2.0]))
        >>> round(scores.difference(scores.rmse, pred, other, np.array([0.0, 1.0])).value, 4)
        -1.0
    """
    rows = (rows_of(score, each, y, **options) for each in (pred, reference))
    (value, deviations), (other, others) = (_statistic(score, each, **options) for each in rows)
    return Estimate(value - other, _norm(deviations - others))


def rows_of(score: Callable[..., float], pred: Any, y: Any, **options: Any) -> np.ndarray:
    """Returns what a score is a statistic of: one value a row, `[N]`, or two for the calibration error, `[N, 2]`."""
    form = _form(score)
    return form.rows(pred, y, **{name: value for name, value in options.items() if name in form.of_rows})


def estimate(score: Callable[..., float], rows: np.ndarray, **options: Any) -> Estimate:
    """Returns a score with its standard error, from the rows' values."""
    value, deviations = _statistic(score, rows, **options)
    return Estimate(value, _norm(deviations))


@dataclass(frozen=True)
class _Form:
    """A score as a statistic of rows."""

    rows: Callable[..., np.ndarray]
    statistic: Callable[..., tuple[float, np.ndarray]]
    of_rows: tuple[str, ...] = ()  # the options that the rows take; the statistic takes the others


def _mean(rows: np.ndarray) -> tuple[float, np.ndarray]:
    n = len(rows)
    if not np.isfinite(rows).all():  # a target that the prediction holds impossible, or a mean that is not finite
        return float(sum(rows.tolist())) / n, np.full(1, np.nan)
    value = float(np.mean(rows))
    return value, (rows - value) / np.sqrt(n * (n - 1)) if n > 1 else np.full(1, np.nan)


def _root_mean(rows: np.ndarray) -> tuple[float, np.ndarray]:
    mean, deviations = _mean(rows)
    root = mean**0.5 if mean >= 0.0 else float("nan")
    return root, deviations / (2.0 * root) if root > 0.0 else deviations


def _gap(rows: np.ndarray, bins: int = 15) -> tuple[float, np.ndarray]:
    value = gap_of_bins(rows[:, 0], rows[:, 1], bins)
    n = len(rows)
    if n < 2:
        return value, np.full(1, np.nan)
    size, random = min(n, MOST_RESAMPLED), np.random.default_rng(0)
    drawn = (rows[random.integers(0, n, size)] for _ in range(RESAMPLES))
    samples = np.array([gap_of_bins(each[:, 0], each[:, 1], bins) for each in drawn])
    return value, (samples - samples.mean()) * np.sqrt(size / n / (RESAMPLES - 1))


_FORMS: dict[Callable[..., float], _Form] = {
    accuracy: _Form(right, _mean),
    nll: _Form(surprise, _mean),
    brier: _Form(squared_distance, _mean),
    crps: _Form(crps_of_rows, _mean, ("panels",)),
    coverage: _Form(covered, _mean, ("level",)),
    rmse: _Form(squared_error, _root_mean),
    ece: _Form(confidence_and_right, _gap),
}


def _form(score: Callable[..., float]) -> _Form:
    if score not in _FORMS:
        name = getattr(score, "__name__", repr(score))
        known = [each.__name__ for each in _FORMS]
        raise ValueError(f"{name!r} is no score whose rows are known here; {nearest(name, known)}")
    return _FORMS[score]


def _statistic(score: Callable[..., float], rows: np.ndarray, **options: Any) -> tuple[float, np.ndarray]:
    form = _form(score)
    return form.statistic(rows, **{name: each for name, each in options.items() if name not in form.of_rows})


def _norm(deviations: np.ndarray) -> float:
    return float(np.sqrt(np.sum(deviations**2)))
