"""Subnetworks: a belief about some of a network's weights, down to single ones, with the others fixed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.algorithms.post_hoc.laplace_fit import fit_laplace
from lamu.base.arguments import require_whole_field
from lamu.families import Gaussian, Point
from lamu.model import Model
from lamu.networks import Network
from lamu.networks.interface import outputs
from lamu.networks.wrapper import NetworkWrapper
from lamu.operators import Diagonal
from lamu.posterior import Posterior
from lamu.priors import Belief, Independent, LearnedNormal, Prior, independent_normal
from lamu.record import record, static
from lamu.target import Target
from lamu.typing import Array, Data, Params, RandomKey, State

__all__ = [
    "AllWeights",
    "ByMask",
    "HeadWeights",
    "LargestVariance",
    "Matching",
    "Subnetwork",
    "WeightsChoice",
    "held_but",
    "matching",
]


class WeightsChoice:
    """Base class for the choices of `laplace(weights=...)`."""

    words: Any = ""  # its words in the table, after "Gaussian, dense precision"
    departures: tuple[str, ...] = ("other weights a point",)

    def patterns_of(self, model: Target) -> tuple[str, ...] | None:
        """Returns path patterns of the chosen weights; None if they are not whole leaves."""
        return None

    def select(
        self, model: Any, point: Posterior, objective: Any = None, data: Data = None
    ) -> tuple[Target, Posterior]:
        """Returns the model of the chosen weights with all others fixed at the point, and their point."""
        patterns = self.patterns_of(model)
        return held_but(model, point, () if patterns is None else patterns)


@record
class AllWeights(WeightsChoice):
    """Every free weight.

    Examples:
        >>> from lamu.algorithms.post_hoc.subnetwork import AllWeights
        >>> AllWeights().departures
        ()
    """

    departures = ()

    def patterns_of(self, model: Target) -> tuple[str, ...]:
        return ("*",)


@record
class HeadWeights(WeightsChoice):
    """The weights of the network's last layer, in which its outputs are linear.

    Examples:
        >>> from lamu.algorithms.post_hoc.subnetwork import HeadWeights
        >>> HeadWeights().departures
        ('features a point',)
    """

    words = ", last layer"
    departures = ("features a point",)

    def patterns_of(self, model: Target) -> tuple[str, ...]:
        return (model.network.head,)


@record
class Matching(WeightsChoice):
    """The leaves of weights whose path matches a pattern.

    Attributes:
        patterns: path patterns below `network`, for instance `("layers/1/*",)`, or one of them.

    Raises:
        ValueError: (when it runs) for a pattern that matches no leaf.

    Examples:
        >>> from lamu.algorithms.post_hoc.subnetwork import Matching
        >>> Matching("layers/1/*").patterns
        ('layers/1/*',)
    """

    patterns: Any = static()

    def __post_init__(self) -> None:
        patterns = (self.patterns,) if isinstance(self.patterns, str) else tuple(self.patterns)
        object.__setattr__(self, "patterns", patterns)
        if not patterns:
            raise ValueError("Matching() has no pattern; give one, for instance 'layers/1/*'")

    @property
    def words(self) -> str:
        """The patterns, for the table."""
        return f", weights {' '.join(self.patterns)}"

    def patterns_of(self, model: Target) -> tuple[str, ...]:
        return self.patterns

    def select(
        self, model: Any, point: Posterior, objective: Any = None, data: Data = None
    ) -> tuple[Target, Posterior]:
        tree.require_matches(self.patterns, point.mean["network"])
        return super().select(model, point)


def matching(weights: Params, patterns: tuple[str, ...]) -> Params:
    """Returns the leaves whose path matches a pattern, with None for the others."""
    is_chosen = lambda name: any(tree.matches(name, pattern) for pattern in patterns)
    return tree.map_with_path(lambda name, leaf: leaf if is_chosen(name) else None, weights)


def held_but(model: Target, point: Posterior, patterns: tuple[str, ...]) -> tuple[Target, Posterior]:
    """Returns the model with the weights that match no pattern frozen at the point, and the point without those."""
    weights = point.mean["network"]
    free = matching(weights, patterns)
    kept = set(tree.paths(free))
    frozen = [name for name in tree.paths(weights) if name not in kept]
    if not frozen:
        return model, point
    belief = Point({**point.mean, "network": free})
    return model.freeze(point.mean, *frozen), replace(point, belief=belief)


# \[ f_S(\theta_S, x) = f(\theta_S, \hat\theta_{\bar S}, x) \]
#
# The k weights of largest variance under a diagonal belief are the choice that loses least, if weights are
# independent (it minimises the Wasserstein distance between the two beliefs).


@record
class Subnetwork(NetworkWrapper):
    """A network of which only some weights are parameters."""

    # A leaf that is chosen whole keeps its shape; a leaf chosen in part is the vector of the chosen weights; any other
    # is `None`.

    base: Network  # the network
    held: Params  # all of its weights, of which the chosen ones are overwritten
    chosen: dict[str, Array]  # by path, the flat indices of the chosen weights of leaves that are chosen in part
    whole: tuple[str, ...] = static(default=())  # the paths of the leaves that are chosen whole
    head = "*"

    def take(self, weights: Params) -> Params:
        """Returns the chosen weights."""
        leaves, structure = jax.tree.flatten(weights)

        def of(path: str, leaf: Array) -> Array | None:
            if path in self.whole:
                return leaf
            return jnp.ravel(leaf)[self.chosen[path]] if path in self.chosen else None

        return structure.unflatten([of(path, leaf) for path, leaf in zip(tree.paths(weights), leaves, strict=True)])

    def put(self, params: Params) -> Params:
        """Returns all weights, with the chosen ones overwritten."""
        given = dict(zip(tree.paths(params), jax.tree.leaves(params), strict=True))

        def of(path: str, leaf: Array) -> Array:
            if path in self.whole:
                return given[path]
            if path not in self.chosen:
                return leaf
            return jnp.ravel(leaf).at[self.chosen[path]].set(given[path].astype(leaf.dtype)).reshape(leaf.shape)

        return tree.map_with_path(of, self.held)

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        # Returns the stored chosen weights, and the base's state.
        return self.take(self.held), self.base.init(key, x, outputs)[1]

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        return outputs(self.base, self.put(params), state, x, key, train, mask)


@record
class ByMask(WeightsChoice):
    """The weights where a mask is true.

    Attributes:
        mask: a tree of Booleans like the network's free weights: one for each weight, or one for a leaf.

    Raises:
        ValueError: (when it runs) for a mask of another structure or shape, or one that chooses nothing.
        TypeError: (when it runs) for a mask that is not of Booleans.

    Examples:
        >>> from lamu.algorithms.post_hoc.subnetwork import ByMask
        >>> ByMask({"layers": {0: {"bias": False, "kernel": True}}}).words
        ', masked weights'
    """

    mask: Params

    words = ", masked weights"

    def select(
        self, model: Any, point: Posterior, objective: Any = None, data: Data = None
    ) -> tuple[Target, Posterior]:
        return _selected(model, point, _checked(self.mask, point.mean["network"]))


@record
class LargestVariance(WeightsChoice):
    """The k weights of largest variance under a diagonal belief, by one more pass over the data.

    Attributes:
        count: k.

    Raises:
        ValueError: for fewer than one weight, or (when it runs) more than there are.

    Source: Daxberger, Nalisnick, Allingham, Antorán & Hernández-Lobato (2021), section 4.

    Examples:
        >>> from lamu.algorithms.post_hoc.subnetwork import LargestVariance
        >>> LargestVariance(50).words
        ', 50 weights of largest variance'
    """

    count: int = static()

    def __post_init__(self) -> None:
        require_whole_field(self, "count", problem="chooses no weight")

    @property
    def words(self) -> str:
        """The number of weights, for the table."""
        return f", {self.count} weights of largest variance"

    def select(
        self, model: Any, point: Posterior, objective: Any = None, data: Data = None
    ) -> tuple[Target, Posterior]:
        weights = point.mean["network"]
        size = tree.dimension(weights)
        if self.count > size:
            raise ValueError(f"LargestVariance({self.count}) of {size} weights; choose no more than there are")
        diagonal = fit_laplace(Diagonal, point, objective, data).precision(objective).diagonal(weights)
        precision, unravel = tree.ravel(diagonal)
        order = np.argsort(np.asarray(precision), kind="stable")
        mask = np.zeros(size, bool)
        mask[order[: self.count]] = True
        mask_tree = jax.tree.map(lambda leaf: np.asarray(leaf) > 0.5, unravel(jnp.asarray(mask, precision.dtype)))
        return _selected(model, point, mask_tree)


def _selected(model: Model, point: Posterior, mask: Params) -> tuple[Model, Posterior]:
    weights = point.mean["network"]
    chosen, all_paths = {}, []
    for path, leaf in zip(tree.paths(weights), jax.tree.leaves(mask), strict=True):
        if leaf.all():
            all_paths.append(path)
        elif leaf.any():
            chosen[path] = jnp.asarray(np.flatnonzero(leaf), jnp.int32)
    network = Subnetwork(model.network, model.complete(weights), chosen, tuple(all_paths))
    selected = replace(model, network=network, prior=_restricted(model.prior, network), frozen=None, start=None)
    belief = Point({**point.mean, "network": network.take(network.held)})
    return selected, replace(point, model=selected, belief=belief)


def _restricted(prior: Prior, network: Subnetwork) -> Prior:
    """Returns the prior of the chosen weights, which must be independent of the others."""
    if isinstance(prior, Independent | LearnedNormal):
        return prior
    moments = independent_normal(prior, network.held)
    if moments is None:
        raise TypeError(
            f"of the prior {type(prior).__name__} no single weights can be taken; use Normal(...), or choose whole "
            "leaves with Matching(...)"
        )
    mean, precision = (network.take(part) for part in moments)
    return Belief(Gaussian(mean, Diagonal(precision)))


def _checked(mask: Params, weights: Params) -> Params:
    """Returns the mask as arrays of the leaves' shapes."""
    names, mask_names = tree.paths(weights), tree.paths(mask)
    if names != mask_names:
        wrong = next((name for name in mask_names if name not in names), None)
        missing = next((name for name in names if name not in mask_names), None)
        reason = f"it has {wrong!r}, which is not a weight" if wrong is not None else f"it lacks {missing!r}"
        raise ValueError(
            f"the mask has another structure than the network's free weights: {reason}; give a tree of Booleans like "
            "posterior.mean['network']"
        )
    arrays = []
    for name, leaf, like in zip(names, jax.tree.leaves(mask), jax.tree.leaves(weights), strict=True):
        leaf = np.asarray(leaf)
        if leaf.dtype != bool:
            raise TypeError(f"the mask of {name!r} is of {leaf.dtype}, not of Booleans; give weights > 0.1, say")
        if leaf.shape not in ((), jnp.shape(like)):
            raise ValueError(
                f"the mask of {name!r} has the shape {leaf.shape} and the weights {jnp.shape(like)}; give one Boolean "
                "a weight, or one for all of them"
            )
        arrays.append(np.broadcast_to(leaf, jnp.shape(like)))
    if not any(leaf.any() for leaf in arrays):
        raise ValueError("the mask chooses no weight; set at least one of its entries to True")
    return jax.tree.unflatten(jax.tree.structure(weights), arrays)
