"""Where chains start: at the model's own start, at a point, or at draws of a posterior."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.objective import Objective
from lamu.typing import Params, RandomKey

__all__ = ["started"]


def started(key: RandomKey, start: Any, objective: Objective, batch: Batch) -> tuple[Params, Any]:
    """Returns where one chain starts, as the real numbers that it runs in, and the network's state.

    Args:
        key: a random key.
        start: a posterior, of which the chain takes a draw (the point, of an optimiser's; with its network state), or
            parameters; None for the model's own start.
        objective: the loss.
        batch: some rows, for shapes.

    Raises:
        ValueError: for parameters of another model.

    Examples:
        >>> import jax, lamu
        >>> from lamu.mcmc.init import started
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0)).standardised(x, y)
        >>> mode = lamu.fit(model, (x, y), lamu.algorithms.map_estimate(), steps=5).posterior
        >>> objective, batch = lamu.objective.Objective(model, len(x)), lamu.data.Batch.of(x, y)
        >>> position, _ = started(jax.random.key(0), mode, objective, batch)
        >>> bool((position["network"]["layers"][0]["kernel"] == mode.mean["network"]["layers"][0]["kernel"]).all())
        True
    """
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


def _shapes(params: Params) -> str:
    leaves = zip(tree.paths(params), jax.tree.leaves(params), strict=True)
    return ", ".join(f"{path} {jnp.shape(leaf)}" for path, leaf in leaves)
