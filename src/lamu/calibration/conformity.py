"""Split conformal prediction: intervals and sets with guaranteed coverage for any model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamu import memory
from lamu.data.arrays import refuse_other_order
from lamu.data.stream import by_name
from lamu.data.wording import quoted
from lamu.scores.proper_scores import target
from lamu.supports import Real, Support
from lamu.typing import Inputs, Prediction, Targets

__all__ = ["Conformal", "LeftOut", "conformal", "jackknife_plus"]


# Let \(s_1, \dots, s_n\) be the distances of targets of calibration rows from their predictions, and
# \(q\) the \(\lceil (n + 1)\, a \rceil\)-th smallest. If a new row is exchangeable with those rows, its own distance is
# at most q with a probability of at least a, for any model, because its rank among the n + 1 is uniform.


def _place(n: int, level: float) -> int:
    """Returns the rank among n sorted distances that bounds the distance of a new row with a probability."""
    if not 0 < level < 1:
        raise ValueError(f"{level!r} is not a probability strictly between 0 and 1; for 90 % write 0.9")
    place = math.ceil((n + 1) * level - 1e-9)  # (n + 1) a may be an integer except for rounding
    if place > n:
        least = math.ceil(level / (1 - level) - 1e-9)
        raise ValueError(f"{n} rows cannot promise {level:g}; calibrate on at least {least}, or ask for less")
    return place


@dataclass(frozen=True)
class Conformal:
    r"""Result of `conformal`: distances of calibration rows, which give intervals and sets for other predictions.

    Attributes:
        support: the support of the predictions.
        distances: s, sorted: `[n]`, or `[n, K]` for K outputs, each separately.

    Examples:
        >>> import numpy as np
        >>> from lamu.calibration import Conformal
        >>> from lamu.supports import Real
        >>> Conformal(Real(), np.array([0.5, 1.0, 1.5])).reach(0.75).tolist()
        1.5
    """

    support: Support
    distances: np.ndarray

    def reach(self, level: float) -> np.ndarray:
        r"""Returns q, the \(\lceil (n + 1)\,\)level\(\rceil\)-th smallest distance, `[]` or `[K]`.

        Args:
            level: the coverage probability of the region.

        Raises:
            ValueError: for a level outside (0, 1), or one that needs more rows.
        """
        return np.asarray(self.distances[_place(len(self.distances), level) - 1])

    def interval(self, pred: Prediction, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        r"""Returns \(m \pm q s\) within the support, with m and s the prediction's mean and standard deviation.

        Args:
            pred: a prediction for other rows.
            level: the coverage probability.

        Returns:
            Lower and upper ends in the target's units, each in the shape of the mean.

        Raises:
            TypeError: for classes, which have sets.
            ValueError: for a level that needs more calibration rows.
        """
        self._require(pred, False, "classes have no interval; use prediction_set(pred, level)")
        mean, room = np.asarray(pred.mean, float), self.reach(level) * np.asarray(pred.std, float)
        return _within(self.support, mean - room), _within(self.support, mean + room)

    def prediction_set(self, pred: Prediction, level: float = 0.9) -> np.ndarray:
        r"""Returns the classes of probability at least \(1 - q\), `[N, K]` of booleans; two for a binary target.

        A set is empty if every class is further away than the calibration rows were.

        Args:
            pred: a prediction for other rows.
            level: the coverage probability.

        Raises:
            TypeError: for a regression, which has intervals.
            ValueError: for a level that needs more calibration rows.
        """
        self._require(pred, True, "a regression has no classes; use interval(pred, level)")
        return 1 - _probabilities(pred) <= self.reach(level)[..., None]

    def _require(self, pred: Prediction, classes: bool, remedy: str) -> None:
        if not hasattr(pred, "support"):
            raise TypeError(
                f"pred={quoted(pred)} is not a prediction; give that of the rows, posterior.predict(x), and the level "
                "after it"
            )
        if pred.support.has_classes is not classes:
            raise TypeError(remedy)
        if pred.support != self.support:
            raise ValueError(
                f"calibrated on predictions of {self.support.values}, and this one is of {pred.support.values}"
            )


def conformal(pred: Prediction, y: Targets) -> Conformal:
    r"""Measures how far the targets of calibration rows lie from their predictions.

    \[ s_i = \frac{|y_i - m_i|}{\mathrm{std}_i} \quad\text{(regression)}, \qquad s_i = 1 - p_{i y_i}
       \quad\text{(classes)} \]

    The rows must be exchangeable with new rows and unused in training: on training rows the distances are
    too small. Coverage holds on average over new rows, not for each of them. Several outputs, and the positions of a
    map of classes, are calibrated separately.

    Args:
        pred: the prediction of the calibration rows.
        y: their targets, `[N]` or `[N, K]`.

    Returns:
        The result, which gives intervals and sets.

    Raises:
        ValueError: if the shapes differ, there are no rows, or a distance is not finite.

    Source: Vovk, Gammerman & Shafer (2005); Lei et al. (2018), section 5.2, for normalised residuals; Sadinle, Lei &
    Wasserman (2019) for classes.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian()).standardised(x[:300], y[:300])
        >>> posterior = lamu.fit(model, (x[:300], y[:300]), lamu.algorithms.adam(), epochs=20).posterior
        >>> calibrated = lamu.calibration.conformal(posterior.predict(x[300:400]), y[300:400])
        >>> lower, upper = calibrated.interval(posterior.predict(x[400:]), 0.9)
        >>> bool(((lower < y[400:]) & (y[400:] < upper)).mean() > 0.8)
        True
    """
    y = target("conformal", pred, y)
    if not pred.support.has_classes:
        with np.errstate(invalid="ignore", divide="ignore"):  # raised below as a sentence
            distances = np.abs(y - np.asarray(pred.mean, float)) / np.asarray(pred.std, float)
    else:
        distances = 1 - np.take_along_axis(_probabilities(pred), y.astype(int)[..., None], axis=-1)[..., 0]
    lost = int(np.sum(~np.isfinite(distances)))
    if lost:
        raise ValueError(
            f"{lost} of {distances.size} distances are not finite: a target or a prediction is not a number, or a "
            "prediction has no spread; leave such rows out of the calibration"
        )
    return Conformal(pred.support, np.sort(distances, axis=0))


def _within(support: Support, ends: np.ndarray) -> np.ndarray:
    """Returns ends of intervals within the support, which cover as many targets."""
    return np.clip(ends, support.lower, support.upper)


def _probabilities(pred: Prediction) -> np.ndarray:
    return np.asarray(pred.support.probabilities(np.asarray(pred.mean, float)))


# Row i is judged by the member that was not fitted to it, \(s_i = |y_i - m_{-k(i)}(x_i)| / \mathrm{std}_{-k(i)}(x_i)\),
# and at a new x each row votes with the same member's prediction:
#
# \[ \Big[ q^-_\alpha\{ m_{-k(i)}(x) - s_i\, \mathrm{std}_{-k(i)}(x) \},\;
#          q^+_\alpha\{ m_{-k(i)}(x) + s_i\, \mathrm{std}_{-k(i)}(x) \} \Big] \]
#
# with \(q^+_\alpha\) the \(\lceil (1 - \alpha)(n + 1) \rceil\)-th smallest of n and \(q^-_\alpha\) the \(\lfloor \alpha
# (n + 1) \rfloor\)-th.


@dataclass(frozen=True)
class LeftOut:
    """Result of `jackknife_plus`, which gives intervals and sets for new inputs.

    Attributes:
        posteriors: the members.
        member: the number of the member that was not fitted to each row, `[n]`.
        distances: the distance of each row from that member's prediction, `[n]`.
        support: the support of the predictions.
        samples: draws per prediction.

    Examples:
        >>> import numpy as np
        >>> from lamu.calibration import LeftOut
        >>> from lamu.supports import Real
        >>> LeftOut((), np.arange(9), np.linspace(0.1, 0.9, 9), Real()).rank(0.8)
        8
    """

    posteriors: tuple[Any, ...]
    member: np.ndarray
    distances: np.ndarray
    support: Support
    samples: int = 32

    def rank(self, level: float) -> int:
        r"""Returns \(\lceil (1 - \alpha)(n + 1) \rceil\) with 1 − α the level.

        Args:
            level: the nominal probability.

        Raises:
            ValueError: for a level outside (0, 1), or one that needs more rows.
        """
        return _place(len(self.distances), level)

    def interval(self, x: Inputs, level: float = 0.9, offset: object = None) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ends of the interval at new inputs, each `[N]`, in the target's units.

        Args:
            x: new inputs `[N, ...]`.
            level: 1 − α, the coverage in practice; proved is 1 − 2α, less at most the root of 2/n for few folds.
            offset: a known part of the linear predictor of these rows, as for `Posterior.predict`.

        Raises:
            TypeError: for classes, which have sets.
            ValueError: for a level that needs more rows.
        """
        if self.support.has_classes:
            raise TypeError("classes have no interval; use prediction_set(x, level)")
        place, n = self.rank(level), len(self.distances)
        both = []
        for posterior in self.posteriors:  # only one prediction is kept at a time, and only its moments
            pred = _predicted(posterior, x, self.samples, offset)
            both.append((np.asarray(pred.mean, float), np.asarray(pred.std, float)))
        mean, std = (np.stack(each) for each in zip(*both, strict=True))
        lower, upper = np.empty(mean.shape[1]), np.empty(mean.shape[1])
        for rows in _parts(mean.shape[1], n):
            centre, room = mean[self.member, rows], self.distances[:, None] * std[self.member, rows]
            lower[rows] = np.partition(centre - room, n - place, axis=0)[n - place]
            upper[rows] = np.partition(centre + room, place - 1, axis=0)[place - 1]
        return _within(self.support, lower), _within(self.support, upper)

    def prediction_set(self, x: Inputs, level: float = 0.9, offset: object = None) -> np.ndarray:
        r"""Returns the classes that are at most as far away as enough rows were, `[N, K]` of booleans.

        A class k is in the set unless at least \((1 - \alpha)(n + 1)\) rows have \(s_i < 1 - p_{-k(i)}(k \mid x)\).

        Args:
            x: new inputs `[N, ...]`.
            level: 1 − α, as for `interval`.
            offset: as for `interval`.

        Raises:
            TypeError: for a regression, which has intervals.
            ValueError: for a level that needs more rows.
        """
        if not self.support.has_classes:
            raise TypeError("a regression has no classes; use interval(x, level)")
        place = self.rank(level)
        closer: Any = 0
        for k, posterior in enumerate(self.posteriors):
            distances = 1 - np.asarray(_predicted(posterior, x, self.samples, offset).probabilities, float)
            ordered = np.sort(self.distances[self.member == k])
            closer = closer + np.searchsorted(ordered, distances, side="left")  # the number of its rows that are closer
        return closer < place


