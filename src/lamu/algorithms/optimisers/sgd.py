"""Stochastic gradient descent: gradient descent on minibatches, with momentum where asked."""

from __future__ import annotations

from typing import Any

from lamu.expectations import Delta
from lamu.objective.curvature import NoCurvature
from lamu.operators import Scalar
from lamu.rate import decay, rate
from lamu.rule import Rule
from lamu.update_rules import HeavyBall, NoMomentum

__all__ = ["sgd"]


def sgd(learning_rate: Any = 0.1, momentum: float = 0.0) -> Rule:
    r"""Stochastic gradient descent with heavy-ball momentum.

    \[ v \leftarrow \hat g(m) + \beta v, \qquad m \leftarrow m - \rho\, v \]

    with \(\hat g\) the gradient of the mean loss on a minibatch. One gradient a step.

    Departures from the rule: the gradient is a minibatch's; momentum, where asked.

    Args:
        learning_rate: ρ a row, a number or a schedule of steps.
        momentum: β in [0, 1); zero for none.

    Returns:
        The algorithm. Its posterior is the point m.

    Raises:
        ValueError: for a rate that is not positive, or a momentum outside [0, 1).

    Source: Khan & Rue (2021), section 4.1.

    Examples:
        >>> import lamu
        >>> lamu.algorithms.sgd(0.1, momentum=0.9).choices.departures
        ('momentum',)
    """
    return Rule(
        structure=Scalar,
        expectation=Delta(),
        curvature=NoCurvature(),
        learning_rate=rate(learning_rate),
        momentum=HeavyBall(decay(momentum, "momentum")) if momentum else NoMomentum(),
    )
