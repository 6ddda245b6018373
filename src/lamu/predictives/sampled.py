"""The sampled rule: averages the likelihood over draws of the parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu import memory
from lamu.base.compile_once import compiled_lightly, once_a_shape
from lamu.data.batch import with_offset
from lamu.families import Draws, Ensemble
from lamu.families.interface import finite_draws
from lamu.families.products import is_certain
from lamu.predictives.interface import Prepared
from lamu.predictives.lazy import PredictiveRule, in_memory_chunks, room_for
from lamu.predictives.mixture import MixturePredictive
from lamu.predictives.padding import RowWise
from lamu.record import record, static
from lamu.supports import Support
from lamu.target import Target
from lamu.typing import Array, Belief, Params, PyTree, RandomKey, Rows, State

__all__ = ["DrawnOutputs", "OwnStatistics", "Sampled", "settled_state"]


@record
class DrawnOutputs(RowWise):
    """The average of the likelihood over the outputs of draws."""

    model: Target  # the model
    draws: tuple[Any, ...]  # the arguments of the outputs' function
    dispersion: Params  # the likelihood's parameters, `[S, ...]`
    # A compiled function of model, draws, x and offset that returns f, `[S, N, K]`.
    outputs: Callable[..., Any] = static()
    # Whether the draws are random, not points of a discrete belief.
    random: bool = static(default=True)
    log_weights: Any = None  # log w of each draw, `[S]`, normalised; None for equal weights

    @property
    def support(self) -> Support:
        """The likelihood's support."""
        return self.model.likelihood.support

    def room(self, x: PyTree, offset: PyTree, rows: int) -> int:
        return room_for(self.outputs, (self.model, *self.draws), (x, offset))

    def at(self, x: Rows, offset: Rows | None) -> MixturePredictive:
        """Returns the predictive of these rows."""
        f = in_memory_chunks(self.outputs, (self.model, *self.draws), (x, offset), axis=1)
        if self.log_weights is None:
            return MixturePredictive.equal(self.model.likelihood, self.dispersion, f, self.random)
        return MixturePredictive(self.model.likelihood, self.dispersion, f, self.log_weights, self.random)


@record
class Sampled(PredictiveRule):
    r"""The average of the likelihood over draws of the parameters; a point needs one draw.

    \[ p(y^*) \approx \frac1S \sum_s p(y^* \mid f(\theta_s, x^*)), \qquad \theta_s \sim q \]

    A weighted ensemble of points is summed exactly.

    Examples:
        >>> from lamu.predictives import Sampled
        >>> Sampled()
        Sampled()
    """

    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        if isinstance(belief, Ensemble) and belief.log_weights is not None and is_certain(belief):
            theta = _points(belief.stacked, key)
            return DrawnOutputs(model, (network_state, theta), theta["likelihood"], _outputs, False, belief.log_weights)
        draws = _draws(belief, key, samples)
        random = not is_certain(belief)
        return DrawnOutputs(model, (network_state, draws), draws["likelihood"], _outputs, random)


def require_room(belief: Belief, key: RandomKey, samples: int) -> None:
    """Raises a ValueError where the draws of the parameters, which every chunk needs, do not fit in memory."""
    kept, size, weights = _sizes(belief, key, samples)
    fewer = memory.limit() // max(size, 1)
    instead = f"ask for samples={fewer}" if fewer else f"one takes {memory.shown(size)}, so set a higher limit"
    memory.demand(kept * size, f"a prediction from {kept:,} draws of {weights:,} numbers", instead)


@once_a_shape
def _sizes(belief: Belief, key: RandomKey, samples: int) -> tuple[int, int, int]:
    """Returns the number of draws, the bytes of one, and its number of values."""
    leaves = jax.tree.leaves(jax.eval_shape(lambda belief, key: belief.draws(key, samples), belief, key))
    kept = max((leaf.shape[0] for leaf in leaves), default=0)
    numbers = [math.prod(leaf.shape[1:]) for leaf in leaves]
    size = sum(each * leaf.dtype.itemsize for each, leaf in zip(numbers, leaves, strict=True))
    return kept, size, sum(numbers)


@jax.jit
def _points(belief: Belief, key: RandomKey) -> Params:
    return jax.tree.map(lambda leaf: leaf[0], belief.draws(key, 1))


def _draws(belief: Belief, key: RandomKey, samples: int) -> Params:
    """Returns the finite draws."""
    require_room(belief, key, samples)
    # Draws may be on disk: as an argument of a compiled function all of them would be read.
    return finite_draws((belief.draws if isinstance(belief, Draws) else partial(_drawn, belief))(key, samples))


@compiled_lightly(static_argnums=2)
def _drawn(belief: Belief, key: RandomKey, samples: int) -> Params:
    return belief.draws(key, samples)


@jax.jit
def _outputs(model: Target, network_state: State, draws: Params, x: Array, offset: Array | None) -> Array:
    # One draw after the other: memory stays that of one pass, and a matrix product already uses all cores.
    f = lambda params: with_offset(model.outputs(params, network_state, x)[0], offset)
    return jnp.asarray(jax.lax.map(f, draws))


@record
class OwnStatistics(PredictiveRule):
    """The average of the likelihood over draws of parameters, each with its own batch statistics from some rows."""

    # Batch statistics belong to the weights of the run; drawn weights have features with other means and variances. For
    # each draw the rows are passed in training mode until the running averages have converged (50 times, which leaves
    # half a per cent of the old value at a momentum of 0.9).
    #
    # Source: Maddox et al. (2019), algorithm 1, for draws of SWAG.

    x: Any  # the rows `[rows, ...]`

    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        draws = _draws(belief, key, samples)
        x = jnp.asarray(self.x)
        states = jax.jit(lambda draws: jax.lax.map(lambda theta: settled_state(model, theta, network_state, x), draws))
        return DrawnOutputs(model, (states(draws), draws), draws["likelihood"], _outputs_of_states)


def settled_state(model: Target, params: Params, network_state: State, x: Array, times: int = 50) -> State:
    """Returns the network's state after repeated passes over rows in training mode."""
    once = lambda _, state: model.outputs(params, state, x, None, True, None)[1]
    return jax.lax.fori_loop(0, times, once, network_state)


@jax.jit
def _outputs_of_states(model: Target, states: State, draws: Params, x: Array, offset: Array | None) -> Array:
    f = lambda both: with_offset(model.outputs(both[0], both[1], x)[0], offset)
    return jnp.asarray(jax.lax.map(f, (draws, states)))