def jackknife_plus(
    found: Any, x: Inputs, y: Targets, held: Sequence[Any] | None = None, samples: int = 32, offset: Any = None
) -> LeftOut:
    r"""Returns intervals, or sets of classes, calibrated on every row by the member that was not fitted to it.

    With K folds this is CV+; with one row per fold, jackknife+. No row is lost to calibration, and the variation from
    fit to fit enters the intervals. For exchangeable rows and any algorithm symmetric in them, a new target is covered
    with a probability of at least \(1 - 2\alpha\) (K = n), or \(1 - 2\alpha - \sqrt{2/n}\) (any K); close to
    \(1 - \alpha\) if fits hardly depend on a single row. If fits stop early, or choose a prior, by the fold that later
    judges them, the judgement is slightly optimistic.

    Args:
        found: the result of `lamu.fit_folds`, or a sequence of posteriors.
        x: all rows of the folds, `[n, ...]`.
        y: their targets, `[n]`; one output.
        held: for each member the numbers of the rows that it was not fitted to. By default those of `found`
            (`found.held`); else for instance `lamu.folds.folds_of(y, folds, seed, stratify)`, as `fit_folds`
            calls it.
        samples: draws per prediction, if the members need draws.
        offset: a known part of the linear predictor of the rows, `[n]` or `[n, outputs]`, as in the data of the fit.

    Returns:
        The result, which gives intervals and sets at new inputs. Every interval costs a prediction of each member.

    Raises:
        ValueError: if a row is held out by no member or by several (calibrating on it would be on training rows),
            folds and members differ in number, or the shapes differ.

    Source: Barber, Candès, Ramdas & Tibshirani (2021); for classes Romano, Sesia & Candès (2020).

    Examples:
        >>> import lamu
        >>> from lamu.folds import folds_of
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian()).standardised(x[:300], y[:300])
        >>> folds = lamu.fit_folds(model, (x[:300], y[:300]), lamu.algorithms.adam(1e-2), folds=5, epochs=20)
        >>> held = folds_of(y[:300], 5, seed=0, stratify=False)
        >>> lower, upper = lamu.calibration.jackknife_plus(folds, x[:300], y[:300], held).interval(x[300:])
        >>> bool(((lower < y[300:]) & (y[300:] < upper)).mean() > 0.8)
        True
    """
    members = tuple(each.posterior for each in found.fits) if hasattr(found, "fits") else tuple(found)
    held = getattr(found, "held", None) if held is None else held
    if held is None:
        raise ValueError("it is not known which rows each member has not seen; give held=folds_of(y, folds, seed, ...)")
    refuse_other_order({"x": x, "y": y, "offset": offset})
    x = by_name(x, getattr(getattr(members[0], "model", None), "columns", None)) if members else x
    x, y, offset = np.asarray(x), np.asarray(y), None if offset is None else np.asarray(offset)
    if offset is not None and (offset.ndim not in (1, 2) or len(offset) != len(y)):
        raise ValueError(f"the offset has the shape {offset.shape}; give one number for each of the {len(y)} rows")
    if y.ndim != 1 or len(x) != len(y):
        raise ValueError(f"x has the shape {x.shape} and y {y.shape}; give one target for each row")
    numbers = [np.asarray(rows, int) for rows in held]
    _require_once(numbers, len(members), len(y))
    member, distances = np.empty(len(y), int), np.empty(len(y))
    support: Support = Real()
    for k, (posterior, rows) in enumerate(zip(members, numbers, strict=True)):
        pred = _predicted(posterior, x[rows], samples, None if offset is None else offset[rows])
        ranked = conformal(pred, target("jackknife_plus", pred, y[rows])).distances
        # `conformal` returns them sorted; only the member of a distance matters, not its row.
        member[rows], distances[rows], support = k, ranked, pred.support
    return LeftOut(members, member, distances, support, samples)


