"""Temperature scaling: one number, fitted on held-out rows, that corrects the confidence of a model."""

from __future__ import annotations

import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy

from lamu.base.choose import bounded, choose
from lamu.base.compile_once import row_keys
from lamu.data.arrays import FewRows
from lamu.predictives import Predictive
from lamu.predictives.lazy import draw_in_chunks
from lamu.predictives.wrapper import PredictiveWrapper, RescaledPredictive
from lamu.record import record, static
from lamu.scores.proper_scores import row_counts, target
from lamu.supports import Support
from lamu.typing import Array, Number, Prediction, RandomKey, Targets

__all__ = ["Temperature", "TemperedClasses", "Widened", "may_be_stretched", "temperature_scaling"]


def may_be_stretched(support: Support) -> bool:
    """Returns whether targets may be any real number, so that stretched values are valid."""
    ends = math.isfinite(support.lower), math.isfinite(support.upper)
    return support.ordered and not (support.has_classes or support.discrete or any(ends))


@record
class TemperedClasses(PredictiveWrapper):
    r"""Class probabilities to the power 1/T, \(\tilde p_k \propto \bar p_k^{1/T}\), of averaged predictive ones.

    The epistemic share of the uncertainty is unchanged: a temperature changes its size, not its source.

    Attributes:
        base: the prediction, of classes or a binary target.
        temperature: T; above one is less confident.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.calibration import TemperedClasses
        >>> from lamu.likelihoods import Bernoulli
        >>> from lamu.predictives import MixturePredictive
        >>> pred = MixturePredictive.equal(Bernoulli(), {}, jnp.log(jnp.full((1, 1, 1), 9.0)))
        >>> round(float(TemperedClasses(pred, 2.0).mean[0]), 6)
        0.75
    """

    base: Any
    temperature: Number

    @property
    def mean(self) -> Array:
        p = self._tempered(jnp.log(self._floored))
        return p[:, 1] if jnp.ndim(self.base.mean) == 1 else p

    @property
    def variance(self) -> Array:
        """The variances of the probabilities, p (1 − p)."""
        mean = self.mean
        return mean * (1 - mean)

    @property
    def aleatoric(self) -> Array:
        """The remainder of the entropy."""
        return self._entropy * (1 - self._share)

    @property
    def epistemic(self) -> Array:
        """The share of the entropy that was epistemic in the base prediction."""
        return self._entropy * self._share

    def log_prob(self, y: Targets) -> Array:
        """Returns the log probability of each target in nats, `[N]`."""
        scaled = jax.nn.log_softmax(jnp.log(self._floored) / self.temperature, axis=-1)
        return jnp.take_along_axis(scaled, self._labels(y)[:, None], axis=-1)[:, 0]

    def left_out(self, y: Targets) -> tuple[Array, ...]:
        """Returns `log_prob(y)` without each of the draws: one pass per class."""
        labels, target = self._labels(y), self.support.targets
        each = [self.base.left_out(target(jnp.full_like(labels, k))) for k in range(self._floored.shape[1])]

        def chosen(*of_classes: Array) -> Array:  # each [draws, N]
            scaled = jax.nn.log_softmax(jnp.stack(of_classes, axis=-1) / self.temperature, axis=-1)
            index = jnp.broadcast_to(labels[None, :, None], (*scaled.shape[:2], 1))
            return jnp.take_along_axis(scaled, index, axis=-1)[..., 0]

        return tuple(chosen(*group) for group in zip(*each, strict=True))

    def cdf(self, y: Targets) -> Array:
        """Raises a TypeError: classes have no distribution function."""
        raise TypeError("classes have no cdf, which is for regression; use mean, the probabilities of the classes")

    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Array:
        logits = jnp.log(self._floored) / self.temperature

        def draw(key: RandomKey) -> Array:
            drawn = jax.vmap(jax.random.categorical)(row_keys(key, logits.shape[0], first), logits)
            return self.support.targets(drawn)

        return draw_in_chunks(draw, jax.random.split(key, n))

    def _labels(self, y: Targets) -> Array:
        return self.support.numbers(jnp.asarray(y).astype(jnp.int32))

    @property
    def _floored(self) -> Array:
        p = self.base.probabilities
        return jnp.maximum(p, jnp.finfo(p.dtype).tiny)  # keeps the logarithm of an underflowed probability finite

    @property
    def _entropy(self) -> Array:
        p = self._tempered(jnp.log(self._floored))
        return -jnp.sum(xlogy(p, p), axis=-1)

    @property
    def _share(self) -> Array:
        total, epistemic = self.base.total, self.base.epistemic
        return jnp.where(total > 0, epistemic / jnp.where(total > 0, total, 1), 0)

    def _tempered(self, logits: Array) -> Array:
        return jax.nn.softmax(logits / self.temperature, axis=-1)


