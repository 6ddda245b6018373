"""Calibration scores, and standard errors of scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamu.base.arguments import whole_number
from lamu.data.splits import group_codes
from lamu.data.wording import nearest
from lamu.scores.proper_scores import (
    accuracy,
    brier,
    by_row,
    crps,
    crps_of_rows,
    nll,
    right,
    rmse,
    row_counts,
    squared_distance,
    squared_error,
    surprise,
    target,
)
from lamu.typing import Prediction, Targets

__all__ = [
    "FEWEST_ROWS",
    "Estimate",
    "Reliability",
    "calibrated_gap",
    "confidence_and_correctness",
    "coverage",
    "covered",
    "difference",
    "ece",
    "ece_if_calibrated",
    "estimate",
    "gap_of_bins",
    "in_words",
    "reliability",
    "rows_of",
    "verdict",
    "with_error",
]


@dataclass(frozen=True)
class Estimate:
    """A value with its standard error.

    Attributes:
        value: the estimate.
        error: its standard error, in the same units; NaN for one row, and where the score of a row is not finite.

    Examples:
        >>> from lamu.scores import Estimate
        >>> str(Estimate(0.97222, 0.00861))
        '0.9722 ± 0.0086'
    """

    value: float
    error: float

    def __str__(self) -> str:
        """The value to the second digit of its error."""
        if not 0.0 < self.error < float("inf"):
            return f"{self.value:.4g}" if self.error == 0.0 else f"{self.value:.4g} ± ?"
        exponent = int(f"{self.error:e}".split("e")[1])
        decimals = 1 - exponent
        if decimals > 9 or decimals < -6:
            return f"{self.value:.4g} ± {self.error:.2g}"
        decimals = max(decimals, 0)
        return f"{self.value:.{decimals}f} ± {self.error:.{decimals}f}"


FEWEST_ROWS = 20  # with fewer a calibration error is meaningless

_SAMPLES = 400  # give a mean to 5 % of its deviation
_SEED = 0x6C616D75  # an unusual seed, since with a common one the probabilities may be the same uniform numbers
_MOST_SAMPLED = 20_000  # rows, beyond which the sums of bins are practically normal


def ece(pred: Prediction, y: Targets, bins: int = 15) -> float:
    r"""Returns the expected calibration error of the most probable label, with bins of equal mass.

    \[ \sum_b \frac{n_b}{N} \left| \operatorname{acc}_b - \operatorname{conf}_b \right| \]

    Rows are sorted by the probability of their most probable label and cut into `bins` groups of equal size; acc is the
    fraction of right labels in a group, conf its mean probability (Naeini et al. 2015; equal mass: Nixon et al. 2019).
    Equal probabilities are never split, so that the order of the rows does not matter. A binary prediction is scored as
    two classes, with the confidence \(\max(p, 1 - p)\). Small samples bias the score upwards, far above zero also for
    calibrated probabilities: `ece_if_calibrated` returns this bias. It is not proper: a constant prediction of the base
    rates scores zero. Use it together with `nll` or `brier`. Labels of several positions a row count alike.

    Args:
        pred: a prediction of classes, or of a binary target.
        y: labels, `[N]`, or `[N, ...]` for several positions.
        bins: the number of groups.

    Returns:
        A difference of probabilities, 0 to 1; lower is better.

    Raises:
        ValueError: if the prediction is of a regression, the shapes differ, or there is no bin.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import ece
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.full(4, 0.75))
        >>> ece(pred, np.array([1, 1, 1, 0]))
        0.0
    """
    confidence, right = confidence_and_correctness(pred, y).T
    return gap_of_bins(confidence, right, bins, np.ones(len(right)))


def ece_if_calibrated(pred: Prediction, bins: int = 15, y: Targets = None, groups: object = None) -> Estimate:
    r"""Returns mean and standard deviation of the calibration error of these probabilities if they are calibrated.

    They are computed over targets drawn from the prediction itself. An `ece` that exceeds the mean by at most two
    standard deviations is no evidence of miscalibration. The targets of a group's rows go together, in a way that the
    prediction does not tell: with groups, the errors of each group have a random sign.

    Args:
        pred: a prediction of classes, or of a binary target.
        bins: the number of groups, as for `ece`.
        y: the targets `[N]`, which are needed with groups.
        groups: the group of each row, `[N]`, as for `with_error`; None for independent rows.

    Returns:
        The mean, with the standard deviation over data sets of this size as `error`.

    Raises:
        ValueError: if there is no bin, or for groups without targets, or another number of them than rows.

    Source: Davidson & Flachaire (2008), for random signs.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import ece_if_calibrated
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.full(1, 0.75))
        >>> found = ece_if_calibrated(pred)  # of one row: 1/4 with probability 3/4, and 3/4 with probability 1/4
        >>> abs(found.value - 0.375) < 0.05
        True
    """
    if groups is not None and y is None:
        raise ValueError("groups need the targets of their rows, which go together; give y, or leave groups out")
    if groups is not None:
        confidence, right = confidence_and_correctness(pred, y).T
        return calibrated_gap(confidence, bins, right=right, groups=groups)
    return calibrated_gap(np.max(pred.support.probabilities(np.asarray(pred.mean, float)), axis=-1).ravel(), bins)


def calibrated_gap(
    confidence: np.ndarray,
    bins: int = 15,
    weight: np.ndarray | None = None,
    right: np.ndarray | None = None,
    groups: object = None,
) -> Estimate:
    """Returns mean and standard deviation of `gap_of_bins` for calibrated confidences, of groups given their labels."""
    n, random = len(confidence), np.random.default_rng([_SEED, len(confidence)])
    counts = np.ones(n) if weight is None else weight
    group = _groups(confidence, bins, counts)
    variance = np.bincount(group, weights=counts**2 * confidence * (1 - confidence))
    if groups is not None and right is not None:
        unit = np.unique(group_codes(groups, n), return_inverse=True)[1]
        errors = counts * (right - confidence)
        signs = (random.choice((-1.0, 1.0), unit.max() + 1)[unit] for _ in range(_SAMPLES))
        gaps = np.stack([np.bincount(group, weights=errors * sign) for sign in signs])
    elif n > _MOST_SAMPLED:
        gaps = random.normal(size=(_SAMPLES, len(variance))) * np.sqrt(variance)
    else:
        draws = (random.random(n) < confidence for _ in range(_SAMPLES))
        gaps = np.stack([np.bincount(group, weights=counts * (right - confidence)) for right in draws])
    errors = np.abs(gaps).sum(axis=1) / counts.sum()
    return Estimate(float(errors.mean()), float(errors.std(ddof=1)))


def in_words(name: str, estimate: Estimate) -> str:
    """Returns a score as text: a calibration error of too few rows is NaN."""
    return "too few rows" if name == "ece" and np.isnan(estimate.value) else str(estimate)


def verdict(observed: Estimate, right: Estimate, rows: int) -> str:
    """Returns, in words, whether a calibration error is evidence of miscalibration."""
    chance = observed.value <= right.value + 2 * right.error
    return (
        f"right probabilities would have {right.value:.3f} at {rows:,} rows: "
        f"{'no evidence of miscalibration' if chance else 'more than chance explains'}"
    )


def confidence_and_correctness(pred: Prediction, y: Targets) -> np.ndarray:
    """Returns the probability of each most probable label, and 1 where it is the true one, `[labels, 2]`."""
    y = target("ece", pred, y, has_classes=True)
    p = pred.support.probabilities(np.asarray(pred.mean, float))
    return np.stack([np.max(p, axis=-1).ravel(), (np.argmax(p, axis=-1) == y).ravel()], axis=1)


def _label_of_each_row(pred: Prediction, y: Targets) -> np.ndarray:
    labels = confidence_and_correctness(pred, y)
    if len(labels) != len(pred.mean):
        raise ValueError(
            f"the calibration error of {len(pred.mean)} rows of {len(labels) // len(pred.mean)} labels each has no "
            "standard error here, since labels of a row are not independent; take ece(pred, y), or brier"
        )
    return labels


def gap_of_bins(confidence: np.ndarray, right: np.ndarray, bins: int, weight: np.ndarray) -> float:
    """Returns the mean distance of frequency and confidence over bins of equal mass, the value of `ece`."""
    gap = np.bincount(_groups(confidence, bins, weight), weights=weight * (right - confidence))
    return float(np.sum(np.abs(gap)) / weight.sum())


def _groups(confidence: np.ndarray, bins: int, weight: np.ndarray) -> np.ndarray:
    """Returns the bin of each row, of equal mass."""
    bins = whole_number("bins", bins)
    order = np.argsort(confidence, kind="stable")
    below = np.concatenate([[0.0], np.cumsum(weight[order])])
    # Equal confidences have the lowest rank of them.
    rank = below[np.searchsorted(confidence[order], confidence, side="left")]
    return np.minimum(rank * bins // below[-1], bins - 1).astype(int)


@dataclass(frozen=True)
class Reliability:
    """Result of `reliability`: predicted probabilities and observed frequencies in the non-empty bins.

    Attributes:
        said: the mean predicted probability in a bin, `[bins]`.
        happened: the observed frequency in a bin, `[bins]`.
        count: the number of rows in a bin, `[bins]`.
        edges: the edges of all bins, including empty ones.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import reliability
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.1, 0.1, 0.8, 0.8]))
        >>> reliability(pred, np.array([0, 0, 1, 0])).happened.tolist()
        [0.0, 0.5]
    """

    said: np.ndarray
    happened: np.ndarray
    count: np.ndarray
    edges: np.ndarray


def reliability(pred: Prediction, y: Targets, bins: int = 10) -> Reliability:
    """Returns observed frequencies by predicted probability, the content of a reliability diagram.

    For classes the probability is that of the most probable label, and the event is that it is the true one; for a
    binary target they are the probability of 1 and the target.

    Args:
        pred: a prediction of classes, or of a binary target.
        y: labels, `[N]`.
        bins: the number of bins of equal width between 0 and 1.

    Returns:
        The non-empty bins.

    Raises:
        ValueError: if the prediction is of a regression, the shapes differ, or there is no bin.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import Classes
        >>> from lamu.scores import reliability
        >>> pred = SimpleNamespace(support=Classes(3), mean=np.array([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2]]))
        >>> reliability(pred, np.array([0, 0])).count.tolist()
        [2]
    """
    bins = whole_number("bins", bins)
    if np.ndim(pred.mean) == 1:
        labels = target("reliability", pred, y, has_classes=True)
        said, happened = np.asarray(pred.mean, float), np.asarray(labels, float)
    else:
        said, happened = confidence_and_correctness(pred, y).T
    edges = np.linspace(0.0, 1.0, bins + 1)
    index = np.clip(np.searchsorted(edges, said, side="right") - 1, 0, bins - 1)
    count = np.bincount(index, minlength=bins)
    full = count > 0
    total = [np.bincount(index, weights=values, minlength=bins)[full] for values in (said, happened)]
    return Reliability(total[0] / count[full], total[1] / count[full], count[full], edges)


def coverage(pred: Prediction, y: Targets, level: float = 0.9) -> float:
    r"""Returns the fraction of targets inside the predictive regions of probability `level`.

    \[ \frac1{NK} \sum_{ik} \mathbf 1[l_{ik} \le y_{ik} \le u_{ik}] \]

    The region is the predictive's interval for a regression (each output separately), its prediction set for classes
    and for a binary target. A set contains whole classes, so that it may cover more often than its level. The same is
    true for intervals of counts, between two whole numbers, both included: small counts are covered more often than
    `level` also by a calibrated prediction.

    Args:
        pred: a prediction of any task.
        y: targets, `[N]` or `[N, K]`.
        level: the probability of the regions, between 0 and 1.

    Returns:
        A fraction, 0 to 1; best near `level`.

    Raises:
        ValueError: if the level is not between 0 and 1, or the shapes differ.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import Real
        >>> from lamu.scores import coverage
        >>> interval = lambda level: (np.full(4, -1.0), np.full(4, 1.0))
        >>> pred = SimpleNamespace(support=Real(), mean=np.zeros(4), interval=interval)
        >>> coverage(pred, np.array([0.0, 0.5, -0.5, 3.0]))
        0.75
    """
    return float(np.mean(covered(pred, y, level)))


def covered(pred: Prediction, y: Targets, level: float = 0.9) -> np.ndarray:
    """Returns the fraction of each row's targets inside their regions, `[N]`, whose mean is `coverage`."""
    y = target("coverage", pred, y)
    if not 0.0 < level < 1.0:
        raise ValueError(f"the level {level} is not between 0 and 1; give a probability, for instance 0.9")
    if not pred.support.has_classes:
        lower, upper = pred.interval(level)
        return by_row(((np.asarray(lower) <= y) & (y <= np.asarray(upper))).astype(float))
    members = np.asarray(pred.prediction_set(level))
    return by_row(np.take_along_axis(members, y.astype(int)[..., None], axis=-1)[..., 0].astype(float))


