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
    """The state of a chain.

    Attributes:
        position: the parameters, in JAX's default float.
        log_density: the log of the target there, in nats, up to a constant.
        gradient: its gradient there, in the kernel's own shape; None for a kernel that takes none.

    Examples:
        >>> from lamu.mcmc.kernel import Chain
        >>> Chain(position={"w": 1.0}, log_density=-0.5).log_density
        -0.5
    """

    position: Params
    log_density: Any
    gradient: Any = None

    @classmethod
    def at(cls, position: Params, target: LogTarget) -> Chain:
        """Returns a chain with its gradient as one vector.

        Args:
            position: the parameters.
            target: the log of the target.
        """
        vector, unravel = tree.ravel(position)
        value, gradient = jax.value_and_grad(lambda v: target(unravel(v)))(vector)
        return cls(position, value, gradient)


@record
class TransitionInfo:
    """The result of a transition: the new positions, and statistics of how they were reached.

    Attributes:
        position: the parameters, leaves `[chains, ...]`.
        statistics: numbers by name, `[chains]`: "log_density" in nats; "acceptance", a probability; and, where paths
            are followed, "energy" and "energy_error" in nats, "divergent" and "gradients".

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.mcmc.kernel import TransitionInfo
        >>> TransitionInfo({"w": jnp.zeros(4)}, {"acceptance": jnp.ones(4)}).statistics["acceptance"].shape
        (4,)
    """

    position: Params
    statistics: dict[str, Any]


class Kernel(Protocol):
    """A way to move a chain that leaves the target as it is, or nearly so.

    Attributes:
        geometry: how it moves, in words.
    """

    geometry: str | Any

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
        """Returns the chain after one transition, and its statistics, with "acceptance" among them.

        Args:
            key: a random key.
            chain: where it is.
            target: the log of the target.
            step_size: η.
            inverse_mass: the diagonal of M⁻¹, `[parameters]`, an estimate of the variances.
            warming: whether this is a transition of a warm-up that adapts.
        """
        ...


def metropolis(key: RandomKey, log_ratio: Array, new: Any, old: Any) -> tuple[Any, Array]:
    r"""Returns the new state with probability \(\min(1, r)\), else the old one, and that probability.

    Args:
        key: a random key.
        log_ratio: log r, the log of the ratio of what the target and the proposal say of the two; NaN is a refusal.
        new: the proposed state.
        old: the present one.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.mcmc.kernel import metropolis
        >>> state, probability = metropolis(jax.random.key(0), jnp.array(0.5), jnp.array(1.0), jnp.array(0.0))
        >>> float(state), float(probability)
        (1.0, 1.0)
    """
    probability = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
    accepted = jax.random.bernoulli(key, probability)
    return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, old), probability