@record
class Widened(RescaledPredictive):
    r"""A prediction of real numbers stretched about its mean, \(\tilde y = m + c\,(y - m)\).

    Both kinds of uncertainty are multiplied by c². Counts, angles, and bounded numbers would leave their
    support, and raise an error.

    Attributes:
        base: the prediction.
        factor: c; above one is less confident.

    Raises:
        ValueError: for targets that are not all real numbers.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.calibration import Widened
        >>> from lamu.predictives import GaussianPredictive
        >>> pred = GaussianPredictive(jnp.zeros(1), jnp.ones((1, 1, 1)), jnp.ones(1))
        >>> float(Widened(pred, 3.0).std[0])
        3.0
    """

    base: Any
    factor: Number

    def __post_init__(self) -> None:
        if not may_be_stretched(self.base.support):
            raise ValueError(
                "a temperature stretches predictions of real numbers, and targets that are "
                f"{self.base.support.values} would leave their support; use conformal(pred, y) for intervals, or a "
                "likelihood whose dispersion is learned"
            )

    @property
    def factors(self) -> Array:
        return jnp.full_like(self.base.mean, self.factor)

    @property
    def mean(self) -> Array:
        return self.base.mean

    def forward(self, values: Array) -> Array:
        """Returns m + c (y − m)."""
        return self.mean + self.factor * (values - self.mean)

    def backward(self, y: Array) -> Array:
        """Returns m + (y − m)/c."""
        return self.mean + (y.astype(self.mean.dtype) - self.mean) / self.factor


# \[ \tilde p_k \propto \bar p_k^{1/T} \quad\text{(classes)}, \qquad \tilde y = m + c\,(y - m) \quad\text{(regression)}
# \]
#
# Counts, shares, angles, and bounded numbers would leave their support by the second, and raise an error.


_REACH = 7.0  # bound of the search over the logarithm of the temperature


@record
class Temperature:
    """Result of `temperature_scaling`; calibrates any prediction of the same support.

    Attributes:
        value: T for classes, the factor c of the spread for regression; above one if the model was overconfident.
        support: the support of the predictions.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.calibration import Temperature
        >>> from lamu.predictives import GaussianPredictive
        >>> from lamu.supports import Real
        >>> pred = GaussianPredictive(jnp.zeros(1), jnp.ones((1, 1, 1)), jnp.ones(1))
        >>> float(Temperature(2.0, Real())(pred).std[0])
        2.0
    """

    value: Number
    support: Support = static()

    def __call__(self, pred: Prediction) -> Predictive:
        """Returns the calibrated prediction, with all methods of a prediction."""
        if pred.support != self.support:
            raise ValueError(
                f"calibrated on predictions of {self.support.values}, and this one is of {pred.support.values}"
            )
        return Widened(pred, self.value) if not self.support.has_classes else TemperedClasses(pred, self.value)


