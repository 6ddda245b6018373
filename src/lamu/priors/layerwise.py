r"""Independent normal weights with a tree of scales: one for all, one a layer, one a leaf, or one a weight."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import tree
from lamu.families import Gaussian
from lamu.operators import Diagonal
from lamu.priors.interface import IndependentLeaves
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["LayerwiseNormal"]

_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


@record
class LayerwiseNormal(IndependentLeaves):
    r"""Independent normal weights, \(p(\theta) = \prod_i N(\theta_i \mid m, s_i^2)\), where the scales are a tree.

    The tree begins like the parameters and may stop anywhere: a number stands for every weight below it, an array of a
    leaf's shape for that leaf's weights one by one. All scales are leaves of the record, so that the evidence can be
    differentiated in them. A *layer* is a dictionary that holds nothing but leaves (a kernel and its bias); a leaf
    elsewhere is a layer of its own.

    Attributes:
        scale: the standard deviations s: a number, or a tree of numbers and arrays, a prefix of the parameters.
        loc: the mean m.

    Raises:
        ValueError: if a scale is not positive and finite; and, where parameters are first seen, if the tree of scales
            is no prefix of theirs.

    Source: Neal (1996), "Bayesian learning for neural networks", for a scale a group of weights.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import LayerwiseNormal
        >>> first, last = {"bias": jnp.zeros(2), "kernel": jnp.ones((3, 2))}, {"kernel": jnp.ones((2, 1))}
        >>> weights = {"layers": {0: first, 1: last}}
        >>> LayerwiseNormal.over(weights, 0.5).scale
        {'layers': {0: 0.5, 1: 0.5}}
        >>> prior = LayerwiseNormal({"layers": {0: 0.5, 1: 2.0}})
        >>> prior.gaussian(weights).precision.values["layers"][1]["kernel"].ravel().tolist()
        [0.25, 0.25]
    """

    scale: Any = 1.0
    loc: Number = 0.0

    def __post_init__(self) -> None:
        for path, scale in zip(tree.paths(self.scale), jax.tree.leaves(self.scale), strict=True):
            if not isinstance(scale, Tracer) and not np.all(np.greater(scale, 0) & np.isfinite(scale)):
                raise ValueError(
                    f"the prior scale {scale}{f' of {path!r}' if path else ''} is not positive and finite; it is a "
                    "standard deviation"
                )

    @classmethod
    def over(cls, params: Params, scale: Number | Array = 1.0, loc: Number = 0.0) -> LayerwiseNormal:
        """Returns the prior of one scale a layer, the same everywhere to begin with.

        Args:
            params: parameters, for their layers.
            scale: the scale.
            loc: the mean.
        """
        return cls(layerwise(lambda _: scale, params), loc)

    def check(self, params: Params) -> None:
        """Raises a ValueError if the tree of scales is no prefix of the parameters, or an array no leaf's shape."""
        try:
            spread = jax.tree.map(lambda s, below: jax.tree.map(lambda x: (jnp.shape(s), x), below), self.scale, params)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"the scales {_outline(self.scale)} are no prefix of the parameters, whose leaves are "
                f"{', '.join(tree.paths(params))}; give one number, or LayerwiseNormal.over(params, 1.0)"
            ) from error
        pairs = jax.tree.leaves(spread, is_leaf=lambda node: isinstance(node, tuple))
        for path, (shape, leaf) in zip(tree.paths(params), pairs, strict=True):
            if shape not in ((), jnp.shape(leaf)):
                raise ValueError(
                    f"the scales of {path!r} have the shape {shape} and the leaf {jnp.shape(leaf)}; give one number, "
                    "or one a weight"
                )

    def log_prob(self, params: Params) -> Array:
        r"""Returns \(\sum_i \log N(\theta_i \mid m, s_i^2)\), a scalar in nats."""

        def leaf(x: Array, s: Any) -> Array:
            scale = jnp.asarray(s, x.dtype)
            away = (x - jnp.asarray(self.loc, x.dtype)) / scale
            # The logarithm once a scale and not once a weight.
            logs = jnp.sum(jnp.log(scale)) * (x.size // max(scale.size, 1))
            return -jnp.sum(away * away) / 2 - logs - x.size * _HALF_LOG_2_PI

        leaves = jax.tree.leaves(jax.tree.map(leaf, params, self.scales(params)))
        return jnp.sum(jnp.stack(leaves)) if leaves else jnp.asarray(0.0)

    def gaussian(self, params: Params) -> Gaussian:
        r"""Returns the Gaussian of means m and precisions \(1/s_i^2\).

        Args:
            params: any parameters of the right structure; only their paths, shapes and dtypes count.
        """
        mean = jax.tree.map(lambda x: jnp.full_like(x, self.loc), params)
        precision = jax.tree.map(
            lambda x, s: jnp.broadcast_to(jnp.asarray(s, x.dtype) ** -2, x.shape), params, self.scales(params)
        )
        return Gaussian(mean, Diagonal(precision))

    def sample(self, key: RandomKey, params: Params) -> Params:
        r"""Returns \(m + s_i \varepsilon_i\), a tree like `params`."""

        def leaf(e: Array, s: Any) -> Array:
            return jnp.asarray(self.loc, e.dtype) + jnp.asarray(s, e.dtype) * e

        return jax.tree.map(leaf, tree.normal(key, params), self.scales(params))

    def scales(self, params: Params) -> Params:
        """Returns the scale, or the array of scales, of each leaf, a tree like `params`."""
        return jax.tree.map(lambda s, below: jax.tree.map(lambda _: s, below), self.scale, params)


def layerwise(function: Any, params: Params) -> Any:
    """Returns the function's value for every layer, a tree that stops at the layers."""
    return jax.tree.map(function, params, is_leaf=_is_layer)


def _is_layer(node: Any) -> bool:
    # A frozen leaf is None, and a layer that holds some is one still.
    members = node.values() if isinstance(node, dict) else ()
    leaves = [part for part in members if part is not None]
    return bool(leaves) and all(jax.tree_util.all_leaves([part]) for part in leaves)


def _outline(scale: Any) -> str:
    return ", ".join(path or "one number" for path in tree.paths(scale))
