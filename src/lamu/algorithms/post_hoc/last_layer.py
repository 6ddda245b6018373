"""The last layer: Laplace's method for the head of a network, the rest held at the mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lamu import tree
from lamu.algorithms.post_hoc.at_mode import gaussian_at_mode
from lamu.data.batch import Batch
from lamu.families import Point
from lamu.objective import Objective
from lamu.operators import Dense
from lamu.posterior import Posterior
from lamu.protocol import Algorithm, Choices, Info, Traits
from lamu.record import record
from lamu.typing import RandomKey

__all__ = ["LastLayer", "last_layer"]


@record
class LastLayer:
    """The algorithm that `last_layer` makes.

    Attributes:
        of: what finds the mode.

    Examples:
        >>> import lamu
        >>> lamu.algorithms.last_layer().choices.family
        'Gaussian, dense precision, last layer'
    """

    of: Algorithm

    @property
    def traits(self) -> Traits:
        """Those of what finds the mode."""
        return self.of.traits

    @property
    def choices(self) -> Choices:
        """The row of the table."""
        departures = ("features a point", "one step at the mode", "dispersions a point")
        return Choices("Gaussian, dense precision, last layer", "Delta", "GaussNewton", departures=departures)

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> Any:
        """Returns the first state of what finds the mode."""
        return self.of.init(key, objective, batch)

    def step(self, key: RandomKey, state: Any, batch: Batch, objective: Objective) -> tuple[Any, Info]:
        """Returns the next state of what finds the mode."""
        return self.of.step(key, state, batch, objective)

    def posterior(self, key: RandomKey, state: Any, objective: Objective, data: Any, trace: Any) -> Posterior:
        """Returns the Gaussian about the head, in a model whose other weights are frozen at the mode."""
        point = self.of.posterior(key, state, objective, data, trace)
        head = objective.model.network.head
        names = tree.paths(point.mean["network"])
        features = [name for name in names if not tree.matches(name, head)]
        model = objective.model.freeze(point.mean, *features) if features else objective.model
        free = tree.map_with_path(lambda name, leaf: None if name in features else leaf, point.mean["network"])
        found = replace(point, belief=Point({**point.mean, "network": free}))
        return gaussian_at_mode(Dense, found, key, replace(objective, model=model), data)


def last_layer(of: Algorithm | None = None) -> LastLayer:
    r"""Laplace's method for the last layer alone, exact Bayes for a linear model on learned features.

    With \(\phi(x)\) the features at the mode and W the head's weights, \(f(x) = W \phi(x)\) is linear in W, so that the
    Gauss–Newton matrix is the Hessian (for canonical likelihoods) and the linearised prediction is exact in f:

    \[ S = \tfrac1T \Big( \sum_i J_i^\top \Lambda_i J_i + \delta I \Big), \qquad J_i = I \otimes \phi(x_i)^\top \]

    After the steps that find the mode, one pass over the data with one Jacobian of the head a row, and the head's
    dimension cubed once.

    Departures from the rule: the features are a point, and the belief is computed once, where the optimiser stopped.

    Args:
        of: the algorithm that finds the mode, with a point posterior; `adam(1e-2)` where none is given.

    Returns:
        The algorithm. Its posterior's model has every weight frozen but the head's.

    Raises:
        TypeError: for an `of` that is no algorithm.

    Source: Snoek et al. (2015); Kristiadi, Hein & Hennig (2020).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.MLP((16,)), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.last_layer(), epochs=10).posterior
        >>> lamu.tree.paths(posterior.mean["network"])
        ['layers/1/bias', 'layers/1/kernel']
    """
    if of is None:
        from lamu.algorithms.optimisers.adam import adam

        of = adam(1e-2)
    if not isinstance(of, Algorithm):
        raise TypeError(f"last_layer(of={of!r}) needs an algorithm that finds the mode; give for instance adam(1e-2)")
    return LastLayer(of=of)
