"""The lower bound of the evidence that a Gaussian at given weights reaches, in the place of Laplace's evidence."""

# Laplace's evidence takes the loss for a parabola. A network that tells all rows apart has next to no curvature at its
# weights, and a loss that rises steeply a little further on, so that its evidence is greatest for a belief far too
# wide. The bound has the loss as the belief meets it:
#
# \[ \log Z \ge E_q[\log p(D \mid \theta)] - \mathrm{KL}(q \,\|\, p)
#    = \log Z_{\text{Laplace}} + \tfrac{\gamma}{2} - \big( \log p(D \mid m) - E_q[\log p(D \mid \theta)] \big), \qquad
#    \gamma = D - \operatorname{tr} S^{-1} \Delta \]
#
# with Δ the precision of the prior. For a quadratic loss it is the evidence itself.

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.algorithms.post_hoc.laplace_fit import LaplaceFit, prior_precision
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.objective import Objective
from lamu.predictives.linearised import LinearisedMarginal, standard_normals
from lamu.typing import Array, RandomKey

__all__ = ["bound", "likelihood_bound", "spread_rows"]

_ROWS, _SAMPLES, _NODES = 512, 32, 32


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
    return posterior.evidence + _determined(mode, objective) / 2 - lost


def spread_rows(data: Any) -> Batch:
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
def _determined(mode: LaplaceFit, objective: Objective) -> Array:
    """Returns γ, the number of well-determined weights."""
    mean = mode.params["network"]
    own = prior_precision(objective, mean).diagonal(mean)
    return tree.dimension(mean) - tree.dot(mode.precision(objective).factored().variance(mean), own)