# Every score is a statistic of one value a row (for the calibration error, two), so rows are the sampling unit. A
# statistic has *deviations*, numbers whose squares sum to its squared standard error:
#
# | score | statistic of the rows' values v | deviations |
# |---|---|---|
# | accuracy, nll, brier, crps, coverage | \(\bar v\) | \((v_i - \bar v) / \sqrt{n (n - 1)}\) |
# | rmse | \(\sqrt{\bar v}\), v the squared error | those of \(\bar v\), over \(2 \sqrt{\bar v}\) (delta method) |
# | ece | bins, see `ece` | \((s_b - \bar s) / \sqrt{B - 1}\) of B bootstrap samples |
#
# The differences of two predictions' deviations on the same rows give the error of a paired difference. Where rows of
# one group are dependent, groups are the sampling unit: their sums are deviations, times \(\sqrt{(n - 1) / n \cdot
# G / (G - 1)}\) (the sandwich of clustered errors, Liang & Zeger 1986), and a bootstrap draws groups.


RESAMPLES = 200
MOST_RESAMPLED = 10_000  # rows of a bootstrap sample; a standard error falls as one over the root of their number


def with_error(
    score: Callable[..., float],
    pred: Prediction,
    y: Targets,
    groups: Any = None,
    weight: Any = None,
    **options: object,
) -> Estimate:
    """Returns a score with its standard error over the rows, or over groups of rows.

    The error is that over test rows of the same distribution; it does not include the variation over training sets or
    seeds. Rows of one group (a patient, a day) are dependent, and an error that takes them for independent is too
    small: give `groups`.

    Args:
        score: a function of this package: `accuracy`, `nll`, `brier`, `ece`, `rmse`, `crps` or `coverage`.
        pred: a prediction.
        y: targets, `[N]` or `[N, K]`; the K outputs of a row count as one observation.
        groups: the group of each row, `[N]`, numbers or words; None for independent rows.
        weight: how often each row counts, `[N]`, as of a survey; None for once.
        **options: options of the score, such as `level`.

    Returns:
        The score and its standard error: of a mean, by the delta method (`rmse`), or by a bootstrap with a fixed seed
        (`ece`). The error is NaN for one row or one group, and where the score of a row is not finite.

    Raises:
        ValueError: if the score is not one of this package, for another number of groups or weights than rows, and as
            the score itself.

    Source: Liang & Zeger (1986) for groups.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu import scores
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.9, 0.2, 0.7, 0.1]))
        >>> scores.with_error(scores.accuracy, pred, np.array([1, 0, 0, 0]))
        Estimate(value=0.75, error=0.25)
    """
    return estimate(score, rows_of(score, pred, y, **options), weight, groups, **options)


