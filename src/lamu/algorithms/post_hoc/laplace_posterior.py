"""The posterior at a mode: checked, integrated over a noise of few rows, its curvature averaged for classes."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.algorithms.closed_form.linear_regression import Directions, integrate_noise
from lamu.algorithms.post_hoc.laplace_fit import LaplaceFit, RowSums, fit_laplace, row_sums
from lamu.algorithms.post_hoc.mode import LARGEST_RESIDUAL, Polished
from lamu.base.compile_once import compiled_once
from lamu.convergence import NARROWEST, Unconverged
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.families import Gamma, Gaussian, Point, Product
from lamu.families.matrix_normal import NoiseScale
from lamu.families.points import DispersionMixture
from lamu.likelihoods.interface import Likelihood, LikelihoodWrapper
from lamu.model import Model
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import Curvature, GaussNewton
from lamu.operators import AnyStructure, Dense, Diagonal
from lamu.posterior import Posterior
from lamu.predictives import Linearised
from lamu.predictives.linearised import TangentOutputs
from lamu.priors import LearnedNormal, Prior, SpikeAndSlab, independent_normal
from lamu.record import record
from lamu.typing import Array, Belief, Data, DTypeLike, Params, RandomKey

__all__ = [
    "AveragedGaussNewton",
    "averaged",
    "posterior_at_mode",
    "require_positive",
    "warn_of_spikes",
    "with_curvature_averaged",
    "with_dispersion_integrated",
    "with_noise_integrated",
]

_JITTERS = 6  # powers of ten of the rounding error added to a singular precision


def posterior_at_mode(polished: Polished, objective: Objective, key: RandomKey, kept: bool = False) -> Posterior:
    """Returns the posterior at a mode with its convergence; without an evidence and with a warning if it is no mode."""
    posterior = polished.mode.integrated(objective, key)
    at_kink = polished.stalled and objective.model.identified  # of the likelihood, or at the digits of the loss
    remedy = _remedy(kept, polished.stalled, at_kink)
    if not polished.found:
        remedy = (
            f"no evidence: the residual at the mode is {polished.residual:.2g} nats, where an evidence needs "
            f"{LARGEST_RESIDUAL}; {remedy}"
        )
    convergence = polished.convergence(remedy)
    posterior = replace(posterior, convergence=convergence, temperature=objective.temperature)
    if np.isnan(posterior.evidence):
        dtype = jnp.asarray(posterior.evidence).dtype
        warnings.warn(
            f"no evidence: the precision at the mode is singular to the rounding of {dtype} under the prior "
            f"{objective.model.prior!r}, and its diagonal was raised by as much as rounding; narrow the prior, take "
            "lamu.priors.LearnedNormal(1.0), or compute in 64 bits (jax_enable_x64)",
            Unconverged,
            stacklevel=4,
        )
        return replace(_regular(posterior, dtype), evidence=None)
    if not polished.found:
        if convergence.converged:  # of what has not, `fit` warns, with the same remedy
            if kept or at_kink:  # predictions need no mode, and pretrained weights are seldom at one
                logging.getLogger("lamu").warning("The posterior has %s.", remedy)
            else:
                warnings.warn(remedy, Unconverged, stacklevel=4)
        return replace(posterior, evidence=None)
    return posterior


def warn_of_spikes(posterior: Posterior) -> None:
    """Warns where Laplace's method keeps weights in the spike, or in the slab, that the rows leave in both."""
    prior, belief = posterior.model.free_prior, posterior.belief
    if not isinstance(prior, SpikeAndSlab) or not isinstance(belief, Product) or float(posterior.temperature) != 1.0:
        return
    gaussian: Belief = belief.factors["network"]
    given = prior.shares_of_deviation(gaussian.mean, gaussian.precision.diagonal(gaussian.mean))
    shares = {path: float(jnp.min(leaf)) for path, leaf in tree.by_path(given).items()}
    path = min(shares, key=lambda name: shares[name])
    if shares[path] < NARROWEST:
        warnings.warn(
            f"Laplace's method takes every weight as one of the spike or one of the slab, and the rows do not tell: in "
            f"{path!r} a deviation is {shares[path]:.2f} of that of the mixture; take lamu.mcmc.nuts()",
            Unconverged,
            stacklevel=4,
        )


