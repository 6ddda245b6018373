"""IVON: the improved variational online Newton method."""

from __future__ import annotations

from typing import Any

from lamu.expectations import MonteCarlo
from lamu.geometry import Retraction
from lamu.objective.curvature import Curvature, Price
from lamu.operators import Diagonal
from lamu.rate import Annealed, PolynomialAverage, Rate, averaging, decay, rate
from lamu.rule import Rule
from lamu.update_rules import ByFanIn, Clipped, Inverse, MovingAverage

__all__ = ["ivon"]


def ivon(
    learning_rate: Any = Annealed(0.3, warmup=0.1),
    b1: float = 0.9,
    b2: float | Rate = PolynomialAverage(),
    samples: int = 1,
    hess_init: float | None = None,
    max_step: float | ByFanIn | None = ByFanIn(0.02),
    curvature: Curvature | None = None,
    momentum: Any = None,
) -> Rule:
    r"""Improved variational online Newton: a diagonal Gaussian at the price of Adam.

    With \(\theta = m + \epsilon / \sqrt{\kappa P}\), \(\hat g\) the minibatch gradient of the mean negative log
    likelihood at θ, h the curvature a row and \(P = h + \delta/N\):

    \[ \hat h = \hat g\,(\theta - m)\,\kappa P, \quad
       P \leftarrow P + \rho\,\Delta + \tfrac12 \rho^2 \Delta^2 / P, \quad \Delta = \hat h + \delta/N - P, \quad
       \rho = 1 - \beta_2 \]
    \[ v \leftarrow \beta_1 v + (1-\beta_1)\hat g, \qquad
       m \leftarrow m - \alpha\, \mathrm{clip}_r\,\frac{v/(1-\beta_1^t) + (\delta/N)(m - m_0)}{P} \]

    One gradient and one normal draw a parameter, draw and step.

    The options of the authors' package have these names here: `mc_samples` is `samples`; `clip_radius` is
    `max_step`; `hess_approx="gradsq"` is `curvature=SquaredGradient()`; `debias=False` is
    `momentum=PlainAverage(b1)`; `ess` is `data_size` of `lamu.fit`; `weight_decay` is the prior's precision over N.
    Its `rescale_lr` multiplies the rate by the first precision: `learning_rate=rate * (hess_init + δ/N)`.

    Departures from the rule: the retraction (equal to the rule to O(ρ²)), momentum with bias correction, two rates,
    clipped steps.

    Args:
        learning_rate: α, a number, a schedule of steps, or `Annealed`.
        b1: β₁, the decay of the averaged gradient.
        b2: the average of the curvature: a decay β₂, whose memory is 1/(1 − β₂) steps and begins with h₀, or a rate;
            `PolynomialAverage()`, whose memory is the last quarter of the run and forgets the start.
        samples: how many Monte Carlo draws a step.
        hess_init: h₀, the curvature a row at the start; where None, the mean over each leaf of the Fisher information
            of some rows at the network's initial weights.
        max_step: the largest coordinate of a step at rate one: a number, or `lamu.update_rules.ByFanIn`, the default,
            which is smaller in kernels of many inputs; None where steps are not clipped.
        curvature: what stands for the Hessian at a draw; Price's identity where none is given,
            `lamu.objective.curvature.SquaredGradient()` for the positive, biased variant.
        momentum: what is followed in the place of the gradient; `lamu.update_rules.MovingAverage(b1)` unless given.

    Returns:
        The algorithm. Its posterior is the diagonal Gaussian about the weights; learned dispersions are a point.

    Raises:
        ValueError: for a rate or a radius that is not positive, a decay outside [0, 1), or fewer than one draw.

    Source: Shen et al. (2024), algorithm 1; Lin, Schmidt & Khan (2020).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), lamu.algorithms.ivon(), epochs=20)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.95
        True
    """
    return Rule(
        structure=Diagonal,
        expectation=MonteCarlo(samples),
        curvature=Price() if curvature is None else curvature,
        geometry=Retraction(),
        learning_rate=rate(learning_rate),
        precision_rate=averaging(b2, "b2"),
        momentum=MovingAverage(decay(b1, "b1")) if momentum is None else momentum,
        metric=Inverse() if max_step is None else Clipped(Inverse(), max_step),
        hess_init=hess_init,
    )
