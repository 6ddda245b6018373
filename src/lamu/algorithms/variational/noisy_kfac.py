"""Noisy K-FAC: a matrix-variate Gaussian a layer."""

from __future__ import annotations

from typing import Any

from lamu.expectations import MonteCarlo
from lamu.geometry.factorwise import Factorwise, Shifted
from lamu.objective.curvature import SampledGaussNewton
from lamu.operators.kronecker_blocks import KroneckerFactored
from lamu.rate import Annealed, PolynomialAverage, Rate, averaging, decay, rate
from lamu.rule import Rule
from lamu.update_rules import Clipped, MovingAverage

__all__ = ["noisy_kfac"]


def noisy_kfac(
    learning_rate: Any = Annealed(0.3),
    b1: float = 0.9,
    b2: float | Rate = PolynomialAverage(),
    samples: int = 1,
    hess_init: float | None = None,
    damping: float = 1e-3,
    max_step: float | None = 0.05,
    inverse_update_period: int = 20,
    rank: int | None = 32,
    factor_update_period: int = 10,
    diagonal: Any = (),
) -> Rule:
    r"""Noisy natural gradient with Kronecker factors: a Gaussian that knows the correlations inside each layer.

    With \(\theta \sim q\), and for each layer \(a_i\) its inputs (one, for the bias, among them) and \(d_i\) the
    cotangents of its outputs with labels drawn from the model, \(P = A \otimes B + \delta/N\):

    \[ A \leftarrow A + (1-\beta_2)\Big(\tfrac1M \sum_i a_i a_i^\top - A\Big), \qquad
       B \leftarrow B + (1-\beta_2)\Big(\tfrac1M \sum_i d_i d_i^\top - B\Big) \]
    \[ v \leftarrow \beta_1 v + (1-\beta_1) \hat g, \qquad
       m \leftarrow m - \alpha\, \mathrm{clip}_r\, (P + \gamma)^{-1}
       \big(v/(1-\beta_1^t) + (\delta/N)(m - m_0)\big) \]

    A Gaussian prior enters a layer by the mean of its precisions there: exactly, where it has one width a layer.

    Cost: one draw, one gradient and eight products with a few eigenvectors a step; every `factor_update_period`
    steps a second backward pass, without the gradients of the weights, and a product for each factor; every
    `factor_update_period * inverse_update_period` steps the eigenvectors.

    Departures from the rule: the factors are averaged apart, and taken every so many steps; directions and draws are
    made with older factors, wide layers by their leading eigenvectors; momentum with bias correction; two rates;
    damping; clipped steps.

    Args:
        learning_rate: α, a number, a schedule of steps, or `Annealed`.
        b1: β₁, the decay of the averaged gradient.
        b2: the average of the factors: a decay β₂, whose memory is 1/(1 − β₂) steps and begins with h₀, or a rate;
            `PolynomialAverage()`, whose memory is the last quarter of the run and forgets the start.
        samples: how many Monte Carlo draws a step.
        hess_init: h₀, the curvature a row at the start; where None, the mean over each leaf of the Fisher information
            of some rows at the network's initial weights.
        damping: γ, the external damping of the steps; it does not touch the belief.
        max_step: the largest coordinate of a step at rate one; None where steps are not clipped.
        inverse_update_period: after how many moves of the factors they are decomposed anew.
        rank: how many eigenvectors of each factor are kept, all others having the mean of their eigenvalues; layers no
            wider than that keep all. None for all of them.
        diagonal: path patterns of leaves that get a diagonal in the place of factors.
        factor_update_period: every how many steps the factors are taken, and moved as far as that many steps would.

    Returns:
        The algorithm. Its posterior is the Gaussian about the weights; learned dispersions are a point.

    Raises:
        ValueError: for a rate or a radius that is not positive, a decay outside [0, 1), a negative damping, fewer than
            one draw, or a pattern that matches no leaf (when it runs).
        TypeError: (when it runs) for a network with a state, a prior that is not Gaussian, or weights of two axes that
            are no kernel.

    Source: Zhang, Sun, Duvenaud & Grosse (2018), algorithm 2.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.variational.noisy_kfac import noisy_kfac
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), noisy_kfac(), epochs=20)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.95
        True
    """
    metric = Shifted(damping)
    return Rule(
        structure=KroneckerFactored(diagonal, rank),
        expectation=MonteCarlo(samples),
        curvature=SampledGaussNewton(),
        geometry=Factorwise(inverse_update_period),
        learning_rate=rate(learning_rate),
        precision_rate=averaging(b2, "b2"),
        momentum=MovingAverage(decay(b1, "b1")),
        metric=metric if max_step is None else Clipped(metric, max_step),
        hess_init=hess_init,
        curvature_update_period=factor_update_period,
    )
