"""Temperature scaling: one number, fitted on held-out rows, that says how sure a model may be."""

# \[ \tilde p_k \propto \bar p_k^{1/T} \quad\text{(classes)}, \qquad \tilde y = m + c\,(y - m) \quad\text{(regression)}
# \]
#
# Counts, shares, angles, and numbers with an end would leave their support by the second, and are refused.

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from lamu.calibration.tempered import TemperedClasses, Widened
from lamu.predictives import Predictive
from lamu.record import record, static
from lamu.scores.validation import target
from lamu.supports import Support
from lamu.typing import Number

__all__ = ["Temperature", "temperature_scaling"]

_REACH = 7.0  # logarithms of temperatures are looked for between −7 and 7


@record
class Temperature:
    """What `temperature_scaling` learns; called with any prediction of the same support it returns the calibrated one.

    Attributes:
        value: T for classes, the factor c of the spread for regression; above one means that the model was too sure.
        support: that of the predictions.

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

    def __call__(self, pred: Any) -> Predictive:
        """Returns the calibrated prediction, which may be asked all that a prediction may."""
        if pred.support != self.support:
            raise ValueError(
                f"calibrated on predictions of {self.support.values}, and this one is of {pred.support.values}"
            )
        return Widened(pred, self.value) if not self.support.has_classes else TemperedClasses(pred, self.value)


def temperature_scaling(pred: Any, y: Any) -> Temperature:
    r"""Returns the temperature that makes held-out targets most probable.

    For classes, and a binary target, T minimises \(-\sum_i \log \tilde p_{i y_i}\), which is convex in 1/T: the root of
    its derivative is found to 1e-10. It acts on the averaged probabilities; of a point estimate that is the usual
    scaling of the logits. The most probable class stays the same. For regression c minimises the negative log density
    of the stretched prediction, by golden section and parabolas, at some 40 evaluations of the density.
    Counts, shares, angles, and numbers with an end are refused: stretched ones would leave their support.

    The rows must be unseen by training (`require_unseen` looks): on its own rows a network is right too often.

    Args:
        pred: the prediction of the held-out rows.
        y: their targets, `[N]` or `[N, K]`.

    Returns:
        What turns any prediction of that support into a calibrated one.

    Raises:
        ValueError: where no temperature is best (every row is right, or the model is no better than chance), a density
            is not finite, the shapes differ, or targets that are stretched would leave their
            support.

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
    value = _spread(pred, y) if not pred.support.has_classes else _of_classes(pred, y.astype(int))
    return Temperature(value, pred.support)


def _of_classes(pred: Any, y: np.ndarray) -> float:
    from scipy.optimize import brentq

    p = np.asarray(pred.mean)
    tiny = float(np.finfo(p.dtype).tiny)
    p = p.astype(float)
    logits = np.log(np.maximum(pred.support.probabilities(p), tiny))
    away = logits - logits[np.arange(len(y)), y][:, None]
    if not np.isfinite(away).all():
        raise ValueError("a probability is no number; leave such rows out of the calibration")

    def slope(log_coldness: float) -> float:
        """The derivative of the mean negative log likelihood by β = 1/T: E_β[z] − z_y."""
        scaled = away * math.exp(log_coldness)
        weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        return float(np.mean(np.sum(weights * away, axis=1) / np.sum(weights, axis=1)))

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
    return math.exp(-float(root))


def _spread(pred: Any, y: np.ndarray) -> float:
    from scipy.optimize import minimize_scalar

    at = jnp.asarray(y, jnp.result_type(float))

    def loss(log_factor: float) -> float:
        return -float(np.mean(np.asarray(Widened(pred, math.exp(log_factor)).log_prob(at), float)))

    if not math.isfinite(loss(0.0)):
        raise ValueError("a target has no finite density under its prediction; leave such rows out of the calibration")
    found: Any = minimize_scalar(loss, bounds=(-_REACH, _REACH), method="bounded", options={"xatol": 1e-6})
    if abs(float(found.x)) > _REACH - 0.1:
        raise ValueError(
            f"the spread would have to be multiplied by {math.exp(float(found.x)):.3g}, which no calibration mends; "
            "look at the model, or at whether the targets belong to these predictions"
        )
    return math.exp(float(found.x))
