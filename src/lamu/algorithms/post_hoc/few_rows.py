"""Belief about weights and noise at a mode of few rows, integrated over the noise."""

# A point estimate of the noise is overconfident if rows are few, and if the weights follow them closely the
# evidence may be greatest at no noise at all. With the network linearised at the mode, with known curvature and
# gradient, weights and noise are a linear regression, which `integrate_noise` integrates: exactly for a linear
# network. The belief is then
#
# \[ q(w) = N\big(m, \bar v\, C + (\bar m - m)(\bar m - m)^\top\big), \qquad
#    q(\sigma_k^2) = \text{inverse Gamma}(a, b_k), \qquad b_k / a = \bar v_k, \]
#
# with m the mode, which stays the mean, and the linearised prediction Student's t of 2a degrees of freedom.

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.algorithms.closed_form.linear_regression import Directions, integrate_noise
from lamu.algorithms.post_hoc.mode_polish import Polished
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.families import Gamma, Gaussian, Product
from lamu.families.matrix_normal import NoiseScale
from lamu.families.points import DispersionMixture
from lamu.model import Model
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.operators import Dense, Diagonal
from lamu.posterior import Posterior
from lamu.priors import LearnedNormal, Prior, independent_normal
from lamu.typing import Array, Belief, Data, Params

__all__ = ["with_dispersion_integrated", "with_noise_integrated"]

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
    information = float(tree.ravel(model.dispersion_information(mode.params["likelihood"]))[0][0])
    stride = _STRIDE * min(max(information * float(mode.observed), 1.0) ** -0.5, 1.0)
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
