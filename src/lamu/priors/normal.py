r"""Independent normal weights, \(\theta_i \sim N(m, s_i^2)\), with one scale for all, or one for each path pattern."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.families import Gaussian
from lamu.operators import Diagonal
from lamu.priors.independent import Independent
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Normal"]

_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


@record
class Normal(Independent):
    r"""Independent normal weights: \(p(\theta) = \prod_i N(\theta_i \mid m, s_i^2)\).

    Weight decay of rate δ on the loss summed over the examples is the scale \(s = 1/\sqrt{\delta}\).

    Attributes:
        scale: the standard deviation s, a `FanIn`, or a mapping from path patterns of the network's parameters to
            these, the first pattern that matches a leaf counting. A mapping is kept as `patterns` with a tuple of its
            values.
        loc: the mean m.
        patterns: the patterns of a mapping in order of precedence, filled in from it; None where one scale is for all.

    Raises:
        ValueError: if a scale is not positive and finite, or there is none; and, where parameters are first seen, if a
            leaf matches no pattern or a pattern no leaf.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import Normal
        >>> prior = Normal(scale={"*bias": 10.0, "*": 0.5})
        >>> known = prior.gaussian({"layer": {"bias": jnp.zeros(1), "kernel": jnp.zeros((1, 1))}})
        >>> known.precision.values["layer"]["kernel"].tolist()
        [[4.0]]
    """

    def log_prob(self, params: Params) -> Array:
        r"""Returns \(\sum_i \log N(\theta_i \mid m, s_i^2)\), a scalar in nats."""

        def leaf(x: Array, s: Any) -> Array:
            # The constant once a leaf and not once a weight: a pass over all weights less in every step.
            scale = jnp.asarray(s, x.dtype)
            away = (x - jnp.asarray(self.loc, x.dtype)) / scale
            return -jnp.sum(away * away) / 2 - x.size * (jnp.log(scale) + _HALF_LOG_2_PI)

        leaves = jax.tree.leaves(jax.tree.map(leaf, params, self.scales(params)))
        return jnp.sum(jnp.stack(leaves)) if leaves else jnp.asarray(0.0)

    def gaussian(self, params: Params) -> Gaussian:
        r"""Returns the Gaussian of means m and precisions \(1/s_i^2\).

        Args:
            params: any parameters of the right structure; only their paths, shapes and dtypes count.
        """
        mean = jax.tree.map(lambda x: jnp.full_like(x, self.loc), params)
        precision = jax.tree.map(
            lambda x, s: jnp.full_like(x, jnp.asarray(s, x.dtype) ** -2), params, self.scales(params)
        )
        return Gaussian(mean, Diagonal(precision))

    def log_density(self, z: Array) -> Array:
        """Returns the log density of standard normal weights."""
        return -z * z / 2 - _HALF_LOG_2_PI

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: Any) -> Array:
        """Returns standard normal draws."""
        return jax.random.normal(key, shape, dtype)

    def sample(self, key: RandomKey, params: Params) -> Params:
        r"""Returns \(m + s_i \varepsilon_i\), a tree like `params`."""

        def leaf(e: Array, s: Any) -> Array:
            return jnp.asarray(self.loc, e.dtype) + jnp.asarray(s, e.dtype) * e

        return jax.tree.map(leaf, tree.normal(key, params), self.scales(params))
