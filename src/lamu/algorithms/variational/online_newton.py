"""The variational online Newton methods: VON, OGN, VOGN, IVON and bSAM, SLANG and noisy K-FAC with correlations."""

from __future__ import annotations

from typing import Any

from lamu.base.arguments import whole_number
from lamu.expectations import Delta, Exact, Expectation, MonteCarlo, Quadrature
from lamu.expectations.worst_case import WorstCaseOfDraws
from lamu.geometry import Compressed, Geometry, Retraction, Straight
from lamu.geometry.arrows import Factorwise, Shifted
from lamu.objective import curvature as curvatures
from lamu.objective.curvature import Curvature, Hessian, LowRankGradients, Price, SampledGaussNewton
from lamu.operators import Diagonal, LowRankStructure, StructureLike
from lamu.operators.kronecker import KroneckerFactored
from lamu.protocol import recipe
from lamu.rate import Annealed, PolynomialAverage, RateLike, averaging, decay, rate
from lamu.rule import Rule
from lamu.update_rules import ByFanIn, Clipped, DampedInverse, Inverse, MovingAverage

__all__ = ["bsam", "ivon", "noisy_kfac", "ogn", "slang", "vogn", "von"]


@recipe("Khan et al. 2018, section 3")
def von(
    learning_rate: RateLike = Annealed(0.1),
    structure: StructureLike = Diagonal,
    expectation: Expectation | None = None,
    hess_init: float = 1.0,
    geometry: Geometry | None = None,
) -> Rule:
    r"""Variational online Newton: the rule for a Gaussian with any structure of the precision, without changes.

    \[ S \leftarrow S + \rho\,\big(E_q[\nabla^2\ell] - S\big), \qquad m \leftarrow m - \rho\, S^{-1} E_q[\nabla\ell] \]

    One gradient and one Hessian a sample and step; the Hessian costs a Hessian-vector product a coordinate, so this is
    for small models. With `Exact()` on a linear-Gaussian model, ρ = 1 is Bayes' rule in one step; with `Quadrature()`
    the deterministic path for generalised linear models.

    Departures from the rule: none by default; the retraction, if set; a line search with `Exact()` and `Quadrature()`,
    which shortens steps that would not decrease \(E_q[\ell]/T - H(q)\) (with correlated columns and a diagonal
    precision full steps may cycle indefinitely), and then needs all the data as one batch.

    Args:
        learning_rate: ρ in (0, 1], a number, a schedule of steps, or `Annealed`, the default: with samples, a constant
            rate leaves the mean jittering.
        structure: the operator class of the precision: `lamu.operators.Scalar`, `Diagonal` or `Dense`.
        expectation: how E_q is taken; one Monte Carlo sample where None.
        hess_init: the curvature a row at the start.
        geometry: how S moves: straight, which is the rule itself, where None; `lamu.geometry.Retraction()`,
            which is a departure, if a Hessian may be indefinite.

    Returns:
        The algorithm. Its posterior is the Gaussian.

    Raises:
        ValueError: for a rate that is not positive.

    Source: Khan et al. (2018), section 3; Khan & Rue (2021), equations 10 to 12.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=55.0)).standardised(x, y)
        >>> newton = lamu.algorithms.von(1.0, lamu.operators.Dense, lamu.expectations.Exact())
        >>> fit = lamu.fit(model, (x, y), newton, steps=2, batch_size=442)
        >>> bool(fit.history["residual"][-1] < 1e-2)
        True
    """
    expectation = MonteCarlo(1) if expectation is None else expectation
    kind = Rule
    if isinstance(expectation, Exact | Quadrature):  # deterministic, so that losses before and after a step compare
        from lamu.algorithms.optimisers import Searched  # here: IVON does without

        kind = Searched
    return kind(
        structure=structure,
        expectation=expectation,
        curvature=Hessian(),
        geometry=Straight() if geometry is None else geometry,
        learning_rate=rate(learning_rate),
        hess_init=hess_init,
    )


