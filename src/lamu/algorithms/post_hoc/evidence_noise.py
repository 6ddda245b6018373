"""The noise of a regression by the evidence, with the weights held."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.algorithms.post_hoc.laplace_fit import LaplaceFit, prior_precision
from lamu.bisection import last_within
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.objective import Objective
from lamu.predictives.linearised import LinearisedMarginal, standard_normals
from lamu.typing import Array, Data, OperatorTree, Params, RandomKey

__all__ = ["bound", "determined_by_all", "likelihood_bound", "noise_factor", "spread_rows", "well_determined"]


# Laplace's evidence takes the loss for a parabola. A network that tells all rows apart has next to no curvature at its
# weights, and a loss that rises steeply a little further on, so that its evidence is greatest for a belief far too
# wide. The bound has the loss as the belief meets it:
#
# \[ \log Z \ge E_q[\log p(D \mid \theta)] - \mathrm{KL}(q \,\|\, p)
#    = \log Z_{\text{Laplace}} + \tfrac{\gamma}{2} - \big( \log p(D \mid m) - E_q[\log p(D \mid \theta)] \big), \qquad
#    \gamma = D - \operatorname{tr} S^{-1} \Delta \]
#
# with Δ the precision of the prior. For a quadratic loss it is the evidence itself.


# Numbers that decide results; conventions, not tuned.
_ROWS, _SAMPLES, _NODES = 512, 32, 32  # of the average over the belief: rows, draws, and nodes of one output
_LOG_WIDEST, _TOLERANCE = math.log(100.0), 2e-3  # of the logarithm of the noise factor: its range, and its error


def likelihood_bound(mode: LaplaceFit, objective: Objective, batch: Batch, key: RandomKey) -> float:
    """Returns the bound at T = 1 in nats, with the outputs linearised and taken for independent of each other."""
    return float(bound(mode, objective, batch, key))


def bound(mode: LaplaceFit, objective: Objective, batch: Batch, key: RandomKey) -> Array:
    """Returns the same as an array, to be called in a compiled function too."""
    posterior = mode.posterior(objective, key)
    outputs = LinearisedMarginal().outputs(objective.model, posterior.belief, mode.network_state, _SAMPLES, key)
    mean, variance = outputs.normal(batch.x, batch.offset)
    if mean.shape[1] == 1:
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        noise, weights = jnp.asarray(nodes, mean.dtype)[:, None], jnp.asarray(weights / weights.sum(), mean.dtype)
    else:
        noise = standard_normals(key, _SAMPLES, mean.shape[1], mean.dtype)
        weights = jnp.full(_SAMPLES, 1 / _SAMPLES, mean.dtype)
    lost = _lost(objective, mode, batch, mean, variance.reshape(mean.shape), noise, weights)
    return posterior.evidence + _determined_by_bound(mode, objective) / 2 - lost


def spread_rows(data: Data) -> Batch:
    """Returns some of the rows as a batch: 512 spread evenly over arrays, or the first batch of a stream."""
    if not isinstance(data, Arrays):
        return data.example(1)
    return data.take(np.linspace(0, data.count - 1, min(data.count, _ROWS)).round().astype(int)).full()


@jax.jit
def _lost(
    objective: Objective, mode: LaplaceFit, batch: Batch, mean: Array, variance: Array, noise: Array, weights: Array
) -> Array:
    """Returns log p(D | m) − E_q[log p(D | θ)], for all rows."""
    dispersion = mode.params["likelihood"]
    log_prob = lambda f: objective.model.likelihood.log_prob(dispersion, f, batch.y)
    expected = jnp.tensordot(weights, jax.lax.map(lambda z: log_prob(mean + jnp.sqrt(variance) * z[None]), noise), 1)
    share = batch.total(log_prob(mean) - expected) / jnp.sum(batch.mask)
    return objective.likelihood_power * objective.data_size * share


@jax.jit
def _determined_by_bound(mode: LaplaceFit, objective: Objective) -> Array:
    """Returns γ, the number of well-determined weights."""
    mean = mode.params["network"]
    own = prior_precision(objective, mean).diagonal(mean)
    return tree.dimension(mean) - tree.dot(mode.precision(objective).factored().variance(mean), own)


# Weights that follow the rows closely leave residuals that are smaller than the noise. With M observations, squared
# residuals R and γ well-determined weights the evidence is greatest, in the noise, at \(\sigma^2 = R / (M - \gamma)\)
# (MacKay 1992, equation 2.25), where γ depends on σ in its turn. At a joint mode of weights and noise γ is missing.


def well_determined(metric: OperatorTree, objective: Objective, mean: Params) -> Array:
    r"""Returns \(\gamma = D - \operatorname{tr} S^{-1} \Delta / T\), with Δ the prior's precision."""
    prior = prior_precision(objective, mean).scale(1 / objective.temperature).diagonal(mean)
    return tree.dimension(mean) - tree.dot(metric.variance(mean), prior)


def determined_by_all(mode: LaplaceFit, objective: Objective) -> float | None:
    """Returns γ at the noise at which the evidence is stationary; None if rounding or M leave no room for a noise."""
    determined = float(_determined(mode.scale_noise(objective, noise_factor(mode, objective)), objective))
    return determined if determined < float(mode.observed) * mode.misfit.size else None  # NaN is none


def noise_factor(mode: LaplaceFit, objective: Objective) -> float:
    """Returns c ≥ 1, by which every noise deviation is to be multiplied for the evidence to be stationary in it."""
    # It is one where the noise is too large already, and where the precision is singular to rounding.
    rises = lambda log_factor: float(_slope(mode, objective, log_factor)) > 0.0  # NaN does not
    return math.exp(last_within(rises, 0.0, _LOG_WIDEST, _TOLERANCE)) if rises(0.0) else 1.0


@jax.jit
def _slope(mode: LaplaceFit, objective: Objective, log_factor: Array | float) -> Array:
    """Returns the derivative of the evidence in log c."""
    wide = mode.scale_noise(objective, jnp.exp(log_factor))
    log_prior = lambda log_factor: objective.model.dispersion_log_prior(
        mode.scale_noise(objective, jnp.exp(log_factor)).params["likelihood"]
    )
    own = 2.0 * jnp.sum(wide.misfit) - wide.observed * wide.misfit.size + jax.grad(log_prior)(log_factor)
    return own / objective.temperature + _determined(wide, objective)


@jax.jit
def _determined(mode: LaplaceFit, objective: Objective) -> Array:
    mean = mode.params["network"]
    return well_determined(mode.precision(objective).preconditioner(mean), objective, mean)