def require_positive(fit: LaplaceFit, objective: Objective) -> None:
    """Raises unless curvature and prior are positive together."""
    # The ValueError names the most negative eigenvalue, and a remedy.
    per_row = fit.precision(objective).scale(1 / objective.concentration)
    values = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(per_row.spectrum())])
    lowest, largest = float(jnp.min(values)), float(jnp.max(values))
    if lowest > 0:
        return
    raise ValueError(
        f"the curvature at the mode is indefinite: its smallest eigenvalue is {lowest:.3g} a row, the prior included, "
        f"the largest {largest:.3g}, so that the posterior has no maximum here; train longer, take "
        f"curvature=GaussNewton(), or add a damping above {-lowest:.3g}, Damped(Hessian(), "
        f"{max(-2 * lowest, 1e-3):.1g})"
    )


def _remedy(kept: bool, stalled: bool, at_kink: bool) -> str:
    if kept:
        return (
            "the weights arrived trained and were left as they came: train them longer, under the prior that the "
            "posterior is to have, or let a run go on from them for some epochs"
        )
    if at_kink:
        return (
            "the loss falls no further although its gradient does not vanish, as at the kinks of a Quantile likelihood "
            "or at the last digits of the loss; compare models by their held-out rows"
        )
    if stalled:
        return (
            "the loss falls no further although its gradient does not vanish, as at the kinks of relu, and more epochs "
            "change nothing: take an activation without kinks, such as MLP((64, 64), 'tanh') or 'gelu', or a narrower "
            "prior"
        )
    return "train for more epochs, narrow the prior, or take activations without kinks (tanh, gelu)"


def _regular(posterior: Posterior, dtype: DTypeLike) -> Posterior:
    """Returns the posterior with a precision that can be factored: a multiple of rounding added to its diagonal."""
    belief: Belief = posterior.belief
    gaussian = belief.factors["network"]
    precision = gaussian.precision
    if isinstance(precision, Dense):
        matrix = (precision.matrix + precision.matrix.T) / 2
        unit = float(jnp.finfo(dtype).eps) * float(jnp.max(jnp.diagonal(matrix)))
        for power in range(_JITTERS):
            raised = Dense(matrix + 10.0**power * unit * jnp.eye(len(matrix), dtype=matrix.dtype))
            if bool(raised.is_positive(gaussian.mean)):
                factors = {**belief.factors, "network": replace(gaussian, precision=raised)}
                return replace(posterior, belief=Product(factors))
    raise ValueError(
        f"the precision at the mode is singular to the rounding of {dtype} under the prior {posterior.model.prior!r}; "
        "narrow the prior, take lamu.priors.LearnedNormal(1.0), or compute in 64 bits (jax_enable_x64)"
    )


# A point estimate of the noise is overconfident if rows are few, and if the weights follow them closely the
# evidence may be greatest at no noise at all. With the network linearised at the mode, with known curvature and
# gradient, weights and noise are a linear regression, which `integrate_noise` integrates: exactly for a linear
# network. The belief is then
#
# \[ q(w) = N\big(m, \bar v\, C + (\bar m - m)(\bar m - m)^\top\big), \qquad
#    q(\sigma_k^2) = \text{inverse Gamma}(a, b_k), \qquad b_k / a = \bar v_k, \]
#
# with m the mode, which stays the mean, and the linearised prediction Student's t of 2a degrees of freedom.


