"""Independent weights, most of them close to zero and a few far from it: a mixture of two normals of one centre."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu import tree
from lamu.priors.interface import Prior
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["ScaleMixture"]


@record
class ScaleMixture(Prior):
    r"""Weights from a wide normal or from a narrow one, each weight on its own.

    \[ p(\theta) = \prod_j \big( \pi\, N(\theta_j \mid 0, \sigma_1^2) + (1 - \pi)\, N(\theta_j \mid 0, \sigma_2^2) \big)
    \]

    A spike at zero with tails: what the data say nothing about is pulled to zero harder than by a normal prior, and
    large weights are pulled less. It is no Gaussian, so it enters every algorithm through the loss.

    Attributes:
        weight: π, the share of the wide component.
        wide: σ₁, its standard deviation.
        narrow: σ₂, that of the spike.

    Raises:
        ValueError: for a share outside (0, 1), a standard deviation that is not positive and finite, or a narrow one
            that is not below the wide one.

    Source: Blundell et al. (2015), equation 7.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import ScaleMixture
        >>> prior = ScaleMixture(weight=0.5, wide=1.0, narrow=0.1)
        >>> round(float(prior.log_prob({"w": jnp.zeros(1)})), 3)
        0.786
    """

    weight: Number = 0.5
    wide: Number = 1.0
    narrow: Number = 0.05

    def __post_init__(self) -> None:
        if any(isinstance(value, Tracer) for value in (self.weight, self.wide, self.narrow)):
            return
        if not 0.0 < self.weight < 1.0:
            raise ValueError(f"weight={self.weight!r} leaves one component alone; give a share between 0 and 1")
        if not 0.0 < self.narrow < self.wide < float("inf"):
            raise ValueError(
                f"narrow={self.narrow!r} and wide={self.wide!r} are no standard deviations of a spike and of what is "
                "around it; give 0 < narrow < wide"
            )

    def check(self, params: Params) -> None:
        """Accepts all parameters."""

    def log_prob(self, params: Params) -> Array:
        """Returns log p(θ), a scalar in nats."""
        leaves = jax.tree.leaves(jax.tree.map(self._leaf, params))
        return jnp.sum(jnp.stack(leaves)) if leaves else jnp.asarray(0.0)

    def gaussian(self, params: Params) -> None:
        """Returns None: it is no Gaussian."""
        return None

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Returns a draw, a tree like `params`."""
        first, second = jax.random.split(key)

        def leaf(k: RandomKey, e: Array) -> Array:
            chosen = jax.random.uniform(k, e.shape) < jnp.asarray(self.weight)
            scale = jnp.where(chosen, jnp.asarray(self.wide, e.dtype), jnp.asarray(self.narrow, e.dtype))
            return scale * e

        return jax.tree.map(leaf, tree.keys_like(first, params), tree.normal(second, params))

    def _leaf(self, x: Array) -> Array:
        cast = lambda value: jnp.asarray(value, x.dtype)
        share, wide, narrow = cast(self.weight), cast(self.wide), cast(self.narrow)
        one = jnp.log(share) - jnp.log(wide) - (x / wide) ** 2 / 2
        other = jnp.log1p(-share) - jnp.log(narrow) - (x / narrow) ** 2 / 2
        constant: Any = 0.5 * jnp.log(2 * jnp.pi)
        return jnp.sum(jnp.logaddexp(one, other)) - x.size * constant.astype(x.dtype)
