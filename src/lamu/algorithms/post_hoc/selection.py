"""Which weights a posterior made after the fact is about; the others are held at the mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from lamu import tree
from lamu.families import Point
from lamu.posterior import Posterior
from lamu.record import record, static

__all__ = ["AllWeights", "HeadWeights", "Matching", "WeightsChoice", "held_but"]


@runtime_checkable
class WeightsChoice(Protocol):
    """A choice of weights, as `laplace(weights=...)` takes it."""

    @property
    def words(self) -> str:
        """What the table says of it, after "Gaussian, dense precision"."""
        ...

    @property
    def departures(self) -> tuple[str, ...]:
        """What it leaves out."""
        ...

    def select(self, model: Any, point: Posterior, objective: Any, data: Any) -> tuple[Any, Posterior]:
        """Returns the model of the chosen weights, all others held at the point, and the point without those."""
        ...


@record
class AllWeights:
    """Every free weight.

    Examples:
        >>> from lamu.algorithms.post_hoc.selection import AllWeights
        >>> AllWeights().departures
        ()
    """

    words = ""
    departures = ()

    def select(self, model: Any, point: Posterior, objective: Any = None, data: Any = None) -> tuple[Any, Posterior]:
        """Returns model and point as they are."""
        return model, point


@record
class HeadWeights:
    """The weights of the network's last layer, in which its outputs are linear.

    Examples:
        >>> from lamu.algorithms.post_hoc.selection import HeadWeights
        >>> HeadWeights().departures
        ('features a point',)
    """

    words = ", last layer"
    departures = ("features a point",)

    def select(self, model: Any, point: Posterior, objective: Any = None, data: Any = None) -> tuple[Any, Posterior]:
        """Returns the model with every other weight frozen at the point, and the point without those."""
        return held_but(model, point, (model.network.head,))


@record
class Matching:
    """The weights whose path matches a pattern, leaf by leaf.

    Attributes:
        patterns: path patterns below `network`, for instance `("layers/1/*",)`, or one of them.

    Raises:
        ValueError: (when it runs) for a pattern that matches no leaf.

    Examples:
        >>> from lamu.algorithms.post_hoc.selection import Matching
        >>> Matching("layers/1/*").patterns
        ('layers/1/*',)
    """

    patterns: Any = static()

    departures = ("other weights a point",)

    def __post_init__(self) -> None:
        patterns = (self.patterns,) if isinstance(self.patterns, str) else tuple(self.patterns)
        object.__setattr__(self, "patterns", patterns)
        if not patterns:
            raise ValueError("Matching() has no pattern; give one, for instance 'layers/1/*'")

    @property
    def words(self) -> str:
        """The patterns."""
        return f", weights {' '.join(self.patterns)}"

    def select(self, model: Any, point: Posterior, objective: Any = None, data: Any = None) -> tuple[Any, Posterior]:
        """Returns the model with every other weight frozen at the point, and the point without those."""
        tree.require_matches(self.patterns, point.mean["network"])
        return held_but(model, point, self.patterns)


def held_but(model: Any, point: Posterior, patterns: tuple[str, ...]) -> tuple[Any, Posterior]:
    """Returns the model with every weight frozen at the point that matches no pattern, and the point without those."""
    weights = point.mean["network"]
    held = [name for name in tree.paths(weights) if not any(tree.matches(name, pattern) for pattern in patterns)]
    if not held:
        return model, point
    free = tree.map_with_path(lambda name, leaf: None if name in held else leaf, weights)
    belief = Point({**point.mean, "network": free})
    return model.freeze(point.mean, *held), replace(point, belief=belief)