# Numbers that decide results. On 24 data sets each of 2, 3, 5, 8 and 12 rows of three columns the noise at the mode
# covered .68, .63, .52, .74 and .83 of what its 90 % intervals should, and integrated over .86, .88, .83, .86 and .89.
_FEW = 50  # observations beyond the well-determined weights: t's 95 % quantile is then 2 % wider than the normal's
_MOST_WEIGHTS = 1024  # for which a decomposition takes a third of a second
_ROUNDING = 16.0  # of the largest variance, in units of the dtype's rounding per weight
_NARROWEST, _WIDEST = 0.03, 10.0  # as in `lamu.regression`: scales of all slopes together, and of one
# Of likelihoods that are no Gaussian. Beyond so many rows a dispersion at the mode makes intervals 2.5 % too narrow.
_ROWS, _ROWS_A_WEIGHT, _MOST_OF_OTHERS = 200, 20, 256  # the last of weights, a solve of which takes some milliseconds
# Eleven values to eight nats below the top gave intervals of the same width to .1 %.
_VALUES, _LOST = 7, 4.5  # of a dispersion; nats below the top at which they end, three deviations
_STRIDE, _LONGEST, _NOWHERE = 1.5, 24, -1e30  # of the search for the ends: deviations, strides, nats


def with_dispersion_integrated(
    posterior: Posterior, polished: Polished, objective: Objective, find: Callable[[Params], Polished], data: Data
) -> Posterior:
    """Returns the posterior of a linear network with its one dispersion integrated over where rows are few."""
    # Of likelihoods that are no Gaussian: a grid over the logarithm, Laplace's method for the weights at each, and
    # their evidences with the dispersion's prior as weights (Rue, Martino & Chopin 2009). The posterior is skewed where
    # log p is, in f, as that of durations: about its mode, .065 to .075 of the targets of 60 and 30 rows of 12 columns
    # were above the upper end of 90 % intervals, and .045 below the lower one.
    mode, model = polished.mode, objective.model
    weights, dispersions = (tree.dimension(mode.params[name]) for name in ("network", "likelihood"))
    few = float(mode.observed) < _ROWS + _ROWS_A_WEIGHT * weights and weights <= _MOST_OF_OTHERS
    linear = isinstance(model, Model) and model.identified and isinstance(mode.curvature, Dense)
    if model.quadratic or dispersions != 1 or not (few and linear) or posterior.evidence is None:
        return posterior
    first = tree.ravel(mode.params["likelihood"])
    start, dtype = float(first[0][0]), first[0].dtype

    def at(value: float, near: Posterior) -> tuple[Posterior, float]:
        network = near.mean["network"]
        there = find({**mode.params, "network": network, "likelihood": first[1](jnp.full(1, value, dtype))})
        given = there.mode.posterior(objective, posterior.key)
        return given, max(_NOWHERE, float(given.evidence))  # NaN is nowhere

    # The ends of the grid: as many nats below the top, on a line between the last value above and the first below.
    information = 2 * math.pi * math.exp(-2 * float(mode.dispersion_volume(objective)))  # of rows and prior
    stride = _STRIDE * min(max(information, 1.0) ** -0.5, 1.0)
    middle, top = at(start, posterior)
    ends: list[float] = []
    for side in (-1, 1):
        near, inside, above = middle, start, top
        for _ in range(_LONGEST):
            near, height = at(inside + side * stride, near)
            top = max(top, height)
            if height <= top - _LOST:
                inside += side * stride * min(max((above - top + _LOST) / (above - height), 0.1), 1.0)
                break
            inside, above = inside + side * stride, height
        ends.append(inside)
    stride = (ends[1] - ends[0]) / (_VALUES - 1)
    near, members, heights = middle, [], np.zeros(_VALUES)
    for index, value in enumerate(np.linspace(ends[0], ends[1], _VALUES)):
        near, heights[index] = at(float(value), near)
        belief: Belief = near.belief
        dispersion = belief.factors["likelihood"].mean
        # Between two of the values a dispersion is as likely as at them.
        around = Diagonal(jax.tree.map(lambda leaf: jnp.full_like(leaf, 12 / stride**2), dispersion))
        members.append(Product({**belief.factors, "likelihood": Gaussian(dispersion, around)}))
    evidence = float(np.logaddexp.reduce(heights))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
    if isinstance(data, Arrays):
        stacked = _about_means(objective, stacked, data.full())
    mixture = DispersionMixture(stacked, jnp.asarray(heights - evidence, dtype))
    total = jnp.asarray(evidence + math.log(stride), jnp.asarray(posterior.evidence).dtype)
    return replace(posterior, belief=mixture, evidence=total)


