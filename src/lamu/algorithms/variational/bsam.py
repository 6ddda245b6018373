"""bSAM: sharpness-aware minimisation with a diagonal Gaussian belief."""

from __future__ import annotations

from typing import Any

from lamu.expectations.worst_case import WorstCaseOfDraws
from lamu.geometry import Geometry, Retraction
from lamu.objective.curvature import Curvature, Price
from lamu.operators import Diagonal
from lamu.rate import Annealed, PolynomialAverage, Rate, averaging, decay, rate
from lamu.rule import Rule
from lamu.update_rules import ByFanIn, Clipped, DampedInverse, Inverse, MovingAverage

__all__ = ["bsam"]


def bsam(
    learning_rate: Any = Annealed(0.3, warmup=0.1),
    b1: float = 0.9,
    b2: float | Rate = PolynomialAverage(),
    radius: float = 0.001,
    damping: float = 0.0,
    hess_init: float | None = None,
    max_step: float | ByFanIn | None = ByFanIn(0.02),
    curvature: Curvature | None = None,
    geometry: Geometry | None = None,
    expectation: Any = WorstCaseOfDraws,
    momentum: Any = None,
) -> Rule:
    r"""Bayesian sharpness-aware minimisation: a diagonal Gaussian whose mean follows gradients of nearby worst cases.

    With h the curvature a row, \(P = h + \delta/N\), \(\theta = m + z / \sqrt{\kappa P}\) and \(\hat g\) the
    minibatch gradient of the mean negative log likelihood:

    \[ \epsilon = r\, \hat g(\theta) / P, \quad \hat h = \hat g(\theta)\,(\theta - m)\,\kappa P, \quad
       P \leftarrow P + \rho\,\Delta + \tfrac12 \rho^2 \Delta^2 / P, \quad \Delta = \hat h + \delta/N - P \]
    \[ v \leftarrow \beta_1 v + (1-\beta_1)\, \hat g(\theta + \epsilon), \qquad
       m \leftarrow m - \alpha\, \mathrm{clip}_a\,\frac{v/(1-\beta_1^t) + (\delta/N)(m - m_0)}{P + \gamma} \]

    Two gradients and one normal draw a parameter and step. For r = 0 it is `ivon`.

    Algorithm 1 of the paper takes \(\sqrt{P}\,|\hat g(\theta)| + \gamma\) for \(\hat h\), which is no estimate of a
    curvature: it depends on the batch size, and γ counts as a precision of Nγ that neither data nor prior have. It also
    takes the second gradient at \(m + \epsilon\). These steps, of which `fit` measures how wide their belief is beside
    the expected Hessian, are

    ```python
    bsam(0.5, b2=0.999, radius=0.01, hess_init=1.0, max_step=None,
         curvature=Damped(RootScaledGradient(), 0.1), geometry=Straight(), expectation=FenchelRelaxation,
         momentum=PlainAverage(0.9))
    ```

    Departures from the rule: the ascent, which moves the mean to where the loss is flatter; the retraction; momentum
    with bias correction; two rates; clipped steps; damping of the steps, where asked.

    Args:
        learning_rate: α, a number, a schedule of steps, or `Annealed`.
        b1: β₁, the decay of the averaged gradient.
        b2: the average of the curvature: a decay β₂, whose memory is 1/(1 − β₂) steps and begins with h₀, or a rate;
            `PolynomialAverage()`, whose memory is the last quarter of the run and forgets the start.
        radius: r, the size of the ascent in the belief's own metric. The paper's 0.01 goes with its damping: where
            precisions are the belief's own, ten times smaller ones, the same r ascends much further.
        damping: γ: steps are divided by P + γ, and P itself, the belief's, stays as it is.
        hess_init: h₀, the curvature a row at the start; where None, the mean over each leaf of the Fisher information
            of some rows at the network's initial weights.
        max_step: the largest coordinate of a step at rate one: a number, or `lamu.update_rules.ByFanIn`, the default,
            which is smaller in kernels of many inputs; None where steps are not clipped.
        curvature: what stands for the Hessian at a draw; Price's identity, which is unbiased, where none is given.
        geometry: how P moves; `lamu.geometry.Retraction()`, which keeps it positive, where none is given.
        expectation: the class of the worst case, made with the radius: `lamu.expectations.WorstCaseOfDraws` or
            `lamu.expectations.FenchelRelaxation`.
        momentum: what is followed in the place of the gradient; `lamu.update_rules.MovingAverage(b1)` unless given.

    Returns:
        The algorithm. Its posterior is the diagonal Gaussian about the weights; learned dispersions are a point.

    Raises:
        ValueError: for a rate that is not positive, a decay outside [0, 1), a negative damping, or a negative radius.

    Source: Möllenhoff & Khan (2023), algorithm 1, for the ascent; Lin, Schmidt & Khan (2020) for the precision.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.variational.bsam import bsam
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), bsam(), epochs=20)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.95
        True
    """
    if damping < 0:
        raise ValueError(f"damping={damping!r} would lengthen steps; give a number that is not negative")
    metric = DampedInverse(float(damping)) if damping else Inverse()
    return Rule(
        structure=Diagonal,
        expectation=expectation(float(radius)),
        curvature=Price() if curvature is None else curvature,
        geometry=Retraction() if geometry is None else geometry,
        learning_rate=rate(learning_rate),
        precision_rate=averaging(b2, "b2"),
        momentum=MovingAverage(decay(b1, "b1")) if momentum is None else momentum,
        metric=metric if max_step is None else Clipped(metric, max_step),
        hess_init=hess_init,
    )
