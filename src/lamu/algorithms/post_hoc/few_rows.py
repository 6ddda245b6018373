"""The belief about weights and noise at a mode of few rows, the noise integrated over."""

# A noise that is a point is too sure of itself where rows are few, and where the weights follow them closely the
# evidence may be greatest at none at all. With the network's tangent at the mode, whose curvature and gradient are
# known, weights and noise are a linear regression, which `integrate_noise` integrates: exactly for a linear network.
# The belief is then
#
# \[ q(w) = N\big(m, \bar v\, C + (\bar m - m)(\bar m - m)^\top\big), \qquad
#    q(\sigma_k^2) = \text{inverse Gamma}(a, b_k), \qquad b_k / a = \bar v_k, \]
#
# m the mode, which stays the mean, and the linearised prediction Student's t of 2a degrees of freedom.

from __future__ import annotations

import math
from dataclasses import replace

import jax
import numpy as np

from lamu import tree
from lamu.algorithms.closed_form.linear_regression import Directions, integrate_noise
from lamu.algorithms.post_hoc.mode_polish import Polished
from lamu.families import Gamma, Gaussian, Product
from lamu.families.matrix_normal import NoiseScale
from lamu.objective import Objective
from lamu.operators import Dense
from lamu.posterior import Posterior
from lamu.priors import LearnedNormal, Prior, independent_normal
from lamu.typing import Belief, Params

__all__ = ["with_noise_integrated"]

# Numbers that decide results. On 24 data sets each of 2, 3, 5, 8 and 12 rows of three columns the noise at the mode
# covered .68, .63, .52, .74 and .83 of what its 90 % intervals should, and integrated over .86, .88, .83, .86 and .89.
_FEW = 50  # observations beyond the well-determined weights: t's 95 % quantile is then 2 % wider than the normal's
_MOST_WEIGHTS = 1024  # of which a decomposition takes a third of a second
_ROUNDING = 16.0  # of the largest variance, in units of the dtype's rounding a weight
_NARROWEST, _WIDEST = 0.03, 10.0  # as in `lamu.regression`: scales of all slopes together, and of one


def with_noise_integrated(posterior: Posterior, found: Polished, objective: Objective, prior: Prior) -> Posterior:
    """Returns the posterior with its noise integrated over where rows are few; as it is elsewhere."""
    mode, gradient = found.mode, found.gradient
    model, mean = objective.model, mode.params["network"]
    dispersions: Params = mode.params["likelihood"]
    if gradient is None or not (model.quadratic and isinstance(mode.curvature, Dense)):
        return posterior
    if set(dispersions) != {"log_scale"}:
        return posterior
    known = independent_normal(model.free_prior, mean)
    outputs, weights = mode.misfit.size, tree.dimension(mean)
    observed = float(mode.observed) * outputs
    few = observed - min(weights, observed) < _FEW and weights <= _MOST_WEIGHTS
    if known is None or not few or dispersions["log_scale"].size != outputs:
        return posterior
    flat = lambda part: np.asarray(tree.ravel(part)[0], np.float64)
    m, (prior_mean, precision) = flat(mean), map(flat, known)
    deviation, T = precision**-0.5, float(objective.temperature)
    hessian = np.asarray(mode.curvature.matrix, np.float64) * float(objective.data_size)
    hessian = deviation[:, None] * (hessian + hessian.T) / 2 * deviation
    values, basis = np.linalg.eigh(hessian)
    if observed - float(np.sum(np.maximum(values, 0.0) / (1 + np.maximum(values, 0.0)))) >= _FEW:
        return posterior
    there = values > len(m) * float(np.finfo(mode.curvature.matrix.dtype).eps) * max(values[-1], 0.0)
    values, basis = values[there], basis[:, there]
    # Near the mode the rows pull as the prior does. Units: the noise of the mode, or the targets' where that vanished.
    away = basis.T @ ((m - prior_mean) / deviation)
    pull = away - T * (basis.T @ (deviation * flat(gradient)))
    unit = min(max(math.sqrt(float(values @ away**2) / observed), 1.0), 100.0)
    log_scales = np.asarray(dispersions["log_scale"], np.float64).ravel() + math.log(unit)
    # What the directions explain, and the rest, which rounding may make less than nothing.
    explained = float(np.sum(pull**2 / values))
    rest = max(2 * float(np.sum(mode.misfit)) - explained, 0.0) if len(values) < observed else 0.0
    one = np.ones(len(values))
    rows = Directions(
        curvature=values / T / unit**2,
        cross=pull / T / unit**2,
        squares=(explained + rest) / T / unit**2,
        weight=observed / T,
        prior_mean=-away,
        prior_variance=T * one,
        scaled=one > 0,
    )
    dtype = dispersions["log_scale"].dtype
    of_one = jax.vmap(lambda log_scales: model.dispersion_log_prior({"log_scale": log_scales}))
    log_prior = lambda log_noise: np.asarray(of_one((log_noise[:, None] + log_scales).astype(dtype)), float) / T
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
    # The precision is kept in the dtype of the weights, which would make a negative one of a wider range.
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