@jax.jit
def _about_means(objective: Objective, members: Product, batch: Batch) -> Product:
    """Returns beliefs about modes as beliefs about means, to first order in the third derivatives of the loss."""
    # The mean is \(m + \frac12 S^{-1} \sum_i J_i^\top \nabla_f \mathrm{tr}(V_i \nabla_f^2 \log p(y_i | f))\), with
    # \(V_i = J_i S^{-1} J_i^\top\); no output moves by more than its deviation.
    #
    # Likelihoods without a dispersion stay about the mode, which shrinks. Under the default prior the mean is nearer to
    # the exact posterior (of 600 sets of 30 rows, 3 columns and two classes by .02 instead of .27 deviations), and so
    # takes over that its slopes of 2.5 are wider than those of the sets (1): coverage .82 instead of .91, .618 nats a
    # new row instead of .593 (exact .83 and .616). Counts, 20 rows and 3 columns: .886 and .900 (exact .883).
    likelihood = objective.model.likelihood
    weight = batch.mask * batch.weight * objective.likelihood_power / objective.temperature

    def moved(belief: Any) -> Product:
        gaussian, dispersions = belief.factors["network"], belief.factors["likelihood"].mean
        loss = BatchLoss(objective, batch, {}, NetworkParameters(), dispersions, conjugate=True)
        solve = lambda direction: tree.ravel(gaussian.precision.solve(direction))[0]
        jacobian, f = loss.jacobian(gaussian.mean), loss.outputs(gaussian.mean)
        flat = jax.vmap(jax.vmap(lambda row: tree.ravel(row)[0]))(jacobian)
        V = jnp.einsum("bkw,blw->bkl", flat, jax.vmap(jax.vmap(solve))(jacobian))

        def bent(f: Array, V: Array, y: Array) -> Array:
            of_row = lambda f: likelihood.log_prob(dispersions, f[None], y)[0]
            return jnp.sum(V * jax.hessian(of_row)(f))

        slope = jax.vmap(jax.grad(bent))(f, V, jax.tree.map(lambda leaf: leaf[:, None], batch.y))
        slope = jnp.where(jnp.isfinite(slope), slope, 0.0) * weight.astype(slope.dtype)[:, None]
        shift = gaussian.precision.solve(tree.ravel(gaussian.mean)[1](jnp.einsum("bk,bkw->w", slope, flat) / 2))
        along = jnp.einsum("bkw,w->bk", flat, tree.ravel(shift)[0])
        deviation = jnp.sqrt(jnp.maximum(jnp.einsum("bkk->bk", V), jnp.finfo(V.dtype).tiny))
        share = 1.0 / jnp.maximum(jnp.max(jnp.abs(along) / deviation), 1.0)
        mean = tree.add(gaussian.mean, shift, share)
        return Product({**belief.factors, "network": replace(gaussian, mean=mean)})

    return jax.vmap(moved)(members)


