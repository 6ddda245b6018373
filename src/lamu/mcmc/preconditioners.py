"""Preconditioners G of stochastic-gradient samplers: a step size for each coordinate."""

# With a constant G, the dynamics on \(G^{1/2}\) have the same stationary distribution as without it. With a G that
# depends on the position, an exact sampler needs the term \(\Gamma_i = \sum_j \partial G_{ij} / \partial\theta_j\),
# which is omitted here as in most implementations. `FrozenAfterWarmup` makes it zero: G adapts before draws are kept,
# and is constant afterwards.

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.rate import decay as checked_decay
from lamu.record import record
from lamu.typing import Number, Params

__all__ = ["FrozenAfterWarmup", "NoPreconditioner", "Preconditioner", "RootMeanSquare"]


@runtime_checkable
class Preconditioner(Protocol):
    """What a preconditioner must offer."""

    # `departure`: what it leaves out of the dynamics, in words; empty for nothing.

    @property
    def departure(self) -> str:
        """What it leaves out."""
        ...

    def init(self, like: Params) -> Any:
        """Returns an empty memory for parameters of this shape."""
        ...

    def learn(self, memory: Any, gradient: Params, adapting: Any) -> Any:
        """Returns the memory after another gradient of the mean loss."""
        ...

    def root(self, memory: Any) -> Params | None:
        r"""Returns the diagonal of \(G^{1/2}\); None for the identity."""
        ...


@record
class NoPreconditioner:
    """No preconditioner: G is the identity."""

    departure = ""

    def init(self, like: Params) -> Any:
        """Returns nothing."""
        return {}

    def learn(self, memory: Any, gradient: Params, adapting: Any) -> Any:
        """Returns nothing."""
        return memory

    def root(self, memory: Any) -> None:
        """Returns None, the identity."""
        return None


@record
class RootMeanSquare:
    r"""RMSprop's scale: the root of the average of squared minibatch gradients.

    \[ V \leftarrow \beta V + (1 - \beta)\, \hat g^2, \qquad G = \Big(\lambda + \sqrt{V / (1 - \beta^t)}\Big)^{-1} \]

    The average is corrected for its start at zero, without which the first steps would be \(1/\lambda\) long. G follows
    the chain, slowly, and Γ is dropped: a bias that vanishes only as β tends to one.
    `FrozenAfterWarmup(RootMeanSquare())` has none.

    Attributes:
        decay: β.
        damping: λ, in the units of a gradient of the mean loss; it bounds G by \(1/\lambda\).

    Raises:
        ValueError: for a decay outside [0, 1), or a damping that is not positive.

    Source: Li, Chen, Carlson & Carin (2016), equations 4 and 5 and algorithm 1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.mcmc.preconditioners import RootMeanSquare
        >>> scale = RootMeanSquare(decay=0.9, damping=1.0)
        >>> memory = scale.learn(scale.init(jnp.zeros(2)), jnp.array([3.0, 0.0]), True)
        >>> [round(x, 6) for x in scale.root(memory).tolist()]
        [0.5, 1.0]
    """

    decay: Number = 0.99
    damping: Number = 1e-3

    departure = "the preconditioner follows the chain"

    def __post_init__(self) -> None:
        if isinstance(self.decay, int | float):
            checked_decay(self.decay, "decay")
        if isinstance(self.damping, int | float) and not self.damping > 0:
            raise ValueError(f"damping={self.damping!r} leaves steps without a bound; give a positive number")

    def init(self, like: Params) -> Any:
        """Returns zeros."""
        return {"square": tree.zeros_like(like), "count": jnp.zeros((), jnp.int32)}

    def learn(self, memory: Any, gradient: Params, adapting: Any) -> Any:
        """Returns the average with another squared gradient in it."""

        def averaged(old: Any, new: Any) -> Any:
            keep = tree.cast(self.decay, new)
            return keep * old + (1 - keep) * new * new

        return {"square": jax.tree.map(averaged, memory["square"], gradient), "count": memory["count"] + 1}

    def root(self, memory: Any) -> Params:
        r"""Returns the diagonal of \(G^{1/2}\)."""
        dtype = jnp.result_type(float)
        count = jnp.maximum(memory["count"], 1).astype(dtype)
        correction = 1 - jnp.asarray(self.decay, dtype) ** count

        def scale(v: Any) -> Any:
            return jax.lax.rsqrt(tree.cast(self.damping, v) + jnp.sqrt(v / correction.astype(v.dtype)))

        return jax.tree.map(scale, memory["square"])


@record
class FrozenAfterWarmup:
    """A preconditioner that adapts during warm-up and exploration, and is constant while draws are kept.

    A constant preconditioner leaves the stationary distribution unchanged.

    Attributes:
        base: the preconditioner.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.mcmc.preconditioners import FrozenAfterWarmup, RootMeanSquare
        >>> frozen = FrozenAfterWarmup(RootMeanSquare())
        >>> int(frozen.learn(frozen.init(jnp.zeros(2)), jnp.ones(2), adapting=jnp.asarray(False))["count"])
        0
    """

    base: Any = RootMeanSquare()

    departure = ""

    def init(self, like: Params) -> Any:
        """Returns its empty memory."""
        return self.base.init(like)

    def learn(self, memory: Any, gradient: Params, adapting: Any) -> Any:
        """Returns its memory, which changes while `adapting` alone."""
        new = self.base.learn(memory, gradient, adapting)
        return jax.tree.map(lambda a, b: jnp.where(adapting, a, b), new, memory)

    def root(self, memory: Any) -> Params | None:
        """Returns its root."""
        return self.base.root(memory)
