"""Noise that multiplies: what a multiplicative group acts on, and the belief that comes of it."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.record import record
from lamu.typing import Number, Params, RandomKey

__all__ = ["LogNormal", "Multiplied", "Rayleigh"]


@record
class Rayleigh:
    r"""Positive noise with the density \(\epsilon\, e^{-\epsilon^2/2}\): half as wide as it is large.

    Source: Kıral, Möllenhoff & Khan (2023), whose networks of excitatory and inhibitory weights use it.

    Examples:
        >>> from lamu.geometry import Rayleigh
        >>> Rayleigh().mean  # √(π/2)
        1.2533141373155001
    """

    @property
    def mean(self) -> Number:
        """E ε."""
        return math.sqrt(math.pi / 2)

    def draw(self, key: RandomKey, like: Params) -> Params:
        """Returns independent noise for every coordinate."""
        return jax.tree.map(
            lambda k, leaf: jnp.sqrt(2 * jax.random.exponential(k, leaf.shape, leaf.dtype)),
            tree.keys_like(key, like),
            like,
        )


@record
class LogNormal:
    r"""Positive noise \(\epsilon = e^{\sigma z}\) with z standard normal: σ is about its relative width.

    Attributes:
        scale: σ.

    Raises:
        ValueError: for a scale that is not positive.

    Examples:
        >>> from lamu.geometry import LogNormal
        >>> LogNormal(0.2).mean  # exp(σ²/2)
        1.02020134...
    """

    scale: Number = 0.1

    def __post_init__(self) -> None:
        if isinstance(self.scale, int | float) and not self.scale > 0:
            raise ValueError(f"LogNormal(scale={self.scale!r}) is no noise; give a positive number")

    @property
    def mean(self) -> Number:
        """E ε."""
        exponent = self.scale**2 / 2
        return math.exp(exponent) if isinstance(exponent, int | float) else jnp.exp(exponent)

    def draw(self, key: RandomKey, like: Params) -> Params:
        """Returns independent noise for every coordinate."""
        return jax.tree.map(lambda z: jnp.exp(tree.cast(self.scale, z) * z), tree.normal(key, like))


@record
class Multiplied:
    r"""A belief whose noise multiplies: \(\theta = \sum_k w_k \epsilon_k\), coordinate by coordinate.

    Attributes:
        parts: the \(w_k\), vectors of the space; a coordinate's sign says on which side of zero its part lives.
        noise: the distribution of every \(\epsilon\).

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.geometry import Multiplied, Rayleigh
        >>> belief = Multiplied(({"w": jnp.array([1.0, -2.0])},), Rayleigh())
        >>> jnp.sign(belief.sample(jax.random.key(0))["w"]).tolist()
        [1.0, -1.0]
    """

    parts: tuple[Params, ...]
    noise: Any

    kind = "transformed"

    @property
    def mean(self) -> Params:
        """E_q[θ]."""
        return tree.scale(jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *self.parts), self.noise.mean)

    def sample(self, key: RandomKey) -> Params:
        """Returns one draw of θ."""
        keys = jax.random.split(key, len(self.parts))
        drawn = [
            jax.tree.map(jnp.multiply, part, self.noise.draw(k, part)) for k, part in zip(keys, self.parts, strict=True)
        ]
        return jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *drawn)

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns `count` independent draws along a leading axis; draw i depends on the key and i alone."""
        return jax.lax.map(lambda i: self.sample(jax.random.fold_in(key, i)), jnp.arange(count))
