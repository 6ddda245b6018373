"""Bayesian linear regression, one batch after the other: exact steps of the rule for a dense Gaussian."""

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
    """Returns the prior as a belief, tempered as the objective says, and the log of its integral in nats."""
    _require_conjugate(objective, params)
    known = gaussian_belief(objective.model.free_prior, params["network"])
    if known is None:
        name = type(objective.model.prior).__name__
        raise TypeError(f"conjugate() needs a Gaussian prior, not {name}; use nuts(), laplace() or von()")
    precision = Dense(known.precision.dense(known.mean)).scale(1 / objective.temperature)
    prior = Gaussian(known.mean, precision)
    # The prior to the power 1/T is no normalised density: its integral is where the evidence starts.
    peak = objective.model.log_prior({"network": known.mean, "likelihood": {}}) / objective.temperature
    return prior, peak + _log_volume(prior)


def following(
    key: RandomKey, old: Gaussian, evidence: Numeric, network_state: State, batch: Batch, objective: Objective
) -> tuple[Gaussian, Numeric, Numeric]:
    """Returns belief, evidence and mean loss after the batch's rows; the old belief is the prior."""
    alone = replace(objective, data_size=jnp.maximum(batch.count, 1))
    loss = BatchLoss(alone, batch, network_state, NetworkParameters(), {}, conjugate=True)
    at = Exact().evaluate(key, old, loss, GaussNewton(), Dense)
    # An empty batch (all padding) has no rows to say anything.
    total = batch.count / objective.temperature
    target = jax.tree.map(jnp.add, at.curvature.scale(total), old.precision)
    new = gaussian_step(old, tree.scale(at.gradient, total), target, rate=1.0)
    away = tree.add(new.mean, old.mean, -1.0)
    energy = total * loss.value(new.mean, {}, None)[0] + tree.dot(away, old.precision.matvec(away)) / 2
    return new, evidence - energy + _log_volume(new) - _log_volume(old), at.value


def weighed(belief: Gaussian, prior: Gaussian, share: Numeric) -> Gaussian:
    """Returns the belief whose rows count several times, as a step of the rule from the prior."""
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
