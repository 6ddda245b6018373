r"""Priors of independent normal weights, \(\theta_i \sim N(m, s_i^2)\)."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.base.arguments import require_positive
from lamu.families import Gaussian
from lamu.operators import Diagonal
from lamu.priors.independent import Independent
from lamu.priors.interface import IndependentLeaves
from lamu.record import record
from lamu.typing import Array, DTypeLike, Number, Params, PyTree, RandomKey

__all__ = ["Gates", "LayerwiseNormal", "LearnedNormal", "Normal"]


_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


class NormalLeaves(IndependentLeaves):
    """Base class of priors of independent normal weights; a subclass defines means and scales."""

    def moments(self, params: Params) -> tuple[Params, Params]:
        """Returns mean and standard deviation of each leaf's weights, numbers or arrays that broadcast to it."""
        raise NotImplementedError

    def log_prob(self, params: Params) -> Array:
        r"""Returns \(\sum_i \log N(\theta_i \mid m_i, s_i^2)\), a scalar in nats."""

        def leaf(x: Array, m: Number, s: Number) -> Array:
            scale = jnp.asarray(s, x.dtype)
            away = (x - jnp.asarray(m, x.dtype)) / scale
            # One logarithm a scale instead of one a weight saves a pass over all weights in every step.
            logs = jnp.sum(jnp.log(scale) + _HALF_LOG_2_PI) * (x.size // max(scale.size, 1))
            return -jnp.sum(away * away) / 2 - logs

        leaves = jax.tree.leaves(jax.tree.map(leaf, params, *self.moments(params)))
        return jnp.sum(jnp.stack(leaves)) if leaves else jnp.asarray(0.0)

    def gaussian(self, params: Params) -> Gaussian:
        r"""Returns the Gaussian of means \(m_i\) and precisions \(1/s_i^2\).

        Args:
            params: any parameters of the right structure; only their paths, shapes and dtypes are used.
        """
        means, scales = self.moments(params)
        mean = jax.tree.map(lambda x, m: jnp.broadcast_to(jnp.asarray(m, x.dtype), x.shape), params, means)
        precision = jax.tree.map(lambda x, s: jnp.broadcast_to(jnp.asarray(s, x.dtype) ** -2, x.shape), params, scales)
        return Gaussian(mean, Diagonal(precision))

    def sample(self, key: RandomKey, params: Params) -> Params:
        r"""Returns \(m_i + s_i \varepsilon_i\), a tree like `params`."""
        draw = lambda e, m, s: jnp.asarray(m, e.dtype) + jnp.asarray(s, e.dtype) * e
        return jax.tree.map(draw, tree.normal(key, params), *self.moments(params))


@record
class LayerwiseNormal(NormalLeaves):
    r"""Independent normal weights, \(p(\theta) = \prod_i N(\theta_i \mid m, s_i^2)\), with a tree of scales.

    The tree is a prefix of the parameters: a number is the scale of every weight below it, an array of a leaf's shape
    has one scale for each of its weights. All scales are leaves of the record, so that the evidence can be
    differentiated with respect to them. A *layer* is a dictionary with leaves alone (a kernel and its bias); a leaf
    elsewhere is a layer by itself.

    Attributes:
        scale: the standard deviations s: a number, or a tree of numbers and arrays, a prefix of the parameters.
        loc: the mean m.

    Raises:
        ValueError: if a scale is not positive and finite; and, at the first parameters, if the tree of scales is not a
            prefix of theirs.

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

    scale: Params = 1.0
    loc: Number = 0.0

    def __post_init__(self) -> None:
        for path, scale in zip(tree.paths(self.scale), jax.tree.leaves(self.scale), strict=True):
            advice = f"give a positive number{f' for {path!r}' if path else ''}"
            require_positive("prior scale", scale, advice)

    @classmethod
    def over(cls, params: Params, scale: Number | Array = 1.0, loc: Number = 0.0) -> LayerwiseNormal:
        """Returns the prior with one scale a layer, initially equal.

        Args:
            params: parameters, for their layers.
            scale: the scale.
            loc: the mean.
        """
        return cls(layerwise(lambda _: scale, params), loc)

    def check(self, params: Params) -> None:
        """Raises a ValueError if the scales are not a prefix of the parameters, or an array has another shape."""
        try:
            spread = jax.tree.map(lambda s, below: jax.tree.map(lambda x: (jnp.shape(s), x), below), self.scale, params)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"the scales {_outline(self.scale)} are not a prefix of the parameters, whose leaves are "
                f"{', '.join(tree.paths(params))}; give one number, or LayerwiseNormal.over(params, 1.0)"
            ) from error
        pairs = jax.tree.leaves(spread, is_leaf=lambda node: isinstance(node, tuple))
        for path, (shape, leaf) in zip(tree.paths(params), pairs, strict=True):
            if shape not in ((), jnp.shape(leaf)):
                raise ValueError(
                    f"the scales of {path!r} have the shape {shape} and the leaf {jnp.shape(leaf)}; give one number, "
                    "or one a weight"
                )

    def moments(self, params: Params) -> tuple[Params, Params]:
        return jax.tree.map(lambda _: self.loc, params), self.scales(params)

    def scales(self, params: Params) -> Params:
        """Returns the scale, or the array of scales, of each leaf, a tree like `params`."""
        return jax.tree.map(lambda s, below: jax.tree.map(lambda _: s, below), self.scale, params)


def layerwise(function: Callable[[Params], PyTree], params: Params) -> Params:
    """Returns the function's value for every layer, a tree that stops at the layers."""
    return jax.tree.map(function, params, is_leaf=_is_layer)


def _is_layer(node: object) -> bool:
    # A frozen leaf is None, and may be part of a layer.
    members = node.values() if isinstance(node, dict) else ()
    leaves = [part for part in members if part is not None]
    return bool(leaves) and all(jax.tree_util.all_leaves([part]) for part in leaves)


def _outline(scale: Params) -> str:
    return ", ".join(path or "one number" for path in tree.paths(scale))


@record
class Normal(NormalLeaves, Independent):
    r"""Independent normal weights: \(p(\theta) = \prod_i N(\theta_i \mid m, s_i^2)\).

    Weight decay of rate δ on the loss summed over the examples is the scale \(s = 1/\sqrt{\delta}\).

    Attributes:
        scale: the standard deviation s, a `FanIn`, or a mapping from path patterns of the network's parameters to
            these, in which the first matching pattern applies. A mapping is stored as `patterns` with a tuple of its
            values.
        loc: the mean m.
        patterns: the patterns of a mapping in order of precedence, set from it; None for one scale for all.

    Raises:
        ValueError: if a scale is not positive and finite, or there is none; and, at the first parameters, if a leaf
            matches no pattern or a pattern no leaf.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import Normal
        >>> prior = Normal(scale={"*bias": 10.0, "*": 0.5})
        >>> known = prior.gaussian({"layer": {"bias": jnp.zeros(1), "kernel": jnp.zeros((1, 1))}})
        >>> known.precision.values["layer"]["kernel"].tolist()
        [[4.0]]
    """

    def moments(self, params: Params) -> tuple[Params, Params]:
        return jax.tree.map(lambda _: self.loc, params), self.scales(params)

    def log_density(self, z: Array) -> Array:
        """Returns the log density of standard normal weights."""
        return -z * z / 2 - _HALF_LOG_2_PI

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Returns standard normal draws."""
        return jax.random.normal(key, shape, dtype)


@record
class LearnedNormal(IndependentLeaves):
    r"""Independent normal weights with one unknown scale, \(p(\theta) = \prod_i N(\theta_i \mid 0, s^2)\).

    Laplace's method and its last layer choose s after finding the mode, by the evidence (MacKay 1992) or by the
    held-out rows of `lamu.fit(validation=...)`, and their posterior's model has `Normal(s)` instead of this prior.
    `lamu.fit_folds` compares s, 2s and s/2 by the out-of-fold density for any algorithm, and `lamu.fit_prior_scale`
    doubles or halves s as long as held-out rows are predicted better. In a single run every other algorithm uses the
    first guess, and a line of the logger `lamu` says so: the joint density of θ and s has no maximum, so an optimiser
    could not learn s, and the ELBO of a mean-field belief about a network is greatest where most weights are pruned.

    Attributes:
        start: the first guess of s, used to find the mode.

    Raises:
        ValueError: if the guess is not positive and finite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import LearnedNormal, Normal
        >>> weights = {"w": jnp.ones(3)}
        >>> float(LearnedNormal(0.5).log_prob(weights)) == float(Normal(0.5).log_prob(weights))
        True
    """

    start: Number = 1.0

    def __post_init__(self) -> None:
        self.at(self.start)

    def at(self, scale: Number) -> Normal:
        """Returns the prior with a given scale."""
        return Normal(scale)

    def check(self, params: Params) -> None:
        """Accepts all parameters."""

    def log_prob(self, params: Params) -> Array:
        """Returns the log density under the first guess, a scalar in nats."""
        return self.at(self.start).log_prob(params)

    def gaussian(self, params: Params) -> Gaussian:
        """Returns the Gaussian under the first guess."""
        return self.at(self.start).gaussian(params)

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Returns a draw under the first guess, a tree like `params`."""
        return self.at(self.start).sample(key, params)


@record
class Gates(NormalLeaves):
    r"""Normal weights of a recurrent cell, with separate means and scales for the gates along the last axis.

    \[ \theta_g \sim N(m_g, s_g^2), \qquad \theta = (\theta_{g_1}, \dots, \theta_{g_G}) \]

    for G blocks of equal width: four for an LSTM (input, forget, cell, output, in the order of the network), three for
    a gated recurrent unit. A forget bias of mean 1 favours long memory. Use it for the cell's leaves, in `ByPath`; for
    a network with each gate in a separate leaf use `Normal` by path.

    Attributes:
        scales: the standard deviations \(s_g\), one a gate.
        locs: the means \(m_g\), one a gate; zeros where None.

    Raises:
        ValueError: for scales that are not positive and finite, or another number of means; and, at the first
            parameters, for a leaf whose last axis is not a multiple of the number of blocks.

    Source: Fortuin et al. (2022) for priors by block; Jozefowicz et al. (2015) for the forget bias.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import ByPath, Gates, Normal
        >>> bias = Gates((1.0, 1.0, 1.0, 1.0), locs=(0.0, 1.0, 0.0, 0.0))
        >>> prior = ByPath({"*bias": bias, "*": Normal(0.1)})
        >>> bias.gaussian({"bias": jnp.zeros(8)}).mean["bias"].tolist()
        [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    """

    scales: tuple[Number, ...] = (1.0, 1.0, 1.0, 1.0)
    locs: tuple[Number, ...] | None = None

    def __post_init__(self) -> None:
        for scale in self.scales:
            require_positive("scale", scale, "give a positive number for each gate")
        if self.locs is not None and len(self.locs) != len(self.scales):
            raise ValueError(f"locs={self.locs!r} are not as many as the scales {self.scales!r}; give one a gate")

    def check(self, params: Params) -> None:
        """Raises a ValueError for a leaf whose last axis is not a multiple of the number of gates."""
        gates = len(self.scales)
        for path, leaf in zip(tree.paths(params), jax.tree.leaves(params), strict=True):
            if np.ndim(leaf) == 0 or leaf.shape[-1] % gates:
                raise ValueError(
                    f"the leaf {path!r} of shape {np.shape(leaf)} cannot be cut into {gates} gates along its last "
                    "axis; give this prior to the cell's leaves alone, in ByPath"
                )

    def moments(self, params: Params) -> tuple[Params, Params]:
        locs = (0.0,) * len(self.scales) if self.locs is None else self.locs

        def spread(values: tuple[Number, ...]) -> Params:
            entries = lambda x: jnp.stack([jnp.asarray(value, x.dtype) for value in values])
            widen = lambda x: jnp.broadcast_to(jnp.repeat(entries(x), x.shape[-1] // len(values)), x.shape)
            return jax.tree.map(widen, params)

        return spread(locs), spread(self.scales)
