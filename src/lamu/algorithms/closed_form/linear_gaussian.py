"""Bayesian linear regression by batches: exact steps of the rule for a dense Gaussian."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.expectations import Exact
from lamu.families import Gaussian
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import GaussNewton
from lamu.operators import Dense
from lamu.priors import gaussian_belief
from lamu.rule import gaussian_step
from lamu.typing import Array, Numeric, Params, RandomKey, State

__all__ = ["first", "following", "weighed"]


def first(objective: Objective, params: Params) -> tuple[Gaussian, Array]:
    """Returns the prior as a belief at the objective's temperature, and the log of its integral in nats."""
    _require_conjugate(objective, params)
    gaussian = gaussian_belief(objective.model.free_prior, params["network"])
    if gaussian is None:
        name = type(objective.model.prior).__name__
        raise TypeError(f"conjugate() needs a Gaussian prior, not {name}; use nuts(), laplace() or von()")
    precision = Dense(gaussian.precision.dense(gaussian.mean)).scale(1 / objective.temperature)
    prior = Gaussian(gaussian.mean, precision)
    # The prior to the power 1/T is not a normalised density: the evidence starts at its integral.
    peak = objective.model.log_prior({"network": gaussian.mean, "likelihood": {}}) / objective.temperature
    return prior, peak + _log_volume(prior)


def following(
    key: RandomKey, old: Gaussian, evidence: Numeric, network_state: State, batch: Batch, objective: Objective
) -> tuple[Gaussian, Numeric, Numeric]:
    """Returns belief, evidence and mean loss after the batch's rows; the old belief is the prior."""
    batch_objective = replace(objective, data_size=jnp.maximum(batch.count, 1))
    loss = BatchLoss(batch_objective, batch, network_state, NetworkParameters(), {}, conjugate=True)
    evaluated = Exact().evaluate(key, old, loss, GaussNewton(), Dense)
    # An empty batch (all padding) carries no information.
    total = batch.count / objective.temperature
    target = jax.tree.map(jnp.add, evaluated.curvature.scale(total), old.precision)
    new = gaussian_step(old, tree.scale(evaluated.gradient, total), target, rate=1.0)
    away = tree.add(new.mean, old.mean, -1.0)
    energy = total * loss.value(new.mean, {}, None)[0] + tree.dot(away, old.precision.matvec(away)) / 2
    return new, evidence - energy + _log_volume(new) - _log_volume(old), evaluated.value


def weighed(belief: Gaussian, prior: Gaussian, share: Numeric) -> Gaussian:
    """Returns the belief with the rows counted `share` times, by a step of the rule from the prior."""
    curvature = tree.add(belief.precision, prior.precision, -1.0)
    gradient = belief.precision.matvec(tree.add(belief.mean, prior.mean, -1.0))  # of the log likelihood, at m0
    target = tree.add(prior.precision, curvature, share)
    return gaussian_step(prior, tree.scale(gradient, -share), target, rate=1.0)


def _log_volume(belief: Gaussian) -> Array:
    dimension = tree.dimension(belief.mean)
    return (dimension * math.log(2 * math.pi) - belief.precision.logdet(belief.mean)) / 2


def _require_conjugate(objective: Objective, params: Params) -> None:
    model = objective.model
    if not model.network.linear:
        name = type(model.network).__name__
        raise TypeError(
            f"conjugate() needs a network that is linear in its weights, not {name}; use laplace() or ivon()"
        )
    if not model.likelihood.quadratic:
        name = type(model.likelihood).__name__
        raise TypeError(f"conjugate() needs a Gaussian likelihood, not {name}; use laplace(), von() or nuts()")
    if jax.tree.leaves(params["likelihood"]):
        raise TypeError(
            "conjugate() needs a known noise, Gaussian(scale=...); with a learned one use laplace() or nuts()"
        )
