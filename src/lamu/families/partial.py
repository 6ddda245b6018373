"""A belief about some of the coordinates, beside a point for the others."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.record import record
from lamu.typing import Params, RandomKey

__all__ = ["PartialBelief"]


@record
class PartialBelief:
    """A belief about some of the weights, beside a point for the others.

    Attributes:
        belief: q, with None at the leaves of the point.
        point: the others, with None at the leaves of q.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import PartialBelief, Point
        >>> belief = PartialBelief(Point({"a": jnp.ones(1), "b": None}), {"a": None, "b": jnp.zeros(1)})
        >>> sorted(belief.sample(jax.random.key(0)))
        ['a', 'b']
    """

    belief: Any
    point: Params

    kind = "product"

    @property
    def mean(self) -> Params:
        """E_q[θ]."""
        return tree.merged(self.belief.mean, self.point)

    def sample(self, key: RandomKey) -> Params:
        """Returns one draw of θ."""
        return tree.merged(self.belief.sample(key), self.point)

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns draws along a leading axis; the point is the same in all of them."""
        drawn = self.belief.draws(key, count)
        size = jax.tree.leaves(drawn)[0].shape[0]
        return tree.merged(drawn, jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (size, *leaf.shape)), self.point))
