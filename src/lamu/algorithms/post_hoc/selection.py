"""Which weights a posterior made after the fact is about; the others are held at the mode."""

from __future__ import annotations

from dataclasses import replace

from lamu import tree
from lamu.families import Point
from lamu.model import Model
from lamu.posterior import Posterior
from lamu.record import record

__all__ = ["AllWeights", "HeadWeights"]


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

    def select(self, model: Model, point: Posterior) -> tuple[Model, Posterior]:
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

    def select(self, model: Model, point: Posterior) -> tuple[Model, Posterior]:
        """Returns the model with every other weight frozen at the point, and the point without those."""
        weights = point.mean["network"]
        features = [name for name in tree.paths(weights) if not tree.matches(name, model.network.head)]
        if not features:
            return model, point
        free = tree.map_with_path(lambda name, leaf: None if name in features else leaf, weights)
        belief = Point({**point.mean, "network": free})
        return model.freeze(point.mean, *features), replace(point, belief=belief)
