"""The parts of a sampler: the state of a chain, the kernel that moves it, and the Metropolis test."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.mcmc.log_target import LogTarget
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Chain", "Kernel", "TransitionInfo", "metropolis"]


@record
class Chain:
    """The state of a chain."""

    position: Params  # the parameters, in JAX's default float
    log_density: Any  # the log of the target there, in nats, up to a constant
    gradient: Any = None  # its gradient there, in the kernel's own shape; None for a kernel that takes none

    @classmethod
    def at(cls, position: Params, target: LogTarget) -> Chain:
        """Returns a chain with its gradient as one vector."""
        vector, unravel = tree.ravel(position)
        value, gradient = jax.value_and_grad(lambda v: target(unravel(v)))(vector)
        return cls(position, value, gradient)


@record
class TransitionInfo:
    """The result of a transition: the new positions, and statistics of how they were reached."""

    position: Params  # the parameters, leaves `[chains, ...]`
    # Numbers by name, `[chains]`: "log_density" in nats; "acceptance", a probability; and, where paths are followed,
    # "energy" and "energy_error" in nats, "divergent" and "gradients".
    statistics: dict[str, Any]


class Kernel(Protocol):
    """A way to move a chain that leaves the target as it is, or nearly so."""

    geometry: str | Any  # how it moves, in words

    @property
    def replicas(self) -> int:
        """How many points a chain holds; one, unless overridden."""
        return 1

    def begin(self, position: Params, target: LogTarget) -> Chain:
        """Returns a chain at a position."""
        ...

    def move(
        self, key: RandomKey, chain: Chain, target: LogTarget, step_size: Array, inverse_mass: Array, warming: Any
    ) -> tuple[Chain, dict[str, Any]]:
        """Returns the chain after one transition, and its statistics, with "acceptance" among them."""
        ...


def metropolis(key: RandomKey, log_ratio: Array, new: Any, old: Any) -> tuple[Any, Array]:
    r"""Returns the new state with probability \(\min(1, r)\), else the old one, and that probability."""
    probability = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
    accepted = jax.random.bernoulli(key, probability)
    return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, old), probability
