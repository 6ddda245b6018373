"""RMSprop: a diagonal Gaussian at its mean, the curvature replaced by squares, and its root taken."""

from __future__ import annotations

from typing import Any

from lamu.expectations import Delta
from lamu.objective.curvature import SquaredGradient
from lamu.operators import Diagonal
from lamu.rate import decay, rate
from lamu.rule import Rule
from lamu.update_rules import RootOfSum

__all__ = ["rmsprop"]


def rmsprop(learning_rate: Any = 1e-3, b2: float = 0.9, eps: float = 1e-8, hess_init: float = 0.0) -> Rule:
    r"""RMSprop, as a row of the rule.

    \[ s \leftarrow s + (1-\beta_2)(\hat g^2 - s), \qquad m \leftarrow m - \rho\, \frac{\hat g}{\sqrt{s + \epsilon}} \]

    with \(\hat g\) the gradient of the mean loss on a minibatch, the prior included. One gradient a step.

    Departures from the rule: the squared minibatch gradient stands for the Hessian; the square root; two rates. What is
    rooted is no precision: the posterior is the point m.

    Args:
        learning_rate: ρ, a number or a schedule of steps.
        b2: β₂, the decay of the averaged squares.
        eps: ε, under the root.
        hess_init: s at the start.

    Returns:
        The algorithm.

    Raises:
        ValueError: for a rate that is not positive, or a decay outside [0, 1).

    Source: Tieleman & Hinton (2012); Khan & Rue (2021), section 4.2.

    Examples:
        >>> from lamu.algorithms.optimisers.rmsprop import rmsprop
        >>> rmsprop().choices.departures
        ('square root', 'two rates')
    """
    return Rule(
        structure=Diagonal,
        expectation=Delta(),
        curvature=SquaredGradient(),
        learning_rate=rate(learning_rate),
        precision_rate=rate(1.0 - decay(b2, "b2"), "1 - b2"),
        metric=RootOfSum(float(eps)),
        hess_init=float(hess_init),
    )