@recipe("Khan & Rue 2021, section 4.4")
def ogn(
    learning_rate: RateLike = Annealed(0.3, warmup=0.1),
    b1: float = 0.9,
    b2: RateLike = PolynomialAverage(),
    hess_init: float | None = None,
    max_step: float | ByFanIn | None = ByFanIn(0.02),
) -> Rule:
    r"""Online Gauss–Newton: Adam with per-example squared gradients, and without the square root.

    With \(g_i\) the gradient of row i's negative log likelihood at m, and \(P = h + \delta/N\):

    \[ h \leftarrow h + (1-\beta_2)\Big(\tfrac1B \sum_i g_i^2 - h\Big), \quad
       v \leftarrow \beta_1 v + (1-\beta_1)\tfrac1B \sum_i g_i, \quad
       m \leftarrow m - \alpha\, \mathrm{clip}_r\,\frac{v/(1-\beta_1^t) + (\delta/N)(m - m_0)}{P} \]

    Two backward passes' worth of products a step; per-example gradients are not stored
    (`lamu.objective.curvature.reader`). With samples instead of m, this is VOGN.

    Departures from the rule: the squared per-example gradients stand for the Hessian; momentum with bias
    correction; two rates; clipped steps.

    Args:
        learning_rate: α, a number, a schedule of steps, or `Annealed`.
        b1: β₁, the decay of the averaged gradient.
        b2: the average of the curvature: a decay β₂, whose memory is 1/(1 − β₂) steps and begins with h₀, or a rate;
            `PolynomialAverage()`, whose memory is the last quarter of the run and forgets the start.
        hess_init: h₀, the curvature a row at the start; where None, the mean over each leaf of the Fisher information
            of some rows at the network's initial weights.
        max_step: the largest coordinate of a step at rate one: a number, or `lamu.update_rules.ByFanIn`, the default,
            which is smaller in kernels of many inputs; None for steps that are not clipped.

    Returns:
        The algorithm. Its posterior is the diagonal Gaussian about the weights, which at a mode is Laplace's with the
        squared gradients as its curvature; learned dispersions are a point.

    Raises:
        ValueError: for a rate or a radius that is not positive, or a decay outside [0, 1).
        TypeError: (when it runs) for a network with a state, or a prior that is not Gaussian.

    Source: Khan & Rue (2021), section 4.4; Khan et al. (2018), equations 11 and 12, at the mean.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.variational.online_newton import ogn
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), ogn(), epochs=20)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.95
        True
    """
    return Rule(
        structure=Diagonal,
        expectation=Delta(),
        curvature=curvatures.SquaredGradients(),
        learning_rate=rate(learning_rate),
        precision_rate=averaging(b2, "b2"),
        momentum=MovingAverage(decay(b1, "b1")),
        metric=Inverse() if max_step is None else Clipped(Inverse(), max_step),
        hess_init=hess_init,
    )


