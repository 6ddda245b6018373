"""Hamiltonian trajectories of the real latents of a row."""

# \[ H(z, r) = -\log p(y_\mathrm{obs}, z) + \tfrac12 \lVert r \rVert^2, \qquad r \sim N(0, I) \]
#
# A few leapfrog steps and Metropolis' rule: \(p(z \mid y_\mathrm{obs})\) is left as it is. Entries that are missing are
# no part of it, so that what was drawn for them does not hold z back.
#
# Source: Neal (2011), "MCMC using Hamiltonian dynamics", section 5.3.2.1.

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.graphs.joint import Row
from lamu.graphs.local import Local
from lamu.graphs.statistics import Numbers, Series, Vectors
from lamu.typing import Array, RandomKey

__all__ = ["ACCEPTED", "FIRST_STEP", "real_latents", "trajectory"]

FIRST_STEP = 0.1  # of the leapfrog, where a warm-up begins; latents have priors about as wide as one
ACCEPTED = 0.8  # the share of trajectories that a warm-up aims at
_LEAPS = 5
_JITTER = 0.2  # of the step, so that no trajectory is a whole turn


def real_latents(local: Mapping[str, Local], row: Row) -> tuple[str, ...]:
    """Returns the names of the latents with a local of their own that are real numbers with a density."""
    real = (Numbers, Vectors, Series)
    own = [site for site in row.latent if site.name in local and local[site.name].has_density]
    return tuple(site.name for site in own if issubclass(site.kind, real))


def trajectory(log_density: Callable[[Any], Array], z: Any, log_step: Array, key: RandomKey) -> tuple[Any, Array]:
    """Returns where a trajectory from z ends, or z where it is not accepted, and the chance that it was."""
    of_momentum, of_step, of_choice = jax.random.split(key, 3)
    slope = jax.value_and_grad(log_density)
    momentum = jax.tree.map(
        lambda k, leaf: jax.random.normal(k, leaf.shape, leaf.dtype), tree.keys_like(of_momentum, z), z
    )
    jitter = jax.random.uniform(of_step, (), log_step.dtype, 1.0 - _JITTER, 1.0 + _JITTER)
    step = jnp.exp(log_step) * jitter

    def leap(state: Any, _: None) -> tuple[Any, None]:
        z, r, _, gradient = state
        r = tree.add(r, gradient, step / 2)
        z = tree.add(z, r, step)
        value, gradient = slope(z)
        return (z, tree.add(r, gradient, step / 2), value, gradient), None

    before, gradient = slope(z)
    there, r, after, _ = jax.lax.scan(leap, (z, momentum, before, gradient), None, length=_LEAPS)[0]
    ratio = after - before + (tree.dot(momentum, momentum) - tree.dot(r, r)) / 2
    nowhere = jnp.isnan(before) | (before == -jnp.inf)  # a state without a density is left
    ratio = jnp.where(nowhere, jnp.where(jnp.isfinite(after), 0.0, -jnp.inf), ratio)
    chance = jnp.where(jnp.isfinite(after) & ~jnp.isnan(ratio), jnp.exp(jnp.minimum(ratio, 0.0)), 0.0)
    accepted = jax.random.uniform(of_choice, (), chance.dtype) < chance
    return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), there, z), chance