def temperature_scaling(pred: Prediction, y: Targets, weight: object = None) -> Temperature:
    r"""Fits the temperature that maximises the probability of held-out targets.

    For classes, and a binary target, T minimises \(-\sum_i \log \tilde p_{i y_i}\), which is convex in 1/T: the root of
    its derivative is found to 1e-10. It acts on the averaged probabilities; for a point estimate that is the usual
    scaling of the logits. The most probable class is unchanged. For regression c minimises the negative log density
    of the stretched prediction, by Brent's method, with about 40 evaluations of the density.
    Counts, shares, angles, and bounded numbers raise an error: stretched values would leave their support.

    The rows must be unused in training (`require_unseen` checks): on training rows a network is right too often.

    Args:
        pred: the prediction of the held-out rows.
        y: their targets, `[N]` or `[N, K]`.
        weight: the weight of each row, `[N]`; ones if None.

    Returns:
        The result, which calibrates any prediction of that support.

    Raises:
        ValueError: if no temperature is optimal (every row is right, or the model is no better than chance), a density
            is not finite, the shapes differ, weights are negative or all zero, or stretched targets would
            leave their support.

    Warns:
        lamu.data.FewRows: if the standard error of log T is above 0.35, as of four rows of a normal target.

    Source: Guo, Pleiss, Sun & Weinberger (2017); for regression Levi et al. (2022), with the exact density in the place
    of a normal one.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("digits")
        >>> model = lamu.Model(lamu.networks.MLP((32,)), lamu.likelihoods.Categorical(10), lamu.priors.Normal(10.0))
        >>> posterior = lamu.fit(model, (x[:600], y[:600]), lamu.algorithms.adam(1e-2), epochs=20).posterior
        >>> calibrate = lamu.calibration.temperature_scaling(posterior.predict(x[600:1000]), y[600:1000])
        >>> pred = posterior.predict(x[1000:])
        >>> lamu.scores.nll(calibrate(pred), y[1000:]) < lamu.scores.nll(pred, y[1000:])
        True
    """
    y = target("temperature_scaling", pred, y)
    if pred.support.has_classes and y.ndim > 1:
        raise ValueError(
            f"temperature_scaling takes one class a row, and these targets have the shape {y.shape}; take "
            "conformal(pred, y), which calibrates sets at every position"
        )
    counts = row_counts(weight, len(y))
    fitted = _of_classes(pred, y.astype(int), counts) if pred.support.has_classes else _spread(pred, y, counts)
    value, error = fitted[0], 1.0 / math.sqrt(max(fitted[1] * float(counts.sum()), _TINY))
    if error > _UNKNOWN:
        warnings.warn(
            f"{counts.sum():.6g} rows hardly determine the temperature, which is {value:.3g} up to a factor of "
            f"{math.exp(error):.3g} (its standard error); calibrate on more rows",
            FewRows,
            stacklevel=2,
        )
    return Temperature(value, pred.support)


_STEP, _TINY = 0.1, 1e-300  # of log T, by which its information is found
_UNKNOWN = 0.35  # standard error of log T: of a normal target that of four rows


def _of_classes(pred: Prediction, y: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Returns the temperature, and the information of a row about its logarithm."""
    from scipy.optimize import brentq

    p = np.asarray(pred.mean)
    tiny = float(np.finfo(p.dtype).tiny)
    p = p.astype(float)
    logits = np.log(np.maximum(pred.support.probabilities(p), tiny))
    differences = logits - logits[np.arange(len(y)), y][:, None]
    if not np.isfinite(differences).all():
        raise ValueError("a probability is not a number; leave such rows out of the calibration")

    def slope(log_coldness: float) -> float:
        """The derivative of the mean negative log likelihood by β = 1/T: E_β[z] − z_y."""
        scaled = differences * math.exp(log_coldness)
        weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        return float(np.average(np.sum(weights * differences, axis=1) / np.sum(weights, axis=1), weights=counts))

    if slope(-_REACH) >= 0:
        raise ValueError(
            f"on these {len(y)} rows the model is no better than chance, so that no temperature would be flat enough; "
            "look at the model, or at whether the targets belong to these predictions"
        )
    if slope(_REACH) <= 0:
        raise ValueError(
            f"all {len(y)} rows are predicted right (or nearly), so that no temperature would be cold enough; "
            "calibrate on more rows"
        )
    root: Any = brentq(slope, -_REACH, _REACH, xtol=1e-10)
    coldness = math.exp(float(root))
    return 1.0 / coldness, coldness * (slope(root + _STEP) - slope(root - _STEP)) / (2.0 * _STEP)


def _spread(pred: Prediction, y: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Returns the factor of the spread, and the information of a row about its logarithm."""
    targets = jnp.asarray(y, jnp.result_type(float))

    def loss(log_factor: float) -> float:
        log_prob = np.asarray(Widened(pred, math.exp(log_factor)).log_prob(targets), float)
        return -float(np.average(log_prob, weights=counts))

    if not math.isfinite(loss(0.0)):
        raise ValueError("a target has no finite density under its prediction; leave such rows out of the calibration")
    best = float(choose(loss, bounded, -_REACH, _REACH, tolerance=1e-6).best)
    if abs(best) > _REACH - 0.1:
        raise ValueError(
            f"the spread would have to be multiplied by {math.exp(best):.3g}, which no calibration mends; "
            "look at the model, or at whether the targets belong to these predictions"
        )
    return math.exp(best), (loss(best + _STEP) + loss(best - _STEP) - 2.0 * loss(best)) / _STEP**2