@recipe("Khan et al. 2018, equations 11 and 12")
def vogn(
    learning_rate: RateLike = Annealed(0.3, warmup=0.1),
    b1: float = 0.9,
    b2: RateLike | None = PolynomialAverage(),
    samples: int = 1,
    hess_init: float | None = None,
    max_step: float | ByFanIn | None = ByFanIn(0.02),
    damping: float = 0.0,
    structure: StructureLike = Diagonal,
    momentum: Any = None,
) -> Rule:
    r"""Variational online Gauss–Newton: a diagonal Gaussian, its curvature from per-example squared gradients.

    With \(\theta \sim q\), \(g_i\) the gradient of row i's negative log likelihood at θ, and \(P = h + \delta/N\):

    \[ h \leftarrow h + (1-\beta_2)\Big(\tfrac1B \sum_i g_i^2 - h\Big), \quad
       v \leftarrow \beta_1 v + (1-\beta_1)\tfrac1B \sum_i g_i, \quad
       m \leftarrow m - \alpha\, \mathrm{clip}_r\,\frac{v/(1-\beta_1^t) + (\delta/N)(m - m_0)}{P} \]

    One normal number a parameter and two backward passes' worth of products a sample and step; per-example gradients
    are not stored (`lamu.objective.curvature.reader`). With about as many weights as rows, or more,
    T = 1 predicts images worse than Adam: choose a temperature by `lamu.fit_temperature(model, data, vogn())`.

    Departures from the rule: the squared per-example gradients stand for the Hessian; momentum with bias
    correction; two rates; clipped steps; damping, if set. Its derivation makes five approximations, each of which
    can be undone:

    | approximation | undone by |
    |---|---|
    | a minibatch for the data | `batch_size=N` in `lamu.fit` |
    | the average of S written as that of h | nothing: \(P = h + \delta/N\) holds exactly where δ does not change |
    | mean field | `structure=lamu.operators.Dense`, or `DenseBlocks` for a full matrix a layer |
    | Gauss–Newton (squares) for the Hessian | `von()` |
    | two rates | `b2=None`: the curvature moves at the rate of the mean, as in the rule |

    Osawa's factor ρ for augmented data, by which the data count more than their rows, is `data_size=ρ N` in
    `lamu.fit`; a warm start is `model.starting_at(params)`.

    Args:
        learning_rate: α, a number, a schedule of steps, or `Annealed`.
        b1: β₁, the decay of the averaged gradient.
        b2: the average of the curvature: a decay β₂, whose memory is 1/(1 − β₂) steps and begins with h₀, or a rate;
            `PolynomialAverage()`, whose memory is the last quarter of the run and forgets the start; None for 1 − α,
            which is the rule's one rate.
        samples: number of Monte Carlo samples a step.
        hess_init: h₀, the curvature a row at the start; where None, the mean over each leaf of the Fisher information
            of some rows at the network's initial weights.
        max_step: the largest coordinate of a step at rate one: a number, or `lamu.update_rules.ByFanIn`, the default,
            which is smaller in kernels of many inputs; None for steps that are not clipped.
        damping: γ, external damping: steps are divided by P + γ; the belief's P does not change.
        structure: the operator class of the precision.
        momentum: how gradients are averaged; `lamu.update_rules.MovingAverage(b1)` where None.

    Returns:
        The algorithm. Its posterior is the Gaussian about the weights; learned dispersions are a point.

    Raises:
        ValueError: for a rate or a radius that is not positive, a decay outside [0, 1), a negative damping, or fewer
            than one sample.
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
        curvature=curvatures.SquaredGradients(),
        learning_rate=rate(learning_rate),
        precision_rate=None if b2 is None else averaging(b2, "b2"),
        momentum=MovingAverage(decay(b1, "b1")) if momentum is None else momentum,
        metric=metric if max_step is None else Clipped(metric, max_step),
        hess_init=hess_init,
    )


@recipe("Shen et al. 2024, algorithm 1")
def ivon(
    learning_rate: RateLike = Annealed(0.3, warmup=0.1),
    b1: float = 0.9,
    b2: RateLike = PolynomialAverage(),
    samples: int = 1,
    hess_init: float | None = None,
    max_step: float | ByFanIn | None = ByFanIn(0.02),
    curvature: Curvature | None = None,
    momentum: Any = None,
) -> Rule:
    r"""Improved variational online Newton: a diagonal Gaussian at the cost of Adam.

    With \(\theta = m + \epsilon / \sqrt{\kappa P}\), \(\hat g\) the minibatch gradient of the mean negative log
    likelihood at θ, h the curvature a row and \(P = h + \delta/N\):

    \[ \hat h = \hat g\,(\theta - m)\,\kappa P, \quad
       P \leftarrow P + \rho\,\Delta + \tfrac12 \rho^2 \Delta^2 / P, \quad \Delta = \hat h + \delta/N - P, \quad
       \rho = 1 - \beta_2 \]
    \[ v \leftarrow \beta_1 v + (1-\beta_1)\hat g, \qquad
       m \leftarrow m - \alpha\, \mathrm{clip}_r\,\frac{v/(1-\beta_1^t) + (\delta/N)(m - m_0)}{P} \]

    One gradient and one normal number a parameter, sample and step. With about as many weights as rows, or more,
    T = 1 predicts images worse than Adam: choose a temperature by `lamu.fit_temperature(model, data, ivon())`.

    The options of the authors' package correspond as follows: `mc_samples` is `samples`; `clip_radius` is
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
        samples: number of Monte Carlo samples a step.
        hess_init: h₀, the curvature a row at the start; where None, the mean over each leaf of the Fisher information
            of some rows at the network's initial weights.
        max_step: the largest coordinate of a step at rate one: a number, or `lamu.update_rules.ByFanIn`, the default,
            which is smaller in kernels of many inputs; None for steps that are not clipped.
        curvature: estimate of the Hessian at a sample; Price's identity where None,
            `lamu.objective.curvature.SquaredGradient()` for the positive, biased variant.
        momentum: how gradients are averaged; `lamu.update_rules.MovingAverage(b1)` where None.

    Returns:
        The algorithm. Its posterior is the diagonal Gaussian about the weights; learned dispersions are a point.

    Raises:
        ValueError: for a rate or a radius that is not positive, a decay outside [0, 1), or fewer than one sample.

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


