"""A point: the belief of an algorithm that keeps no uncertainty."""

from __future__ import annotations

import jax

from lamu.record import record
from lamu.typing import Params, RandomKey

__all__ = ["Point"]


@record
class Point:
    r"""All mass at one place, \(q(\theta) = \delta(\theta - m)\).

    Attributes:
        mean: m.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Point
        >>> Point({"w": jnp.ones(2)}).sample(jax.random.key(0))["w"].tolist()
        [1.0, 1.0]
    """

    mean: Params

    kind = "degenerate"

    def sample(self, key: RandomKey) -> Params:
        """Returns the point."""
        return self.mean

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns the point once, along a leading axis of one."""
        return jax.tree.map(lambda leaf: leaf[None], self.mean)
