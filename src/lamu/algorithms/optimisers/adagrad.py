"""Adagrad: RMSprop that never forgets."""

from __future__ import annotations

from typing import Any

from lamu.expectations import Delta
from lamu.geometry import Accumulation
from lamu.objective.curvature import SquaredGradient
from lamu.operators import Diagonal
from lamu.rate import rate
from lamu.rule import Rule
from lamu.update_rules import RootOfSum

__all__ = ["adagrad"]


def adagrad(learning_rate: Any = 0.1, hess_init: float = 0.1, eps: float = 1e-7) -> Rule:
    r"""Adagrad, as a row of the rule: the rule without its entropy, which is what forgets.

    \[ s \leftarrow s + \hat g^2, \qquad m \leftarrow m - \rho\, \frac{\hat g}{\sqrt{s + \epsilon}} \]

    with \(\hat g\) the gradient of the mean loss on a minibatch, the prior included. One gradient a step.

    Departures from the rule: the squared minibatch gradient stands for the Hessian; the square root; no forgetting; two
    rates, that of s being 1. What is rooted is no precision: the posterior is the point m.

    Args:
        learning_rate: ρ, a number or a schedule of steps.
        hess_init: s at the start.
        eps: ε, under the root.

    Returns:
        The algorithm.

    Raises:
        ValueError: for a rate that is not positive.

    Source: Duchi, Hazan & Singer (2011), with a diagonal.

    Examples:
        >>> from lamu.algorithms.optimisers.adagrad import adagrad
        >>> adagrad().choices.departures
        ('square root', 'two rates', 'no forgetting')
    """
    return Rule(
        structure=Diagonal,
        expectation=Delta(),
        curvature=SquaredGradient(),
        geometry=Accumulation(),
        learning_rate=rate(learning_rate),
        precision_rate=rate(1.0),
        metric=RootOfSum(float(eps)),
        hess_init=float(hess_init),
    )
