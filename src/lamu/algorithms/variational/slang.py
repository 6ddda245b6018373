"""SLANG: a Gaussian whose precision is a low rank plus a diagonal."""

from __future__ import annotations

from typing import Any

from lamu.expectations import MonteCarlo
from lamu.geometry import Compressed
from lamu.objective.curvature import LowRankGradients
from lamu.operators import LowRankStructure
from lamu.rate import Annealed, PolynomialAverage, Rate, averaging, decay, rate
from lamu.rule import Rule
from lamu.update_rules import ByFanIn, Clipped, Inverse, MovingAverage

__all__ = ["slang"]


def slang(
    learning_rate: Any = Annealed(0.5),
    rank: int = 5,
    b1: float = 0.9,
    b2: float | Rate = PolynomialAverage(),
    samples: int = 1,
    directions: int | None = None,
    hess_init: float | None = None,
    max_step: float | ByFanIn | None = ByFanIn(0.02),
    curvature_update_period: int = 10,
) -> Rule:
    r"""SLANG: structured, low-rank approximate natural gradients, for a Gaussian that holds the strongest correlations.

    The precision a row is \(P = U U^\top + D\) with L columns in U. With \(\theta \sim q\), \(g_i\) the gradient of row
    i's negative log likelihood at θ, and \(\rho = 1 - \beta_2\):

    \[ P' = (1-\rho)\, P + \rho\, \Big(\tfrac1B \sum_i g_i g_i^\top + \tfrac{\delta}{N} I\Big), \qquad
       U \leftarrow \mathrm{top}_L\big[\sqrt{1-\rho}\, U,\; \sqrt{\rho/B}\, G\big], \qquad
       D \leftarrow \mathrm{diag}(P' - U U^\top) \]
    \[ v \leftarrow \beta_1 v + (1-\beta_1)\tfrac1B \sum_i g_i, \qquad
       m \leftarrow m - \alpha\, \mathrm{clip}_r\, P^{-1} \Big( \frac{v}{1-\beta_1^t} + (\delta/N)(m - m_0) \Big) \]

    The diagonal of P is that of `vogn`, exactly; correlations come on top. The batch's G is first cut to its own
    leading `directions` (L of them unless said otherwise), which costs as many products of the backward pass and none
    of the forward pass; cutting [U, G] at once would cost L of each, and gains less than a tenth of a nat on a logistic
    regression of fifteen coordinates. No row's gradient is held.

    Cost: one gradient, one draw and four readings of U; and every `curvature_update_period` steps, for the curvature
    of all of them, a product for the diagonal, as `vogn`, the rows' inner products and `directions` products of the
    backward pass. Memory: L copies of the parameters, and as many again in passing.

    Departures from the rule: the outer products of single rows' gradients stand for the Hessian, the leading ones with
    an exact diagonal; projection back to the rank; curvature every so many steps; momentum with bias correction; two
    rates; clipped steps.

    Args:
        learning_rate: α, a number, a schedule of steps, or `Annealed`.
        rank: L, the number of columns of U.
        b1: β₁, the decay of the averaged gradient.
        b2: the average of the curvature: a decay β₂, whose memory is 1/(1 − β₂) steps and begins with h₀, or a rate;
            `PolynomialAverage()`, whose memory is the last quarter of the run and forgets the start.
        samples: how many Monte Carlo draws a step.
        directions: how many directions are kept of a batch's gradients; the rank where it is None.
        hess_init: h₀, the curvature a row at the start; where None, the mean over each leaf of the Fisher information
            of some rows at the network's initial weights.
        max_step: the largest coordinate of a step at rate one: a number, or `lamu.update_rules.ByFanIn`, the default,
            which is smaller in kernels of many inputs; None where steps are not clipped.
        curvature_update_period: the steps between curvature updates, each as large as that many; 1 is the paper's.

    Returns:
        The algorithm. Its posterior is the Gaussian about the weights; learned dispersions are a point.

    Raises:
        ValueError: for a rate or a radius that is not positive, a decay outside [0, 1), or fewer than one column,
            direction, draw or step of a period.
        TypeError: (when it runs) for a network with a state, or a prior that is not Gaussian.

    Source: Mishkin, Kunstner, Nielsen, Schmidt & Khan (2018), algorithm 1, without momentum and with one rate.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.variational.slang import slang
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), slang(rank=2), epochs=20)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.95
        True
    """
    structure = LowRankStructure(rank)
    return Rule(
        structure=structure,
        expectation=MonteCarlo(samples),
        curvature=LowRankGradients(rank if directions is None else directions),
        geometry=Compressed(),
        learning_rate=rate(learning_rate),
        precision_rate=averaging(b2, "b2"),
        momentum=MovingAverage(decay(b1, "b1")),
        metric=Inverse() if max_step is None else Clipped(Inverse(), max_step),
        hess_init=hess_init,
        curvature_update_period=curvature_update_period,
    )
