r"""A location–scale belief: \(\theta = m + s z\), coordinate by coordinate, for z of any base distribution."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import tree
from lamu.families.base_distributions import BaseDistribution, StandardNormal
from lamu.families.gaussian import Gaussian
from lamu.operators import Diagonal
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["LocationScale"]


@record
class LocationScale:
    r"""The belief of \(\theta = m + s z\) for z of a given base distribution."""

    # \[ \log q(\theta) = \log p\Big(\frac{\theta - m}{s}\Big) - \sum_j \log s_j, \qquad H(q) = H(z) + \sum_j \log s_j
    # \]

    location: Params  # m, a point of parameter space
    scale: Params  # s, a positive vector of the space
    # The distribution of z, one of `lamu.families.base_distributions`.
    base_distribution: BaseDistribution = StandardNormal()

    kind = "location-scale"

    def __post_init__(self) -> None:
        for path, leaf in zip(tree.paths(self.scale), jax.tree.leaves(self.scale), strict=True):
            if not isinstance(leaf, Tracer) and hasattr(leaf, "shape") and not np.all(np.asarray(leaf) > 0):
                raise ValueError(f"the scale of {path or 'the belief'} is not positive: {leaf!r}")

    @property
    def mean(self) -> Params:
        """E_q[θ]."""
        return self.at(self.base_distribution.centre(self.location))

    def at(self, z: Params) -> Params:
        """Returns m + s z."""
        return jax.tree.map(lambda m, s, e: m + s * e, self.location, self.scale, z)

    def sample(self, key: RandomKey) -> Params:
        """Returns one draw of θ, differentiable in m and s."""
        return self.at(self.base_distribution.draw(key, self.location))

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns `count` independent draws along a leading axis; draw i depends on the key and i alone."""
        return jax.lax.map(lambda i: self.sample(jax.random.fold_in(key, i)), jnp.arange(count))

    def log_prob(self, theta: Params) -> Array:
        """Returns log q(θ) in nats."""
        z = jax.tree.map(lambda t, m, s: (t - m) / s, theta, self.location, self.scale)
        return self.base_distribution.log_prob(z) - self._log_scale()

    def entropy(self) -> Array:
        """Returns H(q) in nats."""
        total = self._log_scale()
        return jnp.asarray(self.base_distribution.entropy(self.location)).astype(total.dtype) + total

    def gaussian(self) -> Gaussian | None:
        """Returns the same belief as a Gaussian with a diagonal precision; None where it is none."""
        if not isinstance(self.base_distribution, StandardNormal):
            return None
        return Gaussian(self.location, Diagonal(jax.tree.map(lambda s: s**-2, self.scale)))

    def _log_scale(self) -> Array:
        ones: Any = jax.tree.map(jnp.ones_like, self.scale)
        return tree.dot(jax.tree.map(jnp.log, self.scale), ones)
