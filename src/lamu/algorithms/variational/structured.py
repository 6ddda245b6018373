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
from lamu.rate import Annealed, PolynomialAverage, RateLike, averaging, decay, rate
from lamu.rule import Rule
from lamu.sizes import whole_number
from lamu.update_rules import ByFanIn, Clipped, Inverse, MovingAverage

__all__ = ["noisy_kfac", "slang"]


@recipe("Mishkin et al. 2018, algorithm 1")
def slang(
    learning_rate: RateLike = Annealed(0.3, warmup=0.1),
    rank: int = 5,
    b1: float = 0.9,
    b2: RateLike = PolynomialAverage(),
    samples: int = 1,
    directions: int | None = None,
    hess_init: float | None = None,
    max_step: float | ByFanIn | None = ByFanIn(0.02),
    curvature_update_period: int = 10,
) -> Rule:
    r"""SLANG: structured, low-rank approximate natural gradients, for a Gaussian with the strongest correlations.

    The precision a row is \(P = U U^\top + D\) with L columns in U. With \(\theta \sim q\), \(g_i\) the gradient of row
    i's negative log likelihood at θ, and \(\rho = 1 - \beta_2\):

    \[ P' = (1-\rho)\, P + \rho\, \Big(\tfrac1B \sum_i g_i g_i^\top + \tfrac{\delta}{N} I\Big), \qquad
       U \leftarrow \mathrm{top}_L\big[\sqrt{1-\rho}\, U,\; \sqrt{\rho/B}\, G\big], \qquad
       D \leftarrow \mathrm{diag}(P' - U U^\top) \]
    \[ v \leftarrow \beta_1 v + (1-\beta_1)\tfrac1B \sum_i g_i, \qquad
       m \leftarrow m - \alpha\, \mathrm{clip}_r\, P^{-1} \Big( \frac{v}{1-\beta_1^t} + (\delta/N)(m - m_0) \Big) \]

    The diagonal of P is exactly that of `vogn`; correlations are added. The batch's G is first reduced to its own
    leading `directions` (by default L of them), which costs as many products of the backward pass and none
    of the forward pass; reducing [U, G] at once would cost L of each, and gains less than a tenth of a nat on a
    logistic regression of fifteen coordinates. Per-example gradients are not stored.

    Cost: one gradient, one sample and four reads of U; and every `curvature_update_period` steps, for the curvature
    of all of them, a product for the diagonal, as in `vogn`, the rows' inner products and `directions` products of the
    backward pass. Memory: L copies of the parameters, and as many temporaries.

    Departures from the rule: outer products of per-example gradients stand for the Hessian, the leading ones with
    an exact diagonal; projection back to the rank; curvature at intervals; momentum with bias correction; two
    rates, that of the mean with a warm-up; clipped steps.

    Args:
        learning_rate: α, a number, a schedule of steps, or `Annealed`.
        rank: L, the number of columns of U.
        b1: β₁, the decay of the averaged gradient.
        b2: the average of the curvature: a decay β₂, whose memory is 1/(1 − β₂) steps and begins with h₀, or a rate;
            `PolynomialAverage()`, whose memory is the last quarter of the run and forgets the start.
        samples: number of Monte Carlo samples a step.
        directions: number of directions kept of a batch's gradients; the rank where None.
        hess_init: h₀, the curvature a row at the start; where None, the mean over each leaf of the Fisher information
            of some rows at the network's initial weights.
        max_step: the largest coordinate of a step at rate one: a number, or `lamu.update_rules.ByFanIn`, the default,
            which is smaller in kernels of many inputs; None for steps that are not clipped.
        curvature_update_period: the steps between curvature updates, each as large as that many; 1 is the paper's.

    Returns:
        The algorithm. Its posterior is the Gaussian about the weights; learned dispersions are a point.

    Raises:
        ValueError: for a rate or a radius that is not positive, a decay outside [0, 1), or fewer than one column,
            direction, sample or step of a period.
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
        curvature=LowRankGradients(rank if directions is None else whole_number("directions", directions)),
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
    b2: RateLike = PolynomialAverage(),
    samples: int = 1,
    hess_init: float | None = None,
    damping: float = 1e-3,
    max_step: float | ByFanIn | None = ByFanIn(0.02),
    inverse_update_period: int = 20,
    rank: int | None = 32,
    factor_update_period: int = 10,
    diagonal: Any = (),
) -> Rule:
    r"""Noisy natural gradient with Kronecker factors: a Gaussian with correlations within each layer.

    With \(\theta \sim q\), and for each layer \(a_i\) its inputs (one, for the bias, among them) and \(d_i\) the
    cotangents of its outputs with labels sampled from the model, \(P = A \otimes B + \delta/N\):

    \[ A \leftarrow A + (1-\beta_2)\Big(\tfrac1M \sum_i a_i a_i^\top - A\Big), \qquad
       B \leftarrow B + (1-\beta_2)\Big(\tfrac1M \sum_i d_i d_i^\top - B\Big) \]
    \[ v \leftarrow \beta_1 v + (1-\beta_1) \hat g, \qquad
       m \leftarrow m - \alpha\, \mathrm{clip}_r\, (P + \gamma)^{-1}
       \big(v/(1-\beta_1^t) + (\delta/N)(m - m_0)\big) \]

    A Gaussian prior enters a layer by the mean of its precisions there: exactly, if it has one scale a layer.

    Cost: one sample, one gradient and eight products with a few eigenvectors a step; every `factor_update_period`
    steps a second backward pass, without the gradients of the weights, and a product for each factor; every
    `factor_update_period * inverse_update_period` steps the eigenvectors, starting from the previous ones.

    Departures from the rule: the factors are averaged separately, and updated at intervals; directions and samples
    use older factors, wide layers their leading eigenvectors; momentum with bias correction; two rates;
    damping; clipped steps.

    Args:
        learning_rate: α, a number, a schedule of steps, or `Annealed`.
        b1: β₁, the decay of the averaged gradient.
        b2: the average of the factors: a decay β₂, whose memory is 1/(1 − β₂) steps and begins with h₀, or a rate;
            `PolynomialAverage()`, whose memory is the last quarter of the run and forgets the start.
        samples: number of Monte Carlo samples a step.
        hess_init: h₀, the curvature a row at the start; where None, the mean over each leaf of the Fisher information
            of some rows at the network's initial weights.
        damping: γ, the external damping of the steps; it does not touch the belief.
        max_step: the largest coordinate of a step at rate one: a number, or `lamu.update_rules.ByFanIn`, the default,
            which is smaller in kernels of many inputs; None for steps that are not clipped.
        inverse_update_period: number of updates of the factors between their eigendecompositions.
        rank: number of eigenvectors of each factor that are kept; the others get the mean of their eigenvalues. Layers
            that are not wider keep all. None keeps all of them.
        diagonal: path patterns of leaves that get a diagonal instead of factors.
        factor_update_period: number of steps between updates of the factors; an update equals that of so many steps.

    Returns:
        The algorithm. Its posterior is the Gaussian about the weights; learned dispersions are a point.

    Raises:
        ValueError: for a rate or a radius that is not positive, a decay outside [0, 1), a negative damping, fewer than
            one sample, or a pattern that matches no leaf (when it runs).
        TypeError: (when it runs) for a network with a state, a prior that is not Gaussian, or weights of two axes that
            are not a kernel.

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
        geometry=Factorwise(whole_number("inverse_update_period", inverse_update_period)),
        learning_rate=rate(learning_rate),
        precision_rate=averaging(b2, "b2"),
        momentum=MovingAverage(decay(b1, "b1")),
        metric=metric if max_step is None else Clipped(metric, max_step),
        hess_init=hess_init,
        curvature_update_period=whole_number("factor_update_period", factor_update_period),
    )
