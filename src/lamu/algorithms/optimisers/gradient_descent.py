"""Gradient descent: the rule with a fixed covariance, at the mean."""

from __future__ import annotations

from typing import Any

from lamu.expectations import Delta
from lamu.objective.curvature import NoCurvature
from lamu.operators import Scalar
from lamu.rate import rate
from lamu.rule import Rule

__all__ = ["gradient_descent"]


def gradient_descent(learning_rate: Any = 0.1) -> Rule:
    r"""Gradient descent on the mean loss.

    \[ m \leftarrow m - \rho\, \nabla\bar\ell(m) \]

    The rule for a Gaussian with the covariance fixed at \(1/\kappa\): its entropy is constant, so the entropy term
    drops, and the delta method puts the gradient at the mean. One gradient a step.

    Departures from the rule: none.

    Args:
        learning_rate: ρ a row (as in optax on the mean loss), a number or a schedule of steps.

    Returns:
        The algorithm. Its posterior is the point m.

    Raises:
        ValueError: for a rate that is not positive.

    Source: Khan & Rue (2021), section 1.3.1, equation 4.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=55.0)).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), lamu.algorithms.gradient_descent(0.1), epochs=2, batch_size=442)
        >>> bool(fit.history["loss"][-1] < fit.history["loss"][0])
        True
    """
    return Rule(structure=Scalar, expectation=Delta(), curvature=NoCurvature(), learning_rate=rate(learning_rate))
