"""Split conformal prediction: intervals and sets that hold as often as they say, under any model."""

# Let \(s_1, \dots, s_n\) be how far the targets of rows that training has not seen lie from their predictions, and
# \(q\) the \(\lceil (n + 1)\, a \rceil\)-th smallest. If a new row is exchangeable with those rows, its own distance is
# at most q with a probability of at least a, whatever the model, for its rank among the n + 1 is uniform.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamu.scores.validation import target
from lamu.supports import Support

__all__ = ["Conformal", "conformal"]


@dataclass(frozen=True)
class Conformal:
    r"""What `conformal` learns from calibration rows; it makes intervals and sets of other predictions.

    Attributes:
        support: that of the predictions.
        distances: s, sorted: `[n]`, or `[n, K]` for K outputs, each by itself.

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
            level: the probability that the region is to hold the target with.

        Raises:
            ValueError: for a level outside (0, 1), or one that so few rows cannot promise.
        """
        if not 0 < level < 1:
            raise ValueError(f"{level!r} is no probability strictly between 0 and 1; for 90 % write 0.9")
        n = len(self.distances)
        place = math.ceil((n + 1) * level - 1e-9)  # (n + 1) a may be a whole number but for rounding
        if place > n:
            least = math.ceil(level / (1 - level) - 1e-9)
            raise ValueError(f"{n} rows cannot promise {level:g}; calibrate on at least {least}, or ask for less")
        return np.asarray(self.distances[place - 1])

    def interval(self, pred: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        r"""Returns \(m \pm q s\), with m and s the prediction's mean and standard deviation.

        Args:
            pred: a prediction of other rows.
            level: the probability of holding the target.

        Returns:
            Lower and upper ends in the target's units, each in the shape of the mean.

        Raises:
            TypeError: for classes, which have sets.
            ValueError: for a level that the calibration rows cannot promise.
        """
        if pred.support.has_classes:
            raise TypeError("classes have no interval; use prediction_set(pred, level)")
        self._require(pred)
        mean, room = np.asarray(pred.mean, float), self.reach(level) * np.asarray(pred.std, float)
        return mean - room, mean + room

    def prediction_set(self, pred: Any, level: float = 0.9) -> np.ndarray:
        r"""Returns the classes of probability at least \(1 - q\), `[N, K]` of booleans; two of a binary target.

        A set may be empty, where every class would be further away than the calibration rows were.

        Args:
            pred: a prediction of other rows.
            level: the probability of holding the target.

        Raises:
            TypeError: for a regression, which has intervals.
            ValueError: for a level that the calibration rows cannot promise.
        """
        if not pred.support.has_classes:
            raise TypeError("a regression has no classes; use interval(pred, level)")
        self._require(pred)
        return 1 - _probabilities(pred) <= self.reach(level)

    def _require(self, pred: Any) -> None:
        if pred.support != self.support:
            raise ValueError(
                f"calibrated on predictions of {self.support.values}, and this one is of {pred.support.values}"
            )


def conformal(pred: Any, y: Any) -> Conformal:
    r"""Returns how far the targets of calibration rows lie from what was predicted for them.

    \[ s_i = \frac{|y_i - m_i|}{\mathrm{std}_i} \quad\text{(regression)}, \qquad s_i = 1 - p_{i y_i}
       \quad\text{(classes)} \]

    The rows must be exchangeable with those to come, and training must not have seen them: on training rows targets lie
    too near. The promise is about new rows on average, not about each of them. Several outputs are calibrated one by
    one.

    Args:
        pred: the prediction of the calibration rows.
        y: their targets, `[N]` or `[N, K]`.

    Returns:
        What makes intervals and sets.

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
        with np.errstate(invalid="ignore", divide="ignore"):  # told below, in a sentence
            distances = np.abs(y - np.asarray(pred.mean, float)) / np.asarray(pred.std, float)
    else:
        distances = 1 - _probabilities(pred)[np.arange(len(y)), y.astype(int)]
    lost = int(np.sum(~np.isfinite(distances)))
    if lost:
        raise ValueError(
            f"{lost} of {distances.size} distances are not finite: a target or a prediction is no number, or a "
            "prediction has no spread; leave such rows out of the calibration"
        )
    return Conformal(pred.support, np.sort(distances, axis=0))


def _probabilities(pred: Any) -> np.ndarray:
    return pred.support.probabilities(np.asarray(pred.mean, float))
