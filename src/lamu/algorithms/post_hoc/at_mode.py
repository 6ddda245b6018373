r"""The Gaussian at a mode: one pass over the data for the curvature, the evidence, and what nobody knew beforehand.

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
from lamu.operators import Dense
from lamu.posterior import Posterior
from lamu.predictives import Linearised
from lamu.priors import gaussian_belief
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Mode", "look_at_mode"]

_JACOBIAN_BYTES = 256 * 2**20


@record
class Mode:
    r"""What one pass over the data finds at a mode; a Gaussian follows from it for any prior, without another pass.

    Attributes:
        params: the most probable parameters m.
        network_state: the network's state there.
        curvature: the Gauss–Newton matrix a row, of the structure that the precision will have, without the prior.
        likelihood: \(-p \sum_i w_i \log p(y_i \mid x_i, m)\) in nats, for N rows.
        misfit: how much of it is due to the residuals, \(p \sum_i w_i r_i^2 / 2\sigma^2\) for a quadratic likelihood.
        observed: how many numbers were observed, \(p \sum_i w_i\) times the outputs.

    Examples:
        >>> from lamu.algorithms.post_hoc.at_mode import Mode
        >>> Mode({}, {}, curvature=None, likelihood=1.5, misfit=0.5, observed=1.0).likelihood
        1.5
    """

    params: Params
    network_state: Any
    curvature: Any
    likelihood: Any
    misfit: Any
    observed: Any

    def posterior(self, objective: Objective, key: RandomKey) -> Posterior:
        """Returns the posterior that is Gaussian about the weights, with its evidence.

        Args:
            objective: the loss, whose prior may be another one than that under which the mode was found.
            key: the seed of the posterior's predictions.
        """
        gaussian, evidence = _gaussian(objective, self)
        belief = Product({"network": gaussian, "likelihood": Point(self.params["likelihood"])})
        return Posterior(objective.model, belief, self.network_state, Linearised(), key, evidence=evidence)

    def widened(self, objective: Objective, factor: Number) -> Mode:
        r"""Returns the mode with every noise deviation of a quadratic likelihood times a factor.

        With R the misfit and M the numbers observed, the likelihood becomes \(R / c^2 + M \log c\), constants aside,
        and the curvature is divided by c².

        Args:
            objective: the loss.
            factor: c.
        """
        likelihood: Any = objective.model.likelihood
        params = {**self.params, "likelihood": likelihood.widened(self.params["likelihood"], factor)}
        misfit = self.misfit / factor**2
        value = self.likelihood - self.misfit + misfit + self.observed * jnp.log(factor)
        curvature = self.curvature.scale(1 / factor**2)
        return replace(self, params=params, curvature=curvature, likelihood=value, misfit=misfit)


def look_at_mode(structure: Any, point: Posterior, objective: Objective, data: Any) -> Mode:
    """Returns what one pass over the data finds at a posterior's mean.

    Args:
        structure: the operator class of the precision.
        point: a posterior whose mean is the mode.
        objective: the loss that the mode is of.
        data: the data.
    """
    params, state = point.mean, point.network_state
    total: Any = None
    for batch in data.batches(_rows_at_once(objective, point, data)):
        part = _batch_sums(structure, objective, state, params, batch)
        total = part if total is None else jax.tree.map(jnp.add, total, part)
    curvature, *sums, seen = total
    # The sums are over the rows that there are; the objective may count N differently.
    likelihood, misfit, observed = (value / seen * objective.data_size for value in sums)
    curvature = jax.tree.map(lambda leaf: leaf / jnp.asarray(seen, leaf.dtype), curvature)
    return Mode(params, state, curvature, likelihood, misfit, observed)


@jax.jit
def _gaussian(objective: Objective, mode: Mode) -> tuple[Gaussian, Array]:
    """Returns the Gaussian and the evidence."""
    mean = mode.params["network"]
    prior = _prior_curvature(type(mode.curvature), objective, mean)
    gaussian = Gaussian(mean, jax.tree.map(jnp.add, mode.curvature, prior).scale(objective.concentration))
    energy = (mode.likelihood - objective.model.log_prior(mode.params)) / objective.temperature
    volume = tree.dimension(mean) / 2 * math.log(2 * math.pi) - gaussian.precision.logdet(mean) / 2
    return gaussian, volume - energy


@partial(jax.jit, static_argnums=0)
def _batch_sums(
    structure: Any, objective: Objective, network_state: Any, params: Params, batch: Batch
) -> tuple[Any, Array, Array, Array, Array]:
    """Returns the sums over the batch's rows of what a mode is made of, and the number of rows."""
    mean, dispersion = params["network"], params["likelihood"]
    loss = BatchLoss(objective, batch, network_state, Weights(), dispersion, conjugate=True)
    value, _ = objective.negative_log_likelihood(params, batch, network_state)
    count = batch.count.astype(value.dtype)
    f = loss.outputs(mean)
    likelihood = objective.model.likelihood
    observed = jnp.sum(objective.row_factor(batch)).astype(value.dtype) * f.shape[1]
    misfit = jnp.zeros_like(value)
    if likelihood.quadratic:
        peak = likelihood.log_prob(dispersion, f, likelihood.mean(dispersion, f))
        misfit = value + jnp.sum(objective.row_factor(batch).astype(value.dtype) * peak)
    curvature = GaussNewton().matrix(loss, mean, structure).scale(count)
    return curvature, value * count, misfit * count, observed * count, count


def _prior_curvature(structure: Any, objective: Objective, mean: Params) -> Any:
    """Returns −∇² log p(m) / N in the structure: exact where the prior is Gaussian, else of independent weights."""
    known = gaussian_belief(objective.model.prior, mean)
    if known is None:
        ones = jax.tree.map(jnp.ones_like, mean)
        diagonal = jax.jvp(jax.grad(objective.model.prior.log_prob), (mean,), (ones,))[1]
        return structure.from_diagonal(tree.scale(diagonal, -1 / objective.data_size))
    precision = known.precision
    held = Dense(precision.dense(mean)) if structure is Dense else structure.from_diagonal(precision.diagonal(mean))
    return held.scale(1 / objective.data_size)


def _rows_at_once(objective: Objective, point: Posterior, data: Any) -> int:
    """Returns how many rows' Jacobians fit the budget."""
    x = data.example(1).x
    outputs = jax.eval_shape(lambda x: objective.model.outputs(point.mean, point.network_state, x)[0], x).shape[1]
    row_bytes = outputs * tree.dimension(point.mean["network"]) * jnp.dtype(jnp.result_type(float)).itemsize
    return max(1, min(_JACOBIAN_BYTES // max(row_bytes, 1), 1024))
