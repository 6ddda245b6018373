"""Adam: a diagonal Gaussian at its mean, the curvature replaced by squares, and its root taken."""

from __future__ import annotations

from typing import Any

from lamu.expectations import Delta
from lamu.objective.curvature import SquaredGradient
from lamu.operators import Diagonal
from lamu.rate import decay, rate
from lamu.rule import Rule
from lamu.update_rules import BiasCorrected, InverseSquareRoot, MovingAverage

__all__ = ["adam"]


def adam(learning_rate: Any = 1e-3, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Rule:
    r"""Adam, as a row of the rule.

    \[ s \leftarrow s + (1-\beta_2)(\hat g^2 - s), \quad v \leftarrow \beta_1 v + (1-\beta_1)\hat g, \quad
       m \leftarrow m - \rho\, \frac{v / (1-\beta_1^t)}{\sqrt{s / (1-\beta_2^t)} + \epsilon} \]

    with \(\hat g\) the gradient of the mean loss on a minibatch, the prior included. One gradient a step.

    Departures from the rule: the squared minibatch gradient stands for the Hessian; the square root; momentum; bias
    correction; two rates. What is rooted is no precision: the posterior is the point m.

    Args:
        learning_rate: ρ, a number or a schedule of steps.
        b1: β₁, the decay of the averaged gradient.
        b2: β₂, the decay of the averaged squares.
        eps: ε.

    Returns:
        The algorithm.

    Raises:
        ValueError: for a rate that is not positive, or a decay outside [0, 1).

    Source: Kingma & Ba (2015); Khan & Rue (2021), section 4.2.

    Examples:
        >>> import lamu
        >>> lamu.algorithms.adam().choices.family
        'Gaussian, diagonal precision'
    """
    return Rule(
        structure=Diagonal,
        expectation=Delta(),
        curvature=SquaredGradient(),
        learning_rate=rate(learning_rate),
        precision_rate=rate(1.0 - decay(b2, "b2"), "1 - b2"),
        momentum=MovingAverage(decay(b1, "b1")),
        metric=BiasCorrected(InverseSquareRoot(float(eps))),
        hess_init=0.0,
    )
