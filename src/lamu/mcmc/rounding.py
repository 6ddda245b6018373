"""Whether the log density is known to the precision that an acceptance needs, where the chains ended."""

# \[ \sqrt{\tfrac{1}{2K} \sum_k \big(f(\theta + \delta_k) - f(\theta)\big)^2} \]
#
# with f the log of the target in nats and δ one or two units in the last place of every coordinate. Numbers so near
# have one log density, up to rounding: targets near a million in single precision have differences of nats, be it that
# the sum over rows cancels or that a coordinate has no numbers between which the log density changes by less.

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.data.arrays import Arrays
from lamu.mcmc.log_target import LogTarget
from lamu.objective import Objective
from lamu.typing import Array, Params, RandomKey

__all__ = ["far_away", "rounding", "rounding_complaints"]

_NEIGHBOURS, _CHAINS = 8, 4
_FAR = 1e5  # from where chains start, between -1 and 1 as a rule
_LARGEST = 0.3  # nats: an acceptance is off by a factor of 1.35


def rounding_complaints(key: RandomKey, objective: Objective, network_state: Any, last: Params, data: Any) -> list[str]:
    """Returns why draws in single precision cannot be trusted, with the remedy; an empty list where they can."""
    dtype = jnp.result_type(float)
    if jnp.finfo(dtype).bits > 32 or not isinstance(data, Arrays):
        return []
    some = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[:_CHAINS], dtype), last)
    one = jax.tree.map(lambda leaf: leaf[0], some)
    target = LogTarget.of(objective, data.full(), network_state, one, 1)
    largest = float(np.max(np.asarray(rounding(key, target, some))))
    if not largest > _LARGEST:
        return []
    return [
        f"numbers that {jnp.dtype(dtype).name} holds side by side differ by {largest:.2g} nats in their log density "
        f"where the chains are ({_LARGEST} is the limit), so that rounding decides what is accepted: the targets, the "
        "inputs or the variables are too large or too far from zero for single precision; centre and scale them "
        '(y - y.mean()), or call jax.config.update("jax_enable_x64", True) first'
    ]


@jax.jit
def rounding(key: RandomKey, target: LogTarget, positions: Params) -> Array:
    """Returns the rounding of the log of a target at some positions, in nats, one number each."""

    def near(key: RandomKey, position: Params) -> Params:
        keys = tree.keys_like(key, position)

        def leaf(value: Array, key: RandomKey) -> Array:
            sign, far = jax.random.split(key)
            step = jax.random.rademacher(sign, value.shape, value.dtype)
            step = step * jax.random.randint(far, value.shape, 1, 3).astype(value.dtype)
            return value + step * (0.5 * jnp.finfo(value.dtype).eps) * jnp.abs(value)

        return jax.tree.map(leaf, position, keys)

    def of_chain(chain: tuple[RandomKey, Params]) -> Array:
        key, position = chain
        here = target(position)
        neighbours = jax.random.split(key, _NEIGHBOURS)
        away = jax.lax.map(lambda key: target(near(key, position)) - here, neighbours)
        return jnp.sqrt(jnp.mean(away**2) / 2.0)

    count = jax.tree.leaves(positions)[0].shape[0]
    return jax.lax.map(of_chain, (jax.random.split(key, count), positions))


def far_away(samples: Params) -> list[str]:
    """Returns the advice to centre targets, where draws that cannot be trusted lie far from where chains start."""
    for path, leaf in zip(tree.paths(samples), jax.tree.leaves(samples), strict=True):
        place = float(np.max(np.abs(np.median(np.asarray(leaf[:, -1], np.float64), axis=0)), initial=0.0))
        if place > _FAR:
            name = path.removeprefix("network/")
            return [
                f"the draws of {name} are near {place:.2g}, far from where chains start; centre and scale the targets "
                "and the inputs (y - y.mean()), or give start="
            ]
    return []
