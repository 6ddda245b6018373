"""Plug-in predictions: one network in the place of a belief, at its mean or at its most probable values."""

from __future__ import annotations

from typing import Any

from lamu import tree
from lamu.families import Binary, PartialBelief, Point, Product
from lamu.predictives import PredictiveRule, Prepared, Sampled
from lamu.record import record
from lamu.target import Target
from lamu.typing import Params, RandomKey

__all__ = ["PlugInMean", "PlugInMode"]


@record
class PlugInMean(PredictiveRule):
    r"""Predictions of the network at the belief's mean, for ±1 at \(\mu = \tanh\lambda\).

    Examples:
        >>> from lamu.algorithms.discrete.plug_in import PlugInMean
        >>> PlugInMean()
        PlugInMean()
    """

    def prepare(self, model: Target, belief: Any, network_state: Any, samples: int, key: RandomKey) -> Prepared:
        """Returns the mean, as a point."""
        return Sampled().prepare(model, Point(belief.mean), network_state, 1, key)


@record
class PlugInMode(PredictiveRule):
    """Predictions of the most probable network: the signs of binary weights, and the mean of whatever else there is.

    Examples:
        >>> from lamu.algorithms.discrete.plug_in import PlugInMode
        >>> PlugInMode()
        PlugInMode()
    """

    def prepare(self, model: Target, belief: Any, network_state: Any, samples: int, key: RandomKey) -> Prepared:
        """Returns the mode, as a point."""
        return Sampled().prepare(model, Point(_mode(belief)), network_state, 1, key)


def _mode(belief: Any) -> Params:
    if isinstance(belief, Product):
        return {name: _mode(factor) for name, factor in belief.factors.items()}
    if isinstance(belief, PartialBelief):
        return tree.merged(_mode(belief.belief), belief.point)
    return belief.mode if isinstance(belief, Binary) else belief.mean
