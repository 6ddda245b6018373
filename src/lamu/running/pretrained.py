"""Networks that arrive trained: the run of no steps that goes straight to the posterior."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.data.batch import Batch
from lamu.model import Model
from lamu.target import Target
from lamu.typing import Array, Params

__all__ = ["require_trained", "say_probabilities", "say_seen_rows"]

_FEWEST, _MOST = 20, 256  # rows of which probabilities are told from log odds
_NATS = 3.0  # by which they must fit better, of all rows together


def require_trained(model: Target, epochs: Any) -> None:
    """Raises a ValueError for a run of no steps from random weights."""
    if epochs == 0 and not model.trained:
        raise ValueError(
            f"epochs=0 would make a posterior of the random weights of {model.name}; give trained "
            "ones with model.starting_at(params), or a network that brings its own (lamu.networks.Trained), or train "
            "for some epochs"
        )


def say_seen_rows(validation: Any) -> None:
    """Warns where rows to validate on are a share of the rows that a network which arrived trained has learned from."""
    if isinstance(validation, float | int):
        logging.getLogger("lamu").warning(
            "validation=%r sets aside rows of the data, which a network that arrives trained has learned from: on its "
            "own rows it is right too often to choose a prior's scale by; give rows that it has not seen, "
            "validation=(x, y), or leave validation out.",
            validation,
        )


def say_probabilities(model: Target, rows: Batch) -> None:
    """Warns where the outputs of a network that arrived trained look like probabilities, and are taken as logits."""
    # An activation at the end of the network is an error (`lamu.networks.output_range`); this is about one that its
    # traced program does not show. Nothing is said unless the outputs as probabilities fit the targets better.
    if not isinstance(model, Model) or not model.network.trained or rows.offset is not None:
        return
    count = min(_MOST, len(rows.weight))
    wanted = model.likelihood.outputs(rows.y)
    scales = set(model.likelihood.output_scales(wanted))
    if count < _FEWEST or scales not in ({"logits"}, {"log odds"}) or jnp.ndim(rows.y) != 1:
        return
    some = jax.tree.map(lambda leaf: leaf[:count], rows)
    params, outputs = _outputs(model, some)
    f = np.asarray(outputs, float)
    probabilities = np.concatenate([1 - f, f], axis=1) if scales == {"log odds"} else f
    if f.min() < 0 or f.max() > 1 or not np.allclose(probabilities.sum(axis=1), 1, atol=1e-3):
        return
    of_target = np.clip(probabilities[np.arange(count), np.asarray(some.y).astype(int)], 1e-12, None)
    as_logits = np.asarray(model.likelihood.log_prob(params["likelihood"], jnp.asarray(f, some.x.dtype), some.y), float)
    if np.sum(np.log(of_target) - as_logits) <= _NATS:
        return
    what = "log odds" if scales == {"log odds"} else "logits"
    warnings.warn(
        f"all outputs of the network {model.network.name} on {count} rows lie between 0 and 1"
        f"{'' if what == 'log odds' else ', those of a row sum to one'}, and as probabilities they fit the targets "
        f"better ({np.log(of_target).mean():.3g} nats a row, {as_logits.mean():.3g} as {what}), but "
        f"{model.likelihood.name} takes them as {what}; give the network without its last sigmoid or softmax",
        UserWarning,
        stacklevel=3,
    )


@jax.jit
def _outputs(model: Model, rows: Batch) -> tuple[Params, Array]:
    """Returns the parameters that a network brings, and its outputs at rows; one program for all models of a kind."""
    params, state = model.init(jax.random.key(0), rows)
    return params, model.outputs(params, state, rows.x)[0]