def with_noise_integrated(posterior: Posterior, polished: Polished, objective: Objective, prior: Prior) -> Posterior:
    """Returns the posterior integrated over the noise if rows are few; unchanged otherwise."""
    mode, gradient = polished.mode, polished.gradient
    model, mean = objective.model, mode.params["network"]
    dispersions: Params = mode.params["likelihood"]
    if gradient is None or not (model.quadratic and isinstance(mode.curvature, Dense)):
        return posterior
    if set(dispersions) != {"log_scale"}:
        return posterior
    moments = independent_normal(model.free_prior, mean)
    outputs, weights = mode.misfit.size, tree.dimension(mean)
    observed = float(mode.observed) * outputs
    few = observed - min(weights, observed) < _FEW and weights <= _MOST_WEIGHTS
    if moments is None or not few or dispersions["log_scale"].size != outputs:
        return posterior
    flat = lambda part: np.asarray(tree.ravel(part)[0], np.float64)
    m, (prior_mean, precision) = flat(mean), map(flat, moments)
    deviation, T = precision**-0.5, float(objective.temperature)
    hessian = np.asarray(mode.curvature.matrix, np.float64) * float(objective.data_size)
    hessian = deviation[:, None] * (hessian + hessian.T) / 2 * deviation
    values, basis = np.linalg.eigh(hessian)
    if observed - float(np.sum(np.maximum(values, 0.0) / (1 + np.maximum(values, 0.0)))) >= _FEW:
        return posterior
    informative = values > len(m) * float(np.finfo(mode.curvature.matrix.dtype).eps) * max(values[-1], 0.0)
    values, basis = values[informative], basis[:, informative]
    # Near the mode the rows' gradient equals the prior's. Units: the mode's noise, or the targets' if it vanished.
    offset = basis.T @ ((m - prior_mean) / deviation)
    gradient_row = offset - T * (basis.T @ (deviation * flat(gradient)))
    unit = min(max(math.sqrt(float(values @ offset**2) / observed), 1.0), 100.0)
    log_scales = np.asarray(dispersions["log_scale"], np.float64).ravel() + math.log(unit)
    # The part explained by the directions, and the remainder, which rounding may make negative.
    explained = float(np.sum(gradient_row**2 / values))
    remainder = max(2 * float(np.sum(mode.misfit)) - explained, 0.0) if len(values) < observed else 0.0
    ones = np.ones(len(values))
    rows = Directions(
        curvature=values / T / unit**2,
        cross=gradient_row / T / unit**2,
        squares=(explained + remainder) / T / unit**2,
        weight=observed / T,
        prior_mean=-offset,
        prior_variance=T * ones,
        scaled=ones > 0,
    )
    dtype = dispersions["log_scale"].dtype
    prior_at = jax.vmap(lambda log_scales: model.dispersion_log_prior({"log_scale": log_scales}))
    log_prior = lambda log_noise: np.asarray(prior_at((log_noise[:, None] + log_scales).astype(dtype)), float) / T
    scales = None
    if isinstance(prior, LearnedNormal) and model.identified:
        scale = float(np.exp(np.mean(np.log(deviation))))
        scales = _NARROWEST / math.sqrt(len(m)) / scale, _WIDEST / scale
    belief = integrate_noise(rows, log_prior, scales)
    noise = belief.rate / belief.shape
    outside = np.eye(len(m)) - basis @ basis.T
    shift = basis @ belief.mean  # of the mean from the mode
    covariance = noise * (basis @ belief.covariance @ basis.T + belief.null_variance * T * outside)
    covariance += np.outer(shift, shift)
    covariance = deviation[:, None] * (covariance + covariance.T) / 2 * deviation
    values, vectors = np.linalg.eigh(covariance)
    # The precision has the dtype of the weights, in which a wider range would make it negative.
    values = np.maximum(values, _ROUNDING * len(m) * np.finfo(dtype).eps * values[-1])
    precision = vectors / values @ vectors.T
    return _posterior(posterior, precision, belief.shape, belief.rate * np.exp(2 * log_scales))


def _posterior(posterior: Posterior, precision: np.ndarray, shape: float, rate: np.ndarray) -> Posterior:
    point: Belief = posterior.belief
    gaussian, dispersions = point.factors["network"], point.factors["likelihood"].mean["log_scale"]
    of = lambda values: jax.device_put(np.asarray(values, dispersions.dtype).reshape(dispersions.shape))
    noise = NoiseScale(Gamma(of(np.full(rate.shape, shape)), of(rate)), dispersions)
    matrix = jax.device_put(precision.astype(gaussian.precision.matrix.dtype))
    return replace(posterior, belief=Product({"network": Gaussian(gaussian.mean, Dense(matrix)), "likelihood": noise}))


