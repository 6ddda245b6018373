"""The masked rule: average the likelihood over draws of a network's own noise."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu.data.batch import with_offset
from lamu.networks.randomness import draws_noise
from lamu.predictives import MixturePredictive, PredictiveRule, Prepared
from lamu.predictives.drawn_outputs import DrawnOutputs
from lamu.record import record
from lamu.supports import Support
from lamu.target import Target
from lamu.typing import Array, Params, RandomKey, Rows

__all__ = ["Masked"]


@record
class Masked(PredictiveRule):
    """The average over draws of parameters and of the noise on the units, one noise a draw for all rows."""

    # \[ p(y^*) \approx \frac1S \sum_s p(y^* \mid f(\theta_s, z_s, x^*)), \qquad \theta_s \sim q,\; z_s \sim p(z) \]
    #
    # The network is otherwise in evaluation mode: batch statistics are used, not computed.
    #
    # Source: Gal & Ghahramani (2016), equation 6.

    def prepare(self, model: Target, belief: Any, network_state: Any, samples: int, key: RandomKey) -> Prepared:
        params_key, noise_key = jax.random.split(key)
        draws = _draws(belief, params_key, samples)
        keys = jax.vmap(lambda s: jax.random.fold_in(noise_key, s))(jnp.arange(samples))
        return _Noisy(DrawnOutputs(model, (network_state, draws, keys), draws["likelihood"], _outputs))


@record
class _Noisy:
    """Draws of the parameters, each with the key of its noise, for a network that draws noise."""

    drawn: DrawnOutputs

    @property
    def support(self) -> Support:
        return self.drawn.support

    def at(self, x: Rows, offset: Rows | None) -> MixturePredictive:
        model, (network_state, draws, _) = self.drawn.model, self.drawn.draws
        weights = model.complete(jax.tree.map(lambda leaf: _shape(leaf, leaf.shape[1:]), draws["network"]))
        if not draws_noise(model.network, weights, network_state, _shape(x, (1, *x.shape[1:]))):
            raise TypeError(f"Masked() draws the noise of a network, and {type(model.network).__name__} has none")
        return self.drawn.at(x, offset)


def _shape(leaf: Any, shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(leaf.dtype))


@partial(jax.jit, static_argnums=2)
def _draws(belief: Any, key: RandomKey, samples: int) -> Params:
    drawn = belief.draws(key, samples)
    count = max(leaf.shape[0] for leaf in jax.tree.leaves(drawn))
    # A point gives itself once: it is repeated, because the noise is not.
    return jax.tree.map(lambda leaf: leaf[jnp.arange(samples) * count // samples], drawn)


@jax.jit
def _outputs(model: Target, network_state: Any, draws: Params, keys: Any, x: Array, offset: Array | None) -> Array:
    def at_draw(draw: tuple[Params, Any]) -> Array:
        params, key = draw
        # Each row by itself, with one key for all: noise is drawn by a row's number, and every row is its own first.
        row = lambda x: model.outputs(params, network_state, x[None], key)[0][0]
        return with_offset(jax.vmap(row)(x), offset)

    return jnp.asarray(jax.lax.map(at_draw, (draws, jax.random.clone(keys))))