def difference(
    score: Callable[..., float],
    pred: Prediction,
    reference: Prediction,
    y: Targets,
    groups: Any = None,
    weight: Any = None,
    **options: object,
) -> Estimate:
    """Returns the difference of the scores of two predictions on the same rows, with its paired standard error.

    The difficulty of a row affects both predictions and cancels in the difference: its error is often far below that of
    either score.

    Args:
        score: a function of this package.
        pred: a prediction.
        reference: another prediction of the same rows, whose score is subtracted.
        y: targets, `[N]` or `[N, K]`.
        groups: the group of each row, `[N]`, as for `with_error`.
        weight: how often each row counts, `[N]`.
        **options: options of the score.

    Returns:
        The difference of the scores and its standard error.

    Raises:
        ValueError: if the score is not one of this package, for another number of groups or weights than rows, and as
            the score itself.

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
    (value, deviations), (other, others) = (_statistic(score, each, weight, groups, **options) for each in rows)
    return Estimate(value - other, _norm(deviations - others))


def rows_of(score: Callable[..., float], pred: Prediction, y: Targets, **options: object) -> np.ndarray:
    """Returns the row values of a score: one a row, `[N]`, or two for the calibration error, `[N, 2]`."""
    form = _form(score)
    return form.rows(pred, y, **{name: value for name, value in options.items() if name in form.of_rows})


def estimate(
    score: Callable[..., float], rows: np.ndarray, weight: Any = None, groups: Any = None, **options: object
) -> Estimate:
    """Returns a score with its standard error, from the rows' values, weights and groups."""
    value, deviations = _statistic(score, rows, weight, groups, **options)
    return Estimate(value, _norm(deviations))


