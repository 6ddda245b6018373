"""How many scales a prior has whose scales are learned: one, one a layer, or one a weight."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.priors import LayerwiseNormal
from lamu.priors.layerwise import layerwise
from lamu.record import record
from lamu.typing import Array, Number, Params

__all__ = ["OneScale", "PriorScales", "ScalePerLayer", "ScalePerWeight", "prior_of"]


@runtime_checkable
class PriorScales(Protocol):
    """Which weights share a scale."""

    def start(self, precision: Params) -> Any:
        """Returns the logarithms of the precisions to begin with, a tree that is a prefix of the weights."""
        ...


@record
class OneScale:
    r"""One precision δ for all weights.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms import OneScale
        >>> float(OneScale().start({"w": jnp.ones(2)}))
        0.0
    """

    def start(self, precision: Params) -> Any:
        """Returns the mean logarithm of all precisions."""
        return _mean_log(precision)


@record
class ScalePerLayer:
    r"""One precision \(\delta_l\) a layer: a kernel and its bias share one. Automatic relevance of layers.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms import ScalePerLayer
        >>> ScalePerLayer().start({"layers": {0: {"bias": jnp.ones(1), "kernel": jnp.ones((2, 1))}}})["layers"][0].shape
        ()
    """

    def start(self, precision: Params) -> Any:
        """Returns the mean logarithm of each layer's precisions."""
        return layerwise(_mean_log, precision)


@record
class ScalePerWeight:
    r"""One precision \(\delta_i\) a weight: automatic relevance determination.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms import ScalePerWeight
        >>> ScalePerWeight().start({"w": jnp.ones(2)})["w"].tolist()
        [0.0, 0.0]
    """

    def start(self, precision: Params) -> Any:
        """Returns the logarithms of the precisions."""
        return jax.tree.map(jnp.log, precision)


def prior_of(log_precision: Any, loc: Number) -> LayerwiseNormal:
    """Returns the prior with these precisions."""
    return LayerwiseNormal(jax.tree.map(lambda leaf: jnp.exp(-leaf / 2), log_precision), loc)


def _mean_log(precision: Params) -> Array:
    return jnp.mean(jnp.log(tree.ravel(precision)[0]))
