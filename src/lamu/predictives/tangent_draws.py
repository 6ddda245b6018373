"""The linearised rule by draws of the weights: for precisions that are drawn from more cheaply than solved with."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import with_offset
from lamu.families import Gaussian
from lamu.predictives.drawn_outputs import DrawnOutputs
from lamu.predictives.interface import Prepared
from lamu.predictives.linearised import weights_and_dispersion
from lamu.predictives.rule import PredictiveRule
from lamu.predictives.sampled import require_room
from lamu.record import record
from lamu.target import Target
from lamu.typing import Array, Params, RandomKey

__all__ = ["TangentDraws"]


@record
class TangentDraws(PredictiveRule):
    r"""The average of the likelihood over draws of the tangent, \(f(m, x) + J(x)(\theta_s - m)\), \(\theta_s \sim q\).

    One product with the Jacobian a draw and row, and no solve once the draws are there; it serves every Gaussian
    belief, and is the rule of a matrix-free one.

    Source: Antorán et al. (2023), "Sampling-based inference for large linear models".

    Examples:
        >>> from lamu.predictives import TangentDraws
        >>> TangentDraws()
        TangentDraws()
    """

    def prepare(self, model: Target, belief: Any, network_state: Any, samples: int, key: RandomKey) -> Prepared:
        weights, dispersion = weights_and_dispersion(belief)
        require_room(weights, key, samples)
        draws = _draws(weights, key, samples)
        count = jax.tree.leaves(draws)[0].shape[0]
        repeated = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[None], (count, *leaf.shape)), dispersion)
        return DrawnOutputs(model, (weights.mean, draws, dispersion, network_state), repeated, _outputs)


@partial(jax.jit, static_argnums=2)
def _draws(weights: Gaussian, key: RandomKey, samples: int) -> Params:
    return weights.draws(key, samples)


@jax.jit
def _outputs(
    model: Target, mean: Params, draws: Params, dispersion: Params, network_state: Any, x: Array, offset: Array | None
) -> Array:
    outputs = lambda theta: model.outputs({"network": theta, "likelihood": dispersion}, network_state, x)[0]
    f, forwards = jax.linearize(outputs, mean)
    of_draw = lambda theta: with_offset(f + forwards(tree.add(theta, mean, -1.0)), offset)
    return jnp.asarray(jax.lax.map(of_draw, draws))
