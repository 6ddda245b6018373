"""Gaussians with correlations: SLANG's low rank plus diagonal, and noisy K-FAC's Kronecker factors."""

from __future__ import annotations

from typing import Any

from lamu.expectations import MonteCarlo
from lamu.geometry import Compressed
from lamu.geometry.arrows import Factorwise, Shifted
from lamu.objective.curvature import LowRankGradients, SampledGaussNewton
from lamu.operators import LowRankStructure
from lamu.operators.kronecker import KroneckerFactored
from lamu.protocol import recipe
from lamu.rate import Annealed, PolynomialAverage, Rate, RateLike, averaging, decay, rate
from lamu.rule import Rule
from lamu.update_rules import ByFanIn, Clipped, Inverse, MovingAverage

__all__ = ["noisy_kfac", "slang"]


@recipe("Mishkin et al. 2018, algorithm 1")
def slang(
    learning_rate: RateLike = Annealed(0.3, warmup=0.1),
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
    rates, that of the mean with a warm-up; clipped steps.

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
        >>> from lamu.algorithms.variational.structured import slang
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), slang(rank=2), epochs=60)
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


@recipe("Zhang et al. 2018, algorithm 2")
def noisy_kfac(
    learning_rate: RateLike = Annealed(0.3, warmup=0.1),
    b1: float = 0.9,
    b2: float | Rate = PolynomialAverage(),
    samples: int = 1,
    hess_init: float | None = None,
    damping: float = 1e-3,
    max_step: float | ByFanIn | None = ByFanIn(0.02),
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
    `factor_update_period * inverse_update_period` steps the eigenvectors, from those of before.

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
        max_step: the largest coordinate of a step at rate one: a number, or `lamu.update_rules.ByFanIn`, the default,
            which is smaller in kernels of many inputs; None where steps are not clipped.
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
        >>> from lamu.algorithms.variational.structured import noisy_kfac
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