# \[ S = \tfrac1T \Big( p \sum_i w_i J_i^\top\, E_{f \sim N(f_i,\, J_i S^{-1} J_i^\top)}\big[\Lambda(f)\big]\, J_i
#        - \nabla^2 \log p(m) \Big) \]
#
# A network that separates its rows has logits at which Λ nearly vanishes. The curvature at the mode then says that the
# weights are hardly determined, and the belief extends to where the loss is steep. The average is over the belief
# itself, and S is its fixed point.


# Numbers that decide results; conventions, not tuned.
_SAMPLES, _NODES = 32, 32  # antithetic samples a row for several outputs; nodes for one output
_ROUNDS, _STILL = 20, 0.02  # passes, which end when the outputs' covariance changes by less than this share
_MOST_CLASSES = 100  # beyond it a matrix of outputs for every row is expensive, and the curvature is that at the mode


@record
class AveragedGaussNewton(GaussNewton):
    """The Gauss–Newton matrix at the mode, and for classifiers its average over the linearised belief."""

    # It is averaged if the outputs are logits of at most 100 classes, the network is not linear in its weights and
    # was not pretrained, and the precision is a sum over rows (no low rank, not matrix-free). Otherwise it is
    # `GaussNewton`. The average is the fixed point of the rule for the network's tangent at the mode, with the mean
    # fixed: a Gauss-Hermite rule for one output, 32 antithetic samples a row for more. It is found to 2 % of the
    # outputs' covariance, in some ten passes over the rows. If rounding leaves no covariance (a prior that is far too
    # wide, in single precision), the curvature is that at the mode, which is logged.
    #
    # Source: Khan & Rue (2021), equation 12, for the expectation of the Hessian; Immer, Korzepa & Bauer (2021), who
    #     refine the same Gaussian by variational inference in the linearised model.


def _can_average(structure: AnyStructure, model: Any) -> bool:
    """Returns whether the outputs are logits of a network whose curvature can and should be averaged."""
    if not (isinstance(model, Model) and structure.by_rows):
        return False
    classes = getattr(model.likelihood.support, "number", 2)
    return bool(model.likelihood.logits) and not model.identified and classes <= _MOST_CLASSES


def with_curvature_averaged(
    posterior: Posterior, structure: AnyStructure, mode: LaplaceFit, objective: Objective, data: Data, key: RandomKey
) -> Posterior:
    """Returns the posterior of a classifier with the curvature averaged over its belief; unchanged otherwise."""
    if not _can_average(structure, objective.model):
        return posterior
    at_mode = replace(posterior, belief=Point(mode.params))
    fit = averaged(structure, mode, at_mode, objective, data, jax.random.clone(key))
    return (
        posterior if fit is mode else replace(posterior, belief=fit.posterior(objective, jax.random.clone(key)).belief)
    )


def averaged(
    structure: AnyStructure, mode: LaplaceFit, point: Posterior, objective: Objective, data: Data, key: RandomKey
) -> LaplaceFit:
    """Returns the fit at the same mode with the averaged curvature, or unchanged if rounding leaves no number."""
    fit, before, moved = mode, None, 1.0
    for _ in range(_ROUNDS):
        belief = fit.posterior(objective, key).belief
        outputs = Linearised().outputs(objective.model, belief, mode.network_state, 1, key)
        one_pass = _Pass(outputs, before or outputs)
        sums = fit_laplace(structure, point, objective, data, None, key, one_pass)
        if not math.isfinite(one_pass.moved):
            logging.getLogger("lamu").warning(
                "The curvature is that at the mode, and not averaged over the belief: the covariance of the outputs is "
                "no number in %s under the prior %r; narrow the prior, or compute in 64 bits (jax_enable_x64).",
                jax.tree.leaves(point.mean)[0].dtype,
                objective.model.prior,
            )
            return mode
        fit, moved = replace(mode, curvature=sums.curvature), one_pass.moved if before else 1.0
        if moved < _STILL:
            return fit
        before = outputs
    logging.getLogger("lamu").warning(
        "The covariance of the outputs still moved by %.2g of itself in the last of %d passes over the belief; "
        "curvature=GaussNewton() takes the curvature at the mode alone.",
        moved,
        _ROUNDS,
    )
    return fit


