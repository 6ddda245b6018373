"""Draws: a belief known by the points that a sampler visited."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu.record import measured, record
from lamu.typing import Params, RandomKey

__all__ = ["Draws"]


@record
class Draws:
    r"""An equal mixture of points, \(q(\theta) = \frac{1}{CD} \sum_{c,d} \delta(\theta - \theta_{cd})\).

    Attributes:
        samples: the points, leaves `[chains, draws, ...]`.
        statistics: what the sampler said of each transition, arrays `[chains, draws]` by name; None where it said
            nothing.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Draws
        >>> belief = Draws({"w": jnp.arange(8.0).reshape(2, 4)})
        >>> belief.draws(jax.random.key(0), 4)["w"].tolist()
        [0.0, 2.0, 4.0, 6.0]
    """

    samples: Params
    statistics: Any = measured(default=None)

    kind = "joint"

    @property
    def mean(self) -> Params:
        """Not defined: the average of draws from several modes may be a place of no probability."""
        raise AttributeError("draws may lie in several modes, whose average is no estimate; use predict or .samples")

    @property
    def count(self) -> int:
        """The number of points, over all chains."""
        leaf = jax.tree.leaves(self.samples)[0]
        return leaf.shape[0] * leaf.shape[1]

    def sample(self, key: RandomKey) -> Params:
        """Returns one of the points, each with the same probability."""
        return self._at(jax.random.randint(key, (), 0, self.count))

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns an even selection of at most `count` points, chain by chain; the key is not needed."""
        kept = min(count, self.count)
        return self._at(jnp.arange(kept) * self.count // kept)

    def _at(self, index: jax.Array) -> Params:
        return jax.tree.map(lambda leaf: _picked(leaf, index), self.samples)


def _picked(leaf: Any, index: jax.Array) -> jax.Array:
    """Returns some points; of an array of NumPy's (it may be mapped from disk) nothing else is read."""
    if not isinstance(leaf, np.ndarray):
        return leaf.reshape(-1, *leaf.shape[2:])[index]

    def read(index: Any) -> np.ndarray:
        chain, draw = np.divmod(np.asarray(index), leaf.shape[1])
        return np.asarray(leaf[chain, draw])

    if not isinstance(index, Tracer):
        return jnp.asarray(read(index))
    shape = jax.ShapeDtypeStruct((*index.shape, *leaf.shape[2:]), leaf.dtype)
    return jax.pure_callback(read, shape, index, vmap_method="sequential")
