"""bSAM: SAM with a diagonal Gaussian whose width it learns."""

from __future__ import annotations

from typing import Any

from lamu.expectations.worst_case import FenchelRelaxation
from lamu.objective.curvature import Damped, RootScaledGradient
from lamu.operators import Diagonal
from lamu.rate import Annealed, decay, rate
from lamu.rule import Rule
from lamu.update_rules import PlainAverage

__all__ = ["bsam"]


def bsam(
    learning_rate: Any = Annealed(0.5, warmup=0.1),
    b1: float = 0.9,
    b2: float = 0.999,
    radius: float = 0.01,
    damping: float = 0.1,
    hess_init: float = 1.0,
) -> Rule:
    r"""Bayesian sharpness-aware minimisation: a diagonal Gaussian by an optimal convex relaxation of Bayes.

    With s the precision a row, \(\hat g\) the minibatch gradient of the mean negative log likelihood, and δ/N the
    prior's precision a row:

    \[ \theta = m + z / \sqrt{\kappa s}, \quad \epsilon = r\, \hat g(\theta) / s, \quad
       s \leftarrow \beta_2 s + (1-\beta_2) \big( \sqrt{s}\, |\hat g(\theta)| + \delta/N + \gamma \big) \]
    \[ v \leftarrow \beta_1 v + (1-\beta_1) \big( \hat g(m + \epsilon) + (\delta/N)(m - m_0) \big), \qquad
       m \leftarrow m - \alpha\, v / s \]

    with the new s in the last step, as the rule has it. Two gradients and one normal draw a parameter and step.

    Departures from the rule: the root-scaled absolute gradient stands for the Hessian; momentum, not corrected for its
    start; two rates; damping, which narrows the belief too.

    Args:
        learning_rate: α, a number, a schedule of steps, or `Annealed`.
        b1: β₁, the decay of the averaged gradient.
        b2: β₂, the decay of the averaged curvature.
        radius: r, the size of the ascent in the belief's own metric.
        damping: γ, in the units of the curvature of a row; zero for none.
        hess_init: s at the start, less the prior's share.

    Returns:
        The algorithm. Its posterior is the diagonal Gaussian about the weights; learned dispersions are a point.

    Raises:
        ValueError: for a rate that is not positive, a decay outside [0, 1), or a negative radius.

    Source: Möllenhoff & Khan (2023), algorithm 1.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.variational.bsam import bsam
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), bsam(), epochs=5)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.95
        True
    """
    return Rule(
        structure=Diagonal,
        expectation=FenchelRelaxation(float(radius)),
        curvature=Damped(RootScaledGradient(), float(damping)) if damping else RootScaledGradient(),
        learning_rate=rate(learning_rate),
        precision_rate=rate(1.0 - decay(b2, "b2"), "1 - b2"),
        momentum=PlainAverage(decay(b1, "b1")),
        hess_init=hess_init,
    )