class _Pass:
    """One pass over the rows, with their outputs' covariance averaged between two beliefs (otherwise it oscillates)."""

    def __init__(self, outputs: TangentOutputs, before: TangentOutputs) -> None:
        self._outputs, self._before = outputs, before
        self._change = self._size = 0.0

    @property
    def moved(self) -> float:
        """The relative difference of the covariances between the beliefs."""
        return self._change / self._size

    def __call__(
        self,
        structure: AnyStructure,
        curvature: Curvature,
        objective: Objective,
        params: Params,
        batch: Batch,
        key: RandomKey,
    ) -> RowSums:
        mean, now = self._outputs.normal(batch.x, batch.offset)
        before = now if self._before is self._outputs else self._before.normal(batch.x, batch.offset)[1]
        shift, weights, change, size = _shifted_outputs(mean, now, before, batch.mask, key)
        self._change, self._size = self._change + float(change), self._size + float(size)
        model = replace(objective.model, likelihood=_Averaged(objective.model.likelihood))
        params = {**params, "likelihood": {"own": params["likelihood"], "shift": shift, "weights": weights}}
        return row_sums(structure, curvature, replace(objective, model=model), params, batch, key)


@compiled_once()
def _shifted_outputs(
    mean: Array, now: Array, before: Array, mask: Array, key: RandomKey
) -> tuple[Array, Array, Array, Array]:
    """Returns shifts of the outputs `[samples, batch, outputs]`, their weights, and the change and the total."""
    real = mask.reshape(-1, *[1] * (now.ndim - 1)) > 0  # rows of padding may hold any value
    now, before = jnp.where(real, now, 0), jnp.where(real, before, 0)
    change, size, spread = jnp.sum(jnp.abs(now - before)), jnp.sum(jnp.abs(before)), (now + before) / 2
    if mean.shape[1] == 1:
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        shift = jnp.sqrt(spread.reshape(1, -1, 1)) * jnp.asarray(nodes, mean.dtype)[:, None, None]
        return shift, jnp.asarray(weights / weights.sum(), mean.dtype), change, size
    noise = jax.random.normal(key, (_SAMPLES // 2, *mean.shape), mean.dtype)
    if spread.ndim == 2:
        shift = jnp.sqrt(spread) * noise
    else:
        values, basis = jnp.linalg.eigh(spread)
        root = basis * jnp.sqrt(jnp.maximum(values, 0))[:, None, :]  # rounding may make a singular one negative
        shift = jnp.einsum("bkl,sbl->sbk", root, noise)
    return jnp.concatenate([shift, -shift]), jnp.full(_SAMPLES, 1 / _SAMPLES, mean.dtype), change, size


@record
class _Averaged(LikelihoodWrapper):
    """A likelihood whose information is the weighted mean over shifted outputs of each row."""

    base: Likelihood

    information_blocks, information_root = Likelihood.information_blocks, Likelihood.information_root
    information_sum, information_diagonal = Likelihood.information_sum, Likelihood.information_diagonal
    log_concave = quadratic = logits = False

    @property
    def n_positions(self) -> int:
        return 1  # a row is shifted as a whole

    @property
    def of_position(self) -> Likelihood:
        return self

    def parameters(self, params: Params) -> Params:
        return params["own"]

    def information(self, params: Params, f: Array) -> Array:
        def add(total: Array, sample: tuple[Array, Array]) -> tuple[Array, None]:
            shift, weight = sample
            return total + weight * self.base.information(params["own"], f + shift), None

        nothing = jnp.zeros((*f.shape, f.shape[1]), f.dtype)
        return jax.lax.scan(add, nothing, (params["shift"], params["weights"]))[0]
