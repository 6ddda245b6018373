"""Where chains start: at the model's own start, at a point, at draws of a posterior, or apart about one of these."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.density import Density
from lamu.objective import Objective
from lamu.typing import Params, RandomKey

__all__ = ["apart", "started"]

_APART = 2.0  # as far as NumPyro and Stan start their chains from zero


def started(key: RandomKey, start: Any, objective: Objective, batch: Batch) -> tuple[Params, Any]:
    """Returns where one chain starts, as the real numbers that it runs in, and the network's state."""
    init_key, draw_key = jax.random.split(key)
    fresh, network_state = objective.model.init(init_key, batch)
    if start is None:
        return fresh, network_state
    given, state = (start.belief.sample(draw_key), start.network_state) if hasattr(start, "belief") else (start, {})
    given = objective.model.unconstrained(given)
    if tree.paths(given) != tree.paths(fresh) or [jnp.shape(leaf) for leaf in jax.tree.leaves(given)] != [
        jnp.shape(leaf) for leaf in jax.tree.leaves(fresh)
    ]:
        raise ValueError(
            f"start has the leaves {_shapes(given)} and the model {_shapes(fresh)}; give a posterior of this model"
        )
    position = jax.tree.map(lambda old, new: jnp.array(new, old.dtype, copy=True), fresh, given)
    return position, state if jax.tree.leaves(state) else network_state


def apart(key: RandomKey, positions: Params, density: Density) -> Params:
    """Returns the starts of chains that look for modes: all but the first away from the one point that they share."""
    # Each real coordinate u moves by a uniform number within \(\pm 2 \max(1, |u|)\); a chain stays where the log
    # density or its gradient would not be finite.

    def moved(key: RandomKey, position: Params) -> Params:
        keys = tree.keys_like(key, position)
        far = lambda leaf, key: (
            leaf + _APART * jnp.maximum(jnp.abs(leaf), 1) * jax.random.uniform(key, leaf.shape, leaf.dtype, -1.0, 1.0)
        )
        new = jax.tree.map(far, position, keys)
        value, slope = jax.value_and_grad(lambda at: density.log_target(at, 1.0))(new)
        finite = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in [value, *jax.tree.leaves(slope)]]).all()
        return jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, position)

    chains = jax.tree.leaves(positions)[0].shape[0]
    others = jax.vmap(moved)(jax.random.split(key, chains), positions)
    return jax.tree.map(lambda old, new: jnp.concatenate([old[:1], new[1:]]), positions, others)


def _shapes(params: Params) -> str:
    leaves = zip(tree.paths(params), jax.tree.leaves(params), strict=True)
    return ", ".join(f"{path} {jnp.shape(leaf)}" for path, leaf in leaves)
