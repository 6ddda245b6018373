r"""The Gaussian at a mode: one pass over the data for the curvature, the evidence, and the prior's unknown width.

\[ S = \tfrac1T \Big( p \sum_i w_i J_i^\top \Lambda_i J_i - \nabla^2 \log p(m) \Big), \qquad
   \log Z \approx -\ell(m)/T + \tfrac{D}{2}\log 2\pi - \tfrac12\log\det S \]
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.families import Gaussian, Point, Product
from lamu.objective import BatchLoss, Objective, Weights
from lamu.objective.curvature import GaussNewton
from lamu.posterior import Posterior
from lamu.predictives import Linearised
from lamu.priors import LearnedNormal
from lamu.typing import Array, Params, RandomKey

__all__ = ["gaussian_at_mode"]

_JACOBIAN_BYTES = 256 * 2**20
_NARROWEST, _WIDEST = 1e-3, 1e3


def gaussian_at_mode(structure: Any, point: Posterior, key: RandomKey, objective: Objective, data: Any) -> Posterior:
    """Returns the posterior that is Gaussian about the weights at a point's mean, with its evidence.

    Args:
        structure: the operator class of the precision.
        point: a posterior whose mean is the mode.
        key: the seed of the posterior's predictions.
        objective: the loss that the mode is of.
        data: the data.
    """
    mean, dispersion = point.mean["network"], point.mean["likelihood"]
    total, value, seen = None, 0.0, 0.0
    for batch in data.batches(_rows_at_once(objective, point, data)):
        part, loss, count = _batch_sums(structure, objective, point.network_state, mean, dispersion, batch)
        total = part if total is None else jax.tree.map(jnp.add, total, part)
        value, seen = value + loss, seen + count
    # The sums are over the rows that there are; the objective may count N differently.
    likelihood = jnp.asarray(value / seen * objective.data_size)
    curvature = jax.tree.map(lambda leaf: leaf / jnp.asarray(seen, leaf.dtype), total)

    prior = objective.model.prior
    if isinstance(prior, LearnedNormal):
        scale = _scale_of_most_evidence(prior, objective, point.mean, curvature, likelihood)
        objective = replace(objective, model=replace(objective.model, prior=prior.at(scale)))
    gaussian, evidence = _gaussian(objective, point.mean, curvature, likelihood)
    belief = Product({"network": gaussian, "likelihood": Point(dispersion)})
    return Posterior(objective.model, belief, point.network_state, Linearised(), key, evidence=evidence)


@jax.jit
def _gaussian(objective: Objective, params: Params, curvature: Any, likelihood: Array) -> tuple[Gaussian, Array]:
    """Returns the Gaussian and the evidence, for the mean curvature and the sum of negative log likelihoods."""
    mean = params["network"]
    precision = jax.tree.map(jnp.add, curvature, type(curvature).from_diagonal(_prior_curvature(objective, mean)))
    gaussian = Gaussian(mean, precision.scale(objective.concentration))
    energy = (likelihood - objective.model.log_prior(params)) / objective.temperature
    volume = tree.dimension(mean) / 2 * math.log(2 * math.pi) - gaussian.precision.logdet(mean) / 2
    return gaussian, volume - energy


def _scale_of_most_evidence(
    prior: LearnedNormal, objective: Objective, params: Params, curvature: Any, likelihood: Array
) -> float:
    """Returns the prior's width of greatest evidence, the mode and the curvature of the data held."""
    from scipy.optimize import minimize_scalar

    def loss(log_scale: float) -> float:
        model = replace(objective.model, prior=prior.at(math.exp(log_scale)))
        return -float(_gaussian(replace(objective, model=model), params, curvature, likelihood)[1])

    bounds = (math.log(_NARROWEST), math.log(_WIDEST))
    return math.exp(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.01}).x)


@partial(jax.jit, static_argnums=0)
def _batch_sums(
    structure: Any, objective: Objective, network_state: Any, mean: Params, dispersion: Params, batch: Batch
) -> tuple[Any, Array, Array]:
    """Returns the sums over the batch's rows of the curvature and of the negative log likelihood, and the rows."""
    loss = BatchLoss(objective, batch, network_state, Weights(), dispersion, conjugate=True)
    params = {"network": mean, "likelihood": dispersion}
    value, _ = objective.negative_log_likelihood(params, batch, network_state)
    count = batch.count.astype(value.dtype)
    return GaussNewton().matrix(loss, mean, structure).scale(count), value * count, count


def _prior_curvature(objective: Objective, mean: Params) -> Params:
    """Returns the diagonal of −∇² log p(m) / N: all of it, since weights are independent under every prior."""
    known = Weights().conjugate_prior(objective, mean)
    if known is not None:
        return known[1]
    ones = jax.tree.map(jnp.ones_like, mean)
    return tree.scale(jax.jvp(jax.grad(objective.model.prior.log_prob), (mean,), (ones,))[1], -1 / objective.data_size)


def _rows_at_once(objective: Objective, point: Posterior, data: Any) -> int:
    """Returns how many rows' Jacobians fit the budget."""
    x = data.example(1).x
    outputs = jax.eval_shape(lambda x: objective.model.outputs(point.mean, point.network_state, x)[0], x).shape[1]
    row_bytes = outputs * tree.dimension(point.mean["network"]) * jnp.dtype(jnp.result_type(float)).itemsize
    return max(1, min(_JACOBIAN_BYTES // max(row_bytes, 1), 1024))