@dataclass(frozen=True)
class _Form:
    """A score as a statistic of rows."""

    rows: Callable[..., np.ndarray]
    statistic: Callable[..., tuple[float, np.ndarray]]
    of_rows: tuple[str, ...] = ()  # the options for the row values; the others are for the statistic


# A row of weight two counts twice in a value. The error treats rows, or groups, as the sampling unit, so that for equal
# weights it is that without weights. `group` numbers the group of each row.


def _mean(rows: np.ndarray, weight: np.ndarray, group: np.ndarray) -> tuple[float, np.ndarray]:
    rows, weight, group = rows[weight > 0], weight[weight > 0], np.unique(group[weight > 0], return_inverse=True)[1]
    n, units = len(rows), int(group.max()) + 1
    counts = weight * (n / weight.sum())
    if not np.isfinite(rows).all():  # a target of predicted probability zero, or a mean that is not finite
        return float(sum((rows * counts).tolist())) / n, np.full(1, np.nan)
    value = float(np.average(rows, weights=weight))
    if units < 2:
        return value, np.full(1, np.nan)
    sums = np.bincount(group, weights=(rows - value) * counts)
    return value, sums / np.sqrt(n * n * (units - 1) / units)


def _root_mean(rows: np.ndarray, weight: np.ndarray, group: np.ndarray) -> tuple[float, np.ndarray]:
    mean, deviations = _mean(rows, weight, group)
    root = mean**0.5 if mean >= 0.0 else float("nan")
    return root, deviations / (2.0 * root) if root > 0.0 else deviations


