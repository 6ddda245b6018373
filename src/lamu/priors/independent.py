r"""Independent weights of one kind of distribution, with one scale for all, or one for each path pattern."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu import tree
from lamu.priors.interface import IndependentLeaves
from lamu.record import record, static
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["FanIn", "Independent"]


@record
class FanIn:
    r"""A scale that follows from the width of a layer, \(s = g / \sqrt{\text{inputs}}\), for a kernel.

    With it the outputs of a layer have the same variance whatever its width, so that the prior over functions has a
    limit: that of the neural tangent parametrisation, whose weights are standard normal and whose layers divide by
    \(\sqrt{\text{inputs}}\), is the same distribution over functions.

    Attributes:
        gain: g; \(\sqrt 2\) keeps the variance through rectifiers.
        bias: the scale of leaves of fewer than two axes, which have no inputs.

    Source: Neal (1996), section 2.1; He et al. (2015) for the gain.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import FanIn, Normal
        >>> Normal(FanIn(1.0)).gaussian({"kernel": jnp.zeros((4, 2))}).precision.values["kernel"].tolist()
        [[4.0, 4.0], [4.0, 4.0], [4.0, 4.0], [4.0, 4.0]]
    """

    gain: Number = 1.0
    bias: Number = 1.0

    def __post_init__(self) -> None:
        for name in ("gain", "bias"):
            value = getattr(self, name)
            if not isinstance(value, Tracer) and not 0.0 < value < math.inf:
                raise ValueError(f"{name}={value!r} is not positive and finite; it is a factor of standard deviations")

    def of(self, leaf: Array) -> Any:
        """Returns the scale of a leaf.

        Args:
            leaf: a parameter, or its shape; the last axis of a kernel is that of its outputs.
        """
        if leaf.ndim < 2:
            return self.bias
        return self.gain / math.sqrt(max(math.prod(leaf.shape[:-1]), 1))


@record
class Independent(IndependentLeaves):
    r"""Independent weights, \(p(\theta) = \prod_i \frac1{s_i}\, p_0\big((\theta_i - m)/s_i\big)\).

    A prior of this kind says what p₀ is: its `log_density` and a `draw`.

    Attributes:
        scale: s, a number, a `FanIn`, or a mapping from path patterns of the network's parameters to these, the first
            pattern that matches a leaf counting. A mapping is kept as `patterns` with a tuple of its values.
        loc: the location m.
        patterns: the patterns of a mapping in order of precedence, filled in from it; None where one scale is for all.

    Raises:
        ValueError: if a scale is not positive and finite, or there is none; and, where parameters are first seen, if a
            leaf matches no pattern or a pattern no leaf.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import Cauchy
        >>> from lamu.priors.independent import Independent
        >>> isinstance(Cauchy({"*bias": 10.0, "*": 0.5}), Independent)
        True
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
            if not isinstance(scale, Tracer | FanIn) and not 0.0 < scale < math.inf:
                where = f" of {name!r}" if name else ""
                raise ValueError(f"the prior scale {scale}{where} is not positive and finite; give a positive number")

    @abstractmethod
    def log_density(self, z: Array) -> Array:
        """Returns log p₀ of standardised weights, an array like them."""

    @abstractmethod
    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: Any) -> Array:
        """Returns draws of p₀."""

    def check(self, params: Params) -> None:
        """Raises a ValueError if a pattern matches no leaf, or a leaf no pattern."""
        if self.patterns is not None:
            tree.require_matches(self.patterns, params)
            self.scales(params)

    def log_prob(self, params: Params) -> Array:
        r"""Returns \(\sum_i \log p_0((\theta_i - m)/s_i) - \log s_i\), a scalar in nats."""

        def leaf(x: Array, s: Any) -> Array:
            scale = jnp.asarray(s, x.dtype)
            z = (x - jnp.asarray(self.loc, x.dtype)) / scale
            return jnp.sum(self.log_density(z)) - x.size * jnp.log(scale)

        leaves = jax.tree.leaves(jax.tree.map(leaf, params, self.scales(params)))
        return jnp.sum(jnp.stack(leaves)) if leaves else jnp.asarray(0.0)

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Returns m + s z with z of p₀, a tree like `params`."""

        def leaf(k: RandomKey, x: Array, s: Any) -> Array:
            return jnp.asarray(self.loc, x.dtype) + jnp.asarray(s, x.dtype) * self.draw(k, x.shape, x.dtype)

        return jax.tree.map(leaf, tree.keys_like(key, params), params, self.scales(params))

    def scales(self, params: Params) -> Params:
        """Returns the scale of each leaf, a tree like `params`.

        Args:
            params: any parameters of the right structure; only their paths and shapes count.
        """
        if self.patterns is None:
            chosen = jax.tree.map(lambda _: self.scale, params)
        else:
            chosen = tree.by_pattern(dict(zip(self.patterns, self.scale, strict=True)), params)
        return jax.tree.map(lambda x, s: s.of(x) if isinstance(s, FanIn) else s, params, chosen)
