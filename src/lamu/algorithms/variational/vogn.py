"""VOGN: variational online Gauss–Newton."""

from __future__ import annotations

from typing import Any

from lamu.expectations import MonteCarlo
from lamu.objective.curvature import SquaredGradients
from lamu.operators import Diagonal
from lamu.rate import Annealed, PolynomialAverage, Rate, averaging, decay, rate
from lamu.rule import Rule
from lamu.update_rules import ByFanIn, Clipped, DampedInverse, Inverse, MovingAverage

__all__ = ["vogn"]


def vogn(
    learning_rate: Any = Annealed(0.3, warmup=0.1),
    b1: float = 0.9,
    b2: float | Rate | None = PolynomialAverage(),
    samples: int = 1,
    hess_init: float | None = None,
    max_step: float | ByFanIn | None = ByFanIn(0.02),
    damping: float = 0.0,
    structure: Any = Diagonal,
    momentum: Any = None,
) -> Rule:
    r"""Variational online Gauss–Newton: a diagonal Gaussian, its curvature from the squares of single rows' gradients.

    With \(\theta \sim q\), \(g_i\) the gradient of row i's negative log likelihood at θ, and \(P = h + \delta/N\):

    \[ h \leftarrow h + (1-\beta_2)\Big(\tfrac1B \sum_i g_i^2 - h\Big), \quad
       v \leftarrow \beta_1 v + (1-\beta_1)\tfrac1B \sum_i g_i, \quad
       m \leftarrow m - \alpha\, \mathrm{clip}_r\,\frac{v/(1-\beta_1^t) + (\delta/N)(m - m_0)}{P} \]

    One draw a parameter and two backward passes' worth of products a draw and step; no row's gradient is held
    (`lamu.objective.curvature.reader`).

    Departures from the rule: the squares of single rows' gradients stand for the Hessian; momentum with bias
    correction; two rates; clipped steps; damping, where asked. Its derivation makes five approximations, each of which
    can be taken back:

    | approximation | taken back by |
    |---|---|
    | a minibatch for the data | `batch_size=N` in `lamu.fit` |
    | the average of S written as that of h | nothing: \(P = h + \delta/N\) holds exactly where δ does not change |
    | mean field | `structure=lamu.operators.Dense`, or `DenseBlocks` for a full matrix a layer |
    | Gauss–Newton (squares) for the Hessian | `von()` |
    | two rates | `b2=None`: the curvature moves at the rate of the mean, as the rule has it |

    Osawa's factor for augmented data, ρ, by which the data counts more than its rows, is `data_size=ρ N` in
    `lamu.fit`; a warm start is `model.starting_at(params)`.

    Args:
        learning_rate: α, a number, a schedule of steps, or `Annealed`.
        b1: β₁, the decay of the averaged gradient.
        b2: the average of the curvature: a decay β₂, whose memory is 1/(1 − β₂) steps and begins with h₀, or a rate;
            `PolynomialAverage()`, whose memory is the last quarter of the run and forgets the start; None for 1 − α,
            which is the rule's one rate.
        samples: how many Monte Carlo draws a step.
        hess_init: h₀, the curvature a row at the start; where None, the mean over each leaf of the Fisher information
            of some rows at the network's initial weights.
        max_step: the largest coordinate of a step at rate one: a number, or `lamu.update_rules.ByFanIn`, the default,
            which is smaller in kernels of many inputs; None where steps are not clipped.
        damping: γ, external damping: steps are divided by P + γ, and P itself, the belief's, stays as it is.
        structure: the operator class of the precision.
        momentum: what is followed in the place of the gradient; `lamu.update_rules.MovingAverage(b1)` unless given.

    Returns:
        The algorithm. Its posterior is the Gaussian about the weights; learned dispersions are a point.

    Raises:
        ValueError: for a rate or a radius that is not positive, a decay outside [0, 1), a negative damping, or fewer
            than one draw.
        TypeError: (when it runs) for a network with a state, or a prior that is not Gaussian.

    Source: Khan et al. (2018), equations 11 and 12; Osawa et al. (2019).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), lamu.algorithms.vogn(), epochs=20)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.95
        True
    """
    if damping < 0:
        raise ValueError(f"damping={damping!r} would lengthen steps; give a number that is not negative")
    metric = DampedInverse(float(damping)) if damping else Inverse()
    return Rule(
        structure=structure,
        expectation=MonteCarlo(samples),
        curvature=SquaredGradients(),
        learning_rate=rate(learning_rate),
        precision_rate=None if b2 is None else averaging(b2, "b2"),
        momentum=MovingAverage(decay(b1, "b1")) if momentum is None else momentum,
        metric=metric if max_step is None else Clipped(metric, max_step),
        hess_init=hess_init,
    )