def _predicted(posterior: Any, x: Inputs, samples: int, offset: Any) -> Any:
    return posterior.predict(x, samples=samples, **({} if offset is None else {"offset": offset}))


def _require_once(held_rows: Sequence[np.ndarray], members: int, count: int) -> None:
    if len(held_rows) != members:
        raise ValueError(f"there are {members} members and {len(held_rows)} sets of held rows; give one for each")
    numbers = np.concatenate(held_rows) if held_rows else np.zeros(0, int)
    if numbers.size and (numbers.min() < 0 or numbers.max() >= count):
        raise ValueError(f"held has the row {int(numbers[np.argmax(abs(numbers))])}, and there are {count} rows")
    times = np.bincount(numbers, minlength=count)
    if (times > 1).any():
        row = int(np.argmax(times > 1))
        raise ValueError(
            f"row {row} is held out by {int(times[row])} members, so that one of them calibrates on a row of another's "
            "fold: held rows must be the folds themselves"
        )
    if (times == 0).any():
        row = int(np.argmax(times == 0))
        raise ValueError(
            f"row {row} is held out by no member: all have learned from it, and it cannot be calibrated on; leave it "
            "out of x and y, or give the folds that the members were made with"
        )


def _parts(rows: int, votes: int) -> list[slice]:
    """Returns the rows in parts whose votes fit the memory budget: centre, width and the sorted part."""
    most = max(1, memory.budget() // (32 * max(votes, 1)))
    return [slice(start, min(start + most, rows)) for start in range(0, rows, most)]
