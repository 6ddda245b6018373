r"""Independent normal weights, \(\theta_i \sim N(m, s_i^2)\), with one scale for all, or one for each path pattern."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu import tree
from lamu.record import record, static
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Normal"]

_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


@record
class Normal:
    r"""Independent normal weights: \(p(\theta) = \prod_i N(\theta_i \mid m, s_i^2)\).

    Weight decay of rate δ on the loss summed over the examples is the scale \(s = 1/\sqrt{\delta}\).

    Attributes:
        scale: the standard deviation s, or a mapping from path patterns of the network's parameters to standard
            deviations, the first pattern that matches a leaf counting. A mapping is kept as `patterns` with a tuple of
            its values.
        loc: the mean m.
        patterns: the patterns of a mapping in order of precedence, filled in from it; None where one scale is for all.

    Raises:
        ValueError: if a scale is not positive and finite, or there is none; and, where parameters are first seen, if a
            leaf matches no pattern or a pattern no leaf.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import Normal
        >>> prior = Normal(scale={"*bias": 10.0, "*": 0.5})
        >>> mean, precision = prior.gaussian({"layer": {"bias": jnp.zeros(1), "kernel": jnp.zeros((1, 1))}})
        >>> precision["layer"]["kernel"].tolist()
        [[4.0]]
    """

    scale: Any = 1.0
    loc: Number = 0.0
    patterns: tuple[str, ...] | None = static(default=None)

    def __post_init__(self) -> None:
        # As a dictionary the scales would be sorted by JAX, and the order of precedence lost.
        if isinstance(self.scale, Mapping):
            object.__setattr__(self, "patterns", tuple(self.scale.keys()))
            object.__setattr__(self, "scale", tuple(self.scale.values()))
        scales: Any = self.scale if isinstance(self.scale, tuple) else (self.scale,)
        if isinstance(self.scale, tuple) and len(scales) != len(self.patterns or ()):
            raise ValueError(
                f"the scales {self.scale} have no patterns; pass a mapping, for instance {{'*bias': 10.0, '*': 1.0}}"
            )
        if not scales:
            raise ValueError("the mapping of scales is empty; give one scale for all, for instance {'*': 1.0}")
        for name, scale in zip(self.patterns or ("",), scales, strict=True):
            if not isinstance(scale, Tracer) and not 0.0 < scale < float("inf"):
                where = f" of {name!r}" if name else ""
                raise ValueError(
                    f"the prior scale {scale}{where} is not positive and finite; it is a standard deviation"
                )

    def check(self, params: Params) -> None:
        """Raises a ValueError if a pattern matches no leaf, or a leaf no pattern."""
        if self.patterns is not None:
            tree.require_matches(self.patterns, params)
            self._scales(params)

    def log_prob(self, params: Params) -> Array:
        r"""Returns \(\sum_i \log N(\theta_i \mid m, s_i^2)\), a scalar in nats."""

        def leaf(x: Array, s: Any) -> Array:
            # The constant once a leaf and not once a weight: a pass over all weights less in every step.
            scale = jnp.asarray(s, x.dtype)
            away = (x - jnp.asarray(self.loc, x.dtype)) / scale
            return -jnp.sum(away * away) / 2 - x.size * (jnp.log(scale) + _HALF_LOG_2_PI)

        leaves = jax.tree.leaves(jax.tree.map(leaf, params, self._scales(params)))
        return jnp.sum(jnp.stack(leaves)) if leaves else jnp.asarray(0.0)

    def gaussian(self, params: Params) -> tuple[Params, Params]:
        r"""Returns the means m and the precisions \(1/s_i^2\), two trees like `params`.

        Args:
            params: any parameters of the right structure; only their paths, shapes and dtypes count.
        """
        mean = jax.tree.map(lambda x: jnp.full_like(x, self.loc), params)
        precision = jax.tree.map(
            lambda x, s: jnp.full_like(x, jnp.asarray(s, x.dtype) ** -2), params, self._scales(params)
        )
        return mean, precision

    def sample(self, key: RandomKey, params: Params) -> Params:
        r"""Returns \(m + s_i \varepsilon_i\), a tree like `params`."""

        def leaf(e: Array, s: Any) -> Array:
            return jnp.asarray(self.loc, e.dtype) + jnp.asarray(s, e.dtype) * e

        return jax.tree.map(leaf, tree.normal(key, params), self._scales(params))

    def _scales(self, params: Params) -> Params:
        """The scale of each leaf, a tree like `params`."""
        if self.patterns is None:
            return jax.tree.map(lambda _: self.scale, params)
        return tree.by_pattern(dict(zip(self.patterns, self.scale, strict=True)), params)
