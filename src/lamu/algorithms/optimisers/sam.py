"""SAM: gradient descent with the worst case nearby in the place of the expectation."""

from __future__ import annotations

from typing import Any

from lamu.expectations.worst_case import WorstCase
from lamu.objective.curvature import NoCurvature
from lamu.operators import Scalar
from lamu.rate import decay, rate
from lamu.rule import Rule
from lamu.update_rules import HeavyBall, NoMomentum

__all__ = ["sam"]


def sam(learning_rate: Any = 0.1, radius: float = 0.05, momentum: float = 0.0) -> Rule:
    r"""Sharpness-aware minimisation.

    \[ \theta = m + r\, \hat g(m) / \lVert \hat g(m) \rVert, \qquad
       v \leftarrow \hat g(\theta) + (\delta / N)\, m + \beta v, \qquad m \leftarrow m - \rho\, v \]

    with \(\hat g\) the gradient of the mean negative log likelihood on a minibatch, and the prior (here Gaussian)
    outside the worst case. The rule with a fixed covariance, the expectation replaced by the largest loss in a ball.
    Two gradients a step.

    Departures from the rule: normalised ascent; momentum, where asked.

    Args:
        learning_rate: ρ a row, a number or a schedule of steps.
        radius: r, the distance of the ascent in the units of a weight.
        momentum: β in [0, 1); zero for none.

    Returns:
        The algorithm. Its posterior is the point m.

    Raises:
        ValueError: for a rate that is not positive, a negative radius, or a momentum outside [0, 1).

    Source: Foret et al. (2021), algorithm 1; Möllenhoff & Khan (2023) for its place in the rule.

    Examples:
        >>> from lamu.algorithms.optimisers.sam import sam
        >>> sam(0.1, radius=0.1, momentum=0.9).choices.departures
        ('normalised ascent', 'momentum')
    """
    return Rule(
        structure=Scalar,
        expectation=WorstCase(float(radius)),
        curvature=NoCurvature(),
        learning_rate=rate(learning_rate),
        momentum=HeavyBall(decay(momentum, "momentum")) if momentum else NoMomentum(),
    )
