"""OGN: online Gauss–Newton, half-way between Adam and VOGN."""

from __future__ import annotations

from typing import Any

from lamu.expectations import Delta
from lamu.objective.curvature import SquaredGradients
from lamu.operators import Diagonal
from lamu.rate import Annealed, PolynomialAverage, Rate, averaging, decay, rate
from lamu.rule import Rule
from lamu.update_rules import ByFanIn, Clipped, Inverse, MovingAverage

__all__ = ["ogn"]


def ogn(
    learning_rate: Any = Annealed(0.3, warmup=0.1),
    b1: float = 0.9,
    b2: float | Rate = PolynomialAverage(),
    hess_init: float | None = None,
    max_step: float | ByFanIn | None = ByFanIn(0.02),
) -> Rule:
    r"""Online Gauss–Newton: Adam with squares of single rows' gradients, and without the square root.

    With \(g_i\) the gradient of row i's negative log likelihood at m, and \(P = h + \delta/N\):

    \[ h \leftarrow h + (1-\beta_2)\Big(\tfrac1B \sum_i g_i^2 - h\Big), \quad
       v \leftarrow \beta_1 v + (1-\beta_1)\tfrac1B \sum_i g_i, \quad
       m \leftarrow m - \alpha\, \mathrm{clip}_r\,\frac{v/(1-\beta_1^t) + (\delta/N)(m - m_0)}{P} \]

    Two backward passes' worth of products a step; no row's gradient is held (`lamu.objective.curvature.reader`). Taken
    at draws in the place of m, this is VOGN.

    Departures from the rule: the squares of single rows' gradients stand for the Hessian; momentum with bias
    correction; two rates; clipped steps.

    Args:
        learning_rate: α, a number, a schedule of steps, or `Annealed`.
        b1: β₁, the decay of the averaged gradient.
        b2: the average of the curvature: a decay β₂, whose memory is 1/(1 − β₂) steps and begins with h₀, or a rate;
            `PolynomialAverage()`, whose memory is the last quarter of the run and forgets the start.
        hess_init: h₀, the curvature a row at the start; where None, the mean over each leaf of the Fisher information
            of some rows at the network's initial weights.
        max_step: the largest coordinate of a step at rate one: a number, or `lamu.update_rules.ByFanIn`, the default,
            which is smaller in kernels of many inputs; None where steps are not clipped.

    Returns:
        The algorithm. Its posterior is the diagonal Gaussian about the weights, which at a mode is Laplace's with the
        squares for its curvature; learned dispersions are a point.

    Raises:
        ValueError: for a rate or a radius that is not positive, or a decay outside [0, 1).
        TypeError: (when it runs) for a network with a state, or a prior that is not Gaussian.

    Source: Khan & Rue (2021), section 4.4; Khan et al. (2018), equations 11 and 12, at the mean.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.variational.ogn import ogn
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), ogn(), epochs=20)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.95
        True
    """
    return Rule(
        structure=Diagonal,
        expectation=Delta(),
        curvature=SquaredGradients(),
        learning_rate=rate(learning_rate),
        precision_rate=averaging(b2, "b2"),
        momentum=MovingAverage(decay(b1, "b1")),
        metric=Inverse() if max_step is None else Clipped(Inverse(), max_step),
        hess_init=hess_init,
    )