def _gap(rows: np.ndarray, weight: np.ndarray, group: np.ndarray, bins: int = 15) -> tuple[float, np.ndarray]:
    rows, group = np.column_stack([rows, weight])[weight > 0], group[weight > 0]
    value = gap_of_bins(rows[:, 0], rows[:, 1], bins, rows[:, 2])
    first = np.unique(np.sort(group), return_index=True)[1]
    n = len(first)
    if n < 2:
        return value, np.full(1, np.nan)
    members = np.split(np.argsort(group, kind="stable"), first[1:]) if n < len(rows) else None
    size, random = min(n, MOST_RESAMPLED), np.random.default_rng(0)
    samples = np.empty(RESAMPLES)
    for index in range(RESAMPLES):
        drawn = random.integers(0, n, size)
        each = rows[drawn if members is None else np.concatenate([members[one] for one in drawn])]
        samples[index] = gap_of_bins(each[:, 0], each[:, 1], bins, each[:, 2])
    return value, (samples - samples.mean()) * np.sqrt(size / n / (RESAMPLES - 1))


_FORMS: dict[Callable[..., float], _Form] = {
    accuracy: _Form(right, _mean),
    nll: _Form(surprise, _mean),
    brier: _Form(squared_distance, _mean),
    crps: _Form(crps_of_rows, _mean, ("panels",)),
    coverage: _Form(covered, _mean, ("level",)),
    rmse: _Form(squared_error, _root_mean),
    ece: _Form(_label_of_each_row, _gap),
}


def _form(score: Callable[..., float]) -> _Form:
    if score not in _FORMS:
        name = getattr(score, "__name__", repr(score))
        names = [each.__name__ for each in _FORMS]
        raise ValueError(f"{name!r} is not a score whose rows are known here; {nearest(name, names)}")
    return _FORMS[score]


def _statistic(
    score: Callable[..., float], rows: np.ndarray, weight: Any = None, groups: Any = None, **options: object
) -> tuple[float, np.ndarray]:
    form, counts = _form(score), row_counts(weight, len(rows))
    codes = np.arange(len(rows)) if groups is None else group_codes(groups, len(rows))
    unit = np.unique(codes, return_inverse=True)[1]
    of_all = {name: each for name, each in options.items() if name not in form.of_rows}
    return form.statistic(rows, counts, unit, **of_all)


def _norm(deviations: np.ndarray) -> float:
    return float(np.sqrt(np.sum(deviations**2)))
