"""Independent beliefs about parts of one tree of coordinates."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.record import record
from lamu.typing import Params, RandomKey

__all__ = ["Parts"]


@record
class Parts:
    r"""\(q(\theta) = \prod_k q_k(\theta_k)\) with θ one tree, of which each belief has some leaves and None elsewhere.

    A part that is a `Product` by name has the branches of these names, and lacks the others.

    Attributes:
        parts: the beliefs.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian, Parts, Point
        >>> from lamu.operators import Scalar
        >>> weights = Gaussian({"kernel": jnp.ones(2), "bias": None}, Scalar(4.0))
        >>> belief = Parts((weights, Point({"kernel": None, "bias": jnp.zeros(1)})))
        >>> sorted(belief.mean)
        ['bias', 'kernel']
    """

    parts: tuple[Any, ...]

    kind = "product"

    @property
    def mean(self) -> Params:
        """E_q[θ]."""
        return united([part.mean for part in self.parts])

    def sample(self, key: RandomKey) -> Params:
        """Returns one draw of θ."""
        keys = jax.random.split(key, len(self.parts))
        return united([part.sample(k) for part, k in zip(self.parts, keys, strict=True)])

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns draws along a leading axis; a part with fewer (a point) repeats its own evenly."""
        keys = jax.random.split(key, len(self.parts))
        drawn = [part.draws(k, count) for part, k in zip(self.parts, keys, strict=True)]
        longest = max((leaf.shape[0] for leaf in jax.tree.leaves(drawn)), default=1)
        spread = lambda leaf: leaf[jnp.arange(longest) * leaf.shape[0] // longest]
        return united([jax.tree.map(spread, part) for part in drawn])


def united(trees: list[Params]) -> Params:
    """Returns one tree of several that have None, or no branch, where another one has leaves."""
    whole = trees[0]
    for other in trees[1:]:
        whole = _joined(whole, other)
    return whole


def _joined(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, dict) and isinstance(b, dict):
        names = [*a, *(name for name in b if name not in a)]
        return {name: _joined(a.get(name), b.get(name)) for name in names}
    return tree.merged(a, b)
