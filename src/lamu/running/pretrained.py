"""Networks that arrive trained: the run of no steps that goes straight to the posterior."""

from __future__ import annotations

import logging
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.compile_once import compiled_once
from lamu.data.batch import Batch
from lamu.objective import Objective
from lamu.priors import LearnedNormal
from lamu.target import Target
from lamu.typing import Array, Params, RandomKey

__all__ = ["look_at_slope", "require_trained", "say_seen_rows"]

_STEP, _GAIN = 0.01, 0.05


def require_trained(model: Target, epochs: Any) -> None:
    """Raises a ValueError for a run of no steps from random weights."""
    if epochs == 0 and not model.trained:
        raise ValueError(
            f"epochs=0 would make a posterior of the random weights of {model.name}; give trained "
            "ones with model.starting_at(params), or a network that brings its own (lamu.networks.Trained), or train "
            "for some epochs"
        )


def say_seen_rows(validation: Any) -> None:
    """Warns where rows to validate on are a share of the rows that a network which arrived trained has learned from.

    Args:
        validation: as `fit` takes it.

    Examples:
        >>> from lamu.running.pretrained import say_seen_rows
        >>> say_seen_rows(None)
    """
    if isinstance(validation, float | int):
        logging.getLogger("lamu").warning(
            "validation=%r sets aside rows of the data, which a network that arrives trained has learned from: on its "
            "own rows it is right too often to choose a prior's scale by; give rows that it has not seen, "
            "validation=(x, y), or leave validation out.",
            validation,
        )


def look_at_slope(key: RandomKey, objective: Objective, batch: Batch) -> None:
    r"""Warns where the weights that arrived are no minimum of the loss, which Laplace's method takes them for.

    The sign is the loss that one step of a hundredth of the weights' length down the slope promises,
    \(0.01\, |\theta|\, |\nabla \bar\ell|\), in nats a row. A prior whose scale is open (`LearnedNormal`) has no
    part in it.

    Args:
        key: a random key.
        objective: the loss.
        batch: some rows.
    """
    params, state = objective.model.init(key, batch)
    gain = _STEP * float(_lengths(params, state, objective, batch))
    if not gain <= _GAIN:
        logging.getLogger("lamu").warning(
            "The weights are far from a minimum: a step of 1 %% of their length down the slope promises %.2g nats a "
            "row; train longer, or under the prior that the posterior is to have.",
            gain,
        )


@compiled_once()
def _lengths(params: Params, state: Any, objective: Objective, batch: Batch) -> Array:
    """Returns the length of the weights times that of the gradient in them."""
    open_scale = isinstance(objective.model.prior, LearnedNormal)
    loss = objective.negative_log_likelihood if open_scale else objective.mean_loss
    slope = jax.grad(lambda params: loss(params, batch, state)[0])(params)["network"]
    return jnp.sqrt(tree.dot(params["network"], params["network"]) * tree.dot(slope, slope))
