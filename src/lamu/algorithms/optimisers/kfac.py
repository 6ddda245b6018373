"""K-FAC: the natural gradient with Kronecker factors."""

from __future__ import annotations

from typing import Any

from lamu.expectations import Delta
from lamu.geometry.factorwise import Factorwise, Shifted
from lamu.objective.curvature import SampledGaussNewton
from lamu.operators.kronecker_blocks import KroneckerFactored
from lamu.rate import Annealed, decay, rate
from lamu.rule import Rule
from lamu.update_rules import Clipped, MovingAverage

__all__ = ["kfac"]


def kfac(
    learning_rate: Any = Annealed(0.3),
    b1: float = 0.9,
    b2: float = 0.999,
    hess_init: float = 0.5,
    damping: float = 1e-3,
    max_step: float | None = 0.05,
    inverse_update_period: int = 20,
    rank: int | None = 32,
    factor_update_period: int = 10,
    diagonal: Any = (),
) -> Rule:
    r"""The natural gradient with Kronecker factors: noisy K-FAC at the mean of its belief, without the noise.

    With \(a_i\) a layer's inputs and \(d_i\) the cotangents of its outputs at m, labels drawn from the model, and
    \(P = A \otimes B + \delta/N\):

    \[ A \leftarrow A + (1-\beta_2)\Big(\tfrac1M \sum_i a_i a_i^\top - A\Big), \qquad
       B \leftarrow B + (1-\beta_2)\Big(\tfrac1M \sum_i d_i d_i^\top - B\Big) \]
    \[ v \leftarrow \beta_1 v + (1-\beta_1) \hat g, \qquad
       m \leftarrow m - \alpha\, \mathrm{clip}_r\, (P + \gamma)^{-1}
       \big(v/(1-\beta_1^t) + (\delta/N)(m - m_0)\big) \]

    Without damping, clipping and a prior, its path does not depend on the linear coordinates in which a layer's inputs
    or outputs are written; Adam's does. One gradient and a second backward pass without it a step; one product for each
    factor, four small ones for the direction; eigendecompositions of A and B every so many steps.

    Departures from the rule: the factors are averaged apart, and taken every so many steps; directions are made with
    older factors, wide layers by their leading eigenvectors; momentum with bias correction; two rates; damping; clipped
    steps.

    Args:
        learning_rate: α, a number, a schedule of steps, or `Annealed`.
        b1: β₁, the decay of the averaged gradient.
        b2: β₂, the decay of the averaged factors.
        hess_init: h₀, the curvature a row at the start.
        damping: γ, the damping of the steps.
        max_step: the largest coordinate of a step at rate one; None where steps are not clipped.
        inverse_update_period: after how many moves of the factors they are decomposed anew.
        rank: how many eigenvectors of each factor are kept, all others having the mean of their eigenvalues; layers no
            wider than that keep all. None for all of them.
        diagonal: path patterns of leaves that get a diagonal in the place of factors.
        factor_update_period: every how many steps the factors are taken, and moved as far as that many steps would.

    Returns:
        The algorithm. As OGN's, its posterior is the Gaussian at m with the precision that it has learned, which at a
        mode is Laplace's with Kronecker factors; learned dispersions are a point.

    Raises:
        ValueError: for a rate or a radius that is not positive, a decay outside [0, 1), a negative damping, or a
            pattern that matches no leaf (when it runs).
        TypeError: (when it runs) for a network with a state, a prior that is not Gaussian, or weights of two axes that
            are no kernel.

    Source: Martens & Grosse (2015); Zhang et al. (2018), section 3.3.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.optimisers.kfac import kfac
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), kfac(), epochs=20)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.95
        True
    """
    metric = Shifted(damping)
    return Rule(
        structure=KroneckerFactored(diagonal, rank),
        expectation=Delta(),
        curvature=SampledGaussNewton(),
        geometry=Factorwise(inverse_update_period),
        learning_rate=rate(learning_rate),
        precision_rate=rate(1.0 - decay(b2, "b2"), "1 - b2"),
        momentum=MovingAverage(decay(b1, "b1")),
        metric=metric if max_step is None else Clipped(metric, max_step),
        hess_init=hess_init,
        curvature_update_period=factor_update_period,
    )
