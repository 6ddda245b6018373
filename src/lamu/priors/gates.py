r"""Independent normal weights with another mean and scale for each gate of a recurrent cell."""

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
from lamu.typing import Array, Params, RandomKey

__all__ = ["Gates"]


@record
class Gates(IndependentLeaves):
    r"""Normal weights of a cell whose leaves hold the gates side by side along their last axis.

    \[ \theta_g \sim N(m_g, s_g^2), \qquad \theta = (\theta_{g_1}, \dots, \theta_{g_G}) \]

    for G blocks of equal width: four of an LSTM (input, forget, cell, output, in the order of the network), three of a
    gated recurrent unit. A forget bias of mean 1 says that a cell remembers. It is meant for the cell's leaves, in
    `ByPath`; a network that holds each gate in a leaf of its own takes `Normal` by path.

    Attributes:
        scales: the standard deviations \(s_g\), one a gate.
        locs: the means \(m_g\), one a gate; zeros where None.

    Raises:
        ValueError: for scales that are not positive and finite, or another number of means; and, where parameters are
            first seen, for a leaf that cannot be cut into so many blocks.

    Source: Fortuin et al. (2022) for priors by block; Jozefowicz et al. (2015) for the forget bias.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import ByPath, Gates, Normal
        >>> bias = Gates((1.0, 1.0, 1.0, 1.0), locs=(0.0, 1.0, 0.0, 0.0))
        >>> prior = ByPath({"*bias": bias, "*": Normal(0.1)})
        >>> bias.gaussian({"bias": jnp.zeros(8)}).mean["bias"].tolist()
        [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    """

    scales: tuple[Any, ...] = (1.0, 1.0, 1.0, 1.0)
    locs: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        for scale in self.scales:
            if not isinstance(scale, Tracer) and not 0.0 < scale < math.inf:
                raise ValueError(f"the scale {scale} of a gate is not positive and finite; give a positive number")
        if self.locs is not None and len(self.locs) != len(self.scales):
            raise ValueError(f"locs={self.locs!r} are not as many as the scales {self.scales!r}; give one a gate")

    def check(self, params: Params) -> None:
        """Raises a ValueError for a leaf whose last axis cannot be cut into the gates."""
        gates = len(self.scales)
        for path, leaf in zip(tree.paths(params), jax.tree.leaves(params), strict=True):
            if np.ndim(leaf) == 0 or leaf.shape[-1] % gates:
                raise ValueError(
                    f"the leaf {path!r} of shape {np.shape(leaf)} cannot be cut into {gates} gates along its last "
                    "axis; give this prior to the cell's leaves alone, in ByPath"
                )

    def log_prob(self, params: Params) -> Array:
        r"""Returns \(\sum_i \log N(\theta_i \mid m_i, s_i^2)\), a scalar in nats."""

        def leaf(x: Array) -> Array:
            mean, scale = self._of(x)
            away = (x - mean) / scale
            return -jnp.sum(away * away / 2 + jnp.log(scale)) - x.size * math.log(2 * math.pi) / 2

        leaves = [leaf(x) for x in jax.tree.leaves(params)]
        return jnp.sum(jnp.stack(leaves)) if leaves else jnp.asarray(0.0)

    def gaussian(self, params: Params) -> Gaussian:
        mean = jax.tree.map(lambda x: self._of(x)[0], params)
        return Gaussian(mean, Diagonal(jax.tree.map(lambda x: self._of(x)[1] ** -2, params)))

    def sample(self, key: RandomKey, params: Params) -> Params:

        def leaf(noise: Array) -> Array:
            mean, scale = self._of(noise)
            return mean + scale * noise

        return jax.tree.map(leaf, tree.normal(key, params))

    def _of(self, leaf: Array) -> tuple[Array, Array]:
        """Mean and scale of every weight of a leaf."""
        width = leaf.shape[-1] // len(self.scales)
        locs = (0.0,) * len(self.scales) if self.locs is None else self.locs
        spread = lambda values: jnp.repeat(jnp.stack([jnp.asarray(v, leaf.dtype) for v in values]), width)
        return jnp.broadcast_to(spread(locs), leaf.shape), jnp.broadcast_to(spread(self.scales), leaf.shape)
