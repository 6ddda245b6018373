"""The sampled rule for networks with a state: every draw of the weights with statistics of its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.data.batch import with_offset
from lamu.predictives.drawn_outputs import DrawnOutputs
from lamu.predictives.interface import Prepared
from lamu.predictives.rule import PredictiveRule
from lamu.predictives.sampled import require_room
from lamu.record import record
from lamu.target import Target
from lamu.typing import Array, Params, RandomKey

__all__ = ["OwnStatistics", "settled_state"]


@record
class OwnStatistics(PredictiveRule):
    """The average of the likelihood over draws of parameters, each with the network state that some rows give it."""

    # Batch statistics are of the weights that a run went through; weights drawn around them make other features, whose
    # means and variances are others. Each draw sees the rows in training mode until the running averages have settled
    # (50 times, which leaves half a per cent of what was before at a momentum of 0.9).
    #
    # Source: Maddox et al. (2019), algorithm 1, for draws of SWAG.

    x: Any  # the rows `[rows, ...]`

    def prepare(self, model: Target, belief: Any, network_state: Any, samples: int, key: RandomKey) -> Prepared:
        require_room(belief, key, samples)
        draws = jax.jit(lambda key: belief.draws(key, samples))(key)
        x = jnp.asarray(self.x)
        states = jax.jit(lambda draws: jax.lax.map(lambda theta: settled_state(model, theta, network_state, x), draws))
        return DrawnOutputs(model, (states(draws), draws), draws["likelihood"], _outputs)


def settled_state(model: Target, params: Params, network_state: Any, x: Array, times: int = 50) -> Any:
    """Returns the network's state after it has seen rows in training mode, again and again."""
    once = lambda _, state: model.outputs(params, state, x, None, True, None)[1]
    return jax.lax.fori_loop(0, times, once, network_state)


@jax.jit
def _outputs(model: Target, states: Any, draws: Params, x: Array, offset: Array | None) -> Array:
    f = lambda both: with_offset(model.outputs(both[0], both[1], x)[0], offset)
    return jnp.asarray(jax.lax.map(f, (draws, states)))