@recipe("Möllenhoff & Khan 2023, algorithm 1")
def bsam(
    learning_rate: RateLike = Annealed(0.3, warmup=0.1),
    b1: float = 0.9,
    b2: RateLike = PolynomialAverage(),
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

    Two gradients and one normal number a parameter and step. For r = 0 it is `ivon`.

    Algorithm 1 of the paper takes \(\sqrt{P}\,|\hat g(\theta)| + \gamma\) for \(\hat h\), which does not estimate a
    curvature: it depends on the batch size, and γ acts as a precision of Nγ that neither data nor prior contain. It
    also takes the second gradient at \(m + \epsilon\). These steps, of which `fit` measures how wide their belief is
    against the expected Hessian, are

    ```python
    bsam(0.5, b2=0.999, radius=0.01, hess_init=1.0, max_step=None,
         curvature=Damped(RootScaledGradient(), 0.1), geometry=Straight(), expectation=FenchelRelaxation,
         momentum=PlainAverage(0.9))
    ```

    Departures from the rule: the ascent, which moves the mean to flatter regions of the loss; the retraction; momentum
    with bias correction; two rates; clipped steps; damping of the steps, if set.

    Args:
        learning_rate: α, a number, a schedule of steps, or `Annealed`.
        b1: β₁, the decay of the averaged gradient.
        b2: the average of the curvature: a decay β₂, whose memory is 1/(1 − β₂) steps and begins with h₀, or a rate;
            `PolynomialAverage()`, whose memory is the last quarter of the run and forgets the start.
        radius: r, the size of the ascent in the belief's own metric. The paper's 0.01 belongs to its damping: with the
            belief's own precisions, which are ten times smaller, the same r ascends much further.
            Counts, whose gradients are not bounded, need less: 1e-5.
        damping: γ: steps are divided by P + γ; the belief's P does not change.
        hess_init: h₀, the curvature a row at the start; where None, the mean over each leaf of the Fisher information
            of some rows at the network's initial weights.
        max_step: the largest coordinate of a step at rate one: a number, or `lamu.update_rules.ByFanIn`, the default,
            which is smaller in kernels of many inputs; None for steps that are not clipped.
        curvature: estimate of the Hessian at a sample; Price's identity, which is unbiased, where None.
        geometry: how P moves; `lamu.geometry.Retraction()`, which keeps it positive, where None.
        expectation: class of the worst case, constructed with the radius: `lamu.expectations.WorstCaseOfDraws` or
            `lamu.expectations.FenchelRelaxation`.
        momentum: how gradients are averaged; `lamu.update_rules.MovingAverage(b1)` where None.

    Returns:
        The algorithm. Its posterior is the diagonal Gaussian about the weights; learned dispersions are a point.

    Raises:
        ValueError: for a rate that is not positive, a decay outside [0, 1), a negative damping, or a negative radius.

    Source: Möllenhoff & Khan (2023), algorithm 1, for the ascent; Lin, Schmidt & Khan (2020) for the precision.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.variational.online_newton import bsam
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
        >>> from lamu.algorithms.variational.online_newton import slang
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
        >>> from lamu.algorithms.variational.online_newton import noisy_kfac
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
