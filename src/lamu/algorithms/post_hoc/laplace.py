"""Laplace's method: the Gaussian with the curvature at the mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from lamu import tree
from lamu.algorithms.post_hoc.at_mode import look_at_mode
from lamu.algorithms.post_hoc.selection import AllWeights, HeadWeights
from lamu.algorithms.post_hoc.unknowns import settled
from lamu.data.batch import Batch
from lamu.objective import Objective
from lamu.operators import Dense, Diagonal
from lamu.posterior import Posterior
from lamu.protocol import Algorithm, Choices, Info, Traits
from lamu.rate import Annealed
from lamu.record import record, static
from lamu.typing import RandomKey

__all__ = ["Laplace", "laplace", "mode_finder"]

_LARGEST_DENSE = 4096


@record
class Laplace:
    """The algorithm that `laplace` makes.

    Attributes:
        of: what finds the mode.
        weights: which weights the belief is about.
        structure: the operator class of the precision, or None where their number decides.

    Examples:
        >>> import lamu
        >>> lamu.algorithms.laplace().choices.curvature
        'GaussNewton'
    """

    of: Algorithm
    weights: AllWeights | HeadWeights = AllWeights()
    structure: Any = static(default=None)

    @property
    def traits(self) -> Traits:
        """Those of what finds the mode."""
        return self.of.traits

    @property
    def choices(self) -> Choices:
        """The row of the table."""
        structure = "dense or diagonal" if self.structure is None else self.structure.__name__.lower()
        departures = ("Gauss-Newton for the Hessian", "one step at the mode", "dispersions a point")
        family = f"Gaussian, {structure} precision{self.weights.words}"
        return Choices(family, "Delta", "GaussNewton", departures=(*self.weights.departures, *departures))

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> Any:
        """Returns the first state of what finds the mode."""
        return self.of.init(key, objective, batch)

    def step(self, key: RandomKey, state: Any, batch: Batch, objective: Objective) -> tuple[Any, Info]:
        """Returns the next state of what finds the mode."""
        return self.of.step(key, state, batch, objective)

    def preview(self, key: RandomKey, state: Any, objective: Objective) -> Posterior:
        """Returns what the state predicts before the pass over the data: the point."""
        return self.of.posterior(key, state, objective, None, None)

    def posterior(self, key: RandomKey, state: Any, objective: Objective, data: Any, trace: Any) -> Posterior:
        """Returns the Gaussian at the mode, after one pass over the data."""
        point = self.of.posterior(key, state, objective, data, trace)
        model, point = self.weights.select(objective.model, point)
        small = tree.dimension(point.mean["network"]) <= _LARGEST_DENSE
        structure = self.structure or (Dense if small else Diagonal)
        objective = replace(objective, model=model)
        mode = look_at_mode(structure, point, objective, data)
        mode, objective = settled(mode, objective, key, getattr(data, "held_out", None))
        return mode.posterior(objective, key)


def laplace(of: Algorithm | None = None, structure: Any = None) -> Laplace:
    r"""Laplace's method: a Gaussian at the mode, with the generalised Gauss–Newton matrix as its precision.

    \[ m = \arg\min_\theta \ell(\theta), \qquad
       S = \tfrac1T \Big( p \sum_i w_i J_i^\top \Lambda_i J_i - \nabla^2 \log p(m) \Big) \]

    which is the fixed point of the rule under the delta method. The evidence is
    \(-\ell(m)/T + \tfrac{D}{2}\log 2\pi - \tfrac12\log\det S\). Prediction is linearised. After the steps that find the
    mode, one pass with one Jacobian a row; for a dense precision \(N K D^2\) more operations.

    With the prior `LearnedNormal` the width of the prior, and a factor of the noise where that is learned, are chosen
    with the mode held: by the evidence, or, where `fit` has set rows aside, by their predictive density. That takes
    fifteen to eighty determinants more.

    Departures from the rule: the Gauss–Newton matrix is an approximation of the Hessian (exact for linear networks with
    canonical likelihoods); it is computed once, where the optimiser stopped; learned dispersions stay a point.

    Args:
        of: the algorithm that finds the mode, with a point posterior; `adam(Annealed(1e-2))` where none is given.
        structure: the operator class of the precision, `Dense` or `Diagonal`; where none is given dense up to 4,096
            weights, diagonal above.

    Returns:
        The algorithm.

    Raises:
        TypeError: for an `of` that is no algorithm.

    Source: MacKay (1992); Khan & Rue (2021), section 4.4; Immer, Korzepa & Bauer (2021).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.laplace(), epochs=20).posterior
        >>> lamu.scores.nll(posterior.predict(x), y) < 0.12
        True
    """
    return Laplace(of=mode_finder(of), structure=structure)


def mode_finder(of: Algorithm | None) -> Algorithm:
    """Returns the algorithm that finds the mode, `adam(Annealed(1e-2))` where none is given.

    Raises:
        TypeError: for something that is no algorithm.
    """
    if of is None:
        from lamu.algorithms.optimisers.adam import adam

        return adam(Annealed(1e-2))
    if not isinstance(of, Algorithm):
        raise TypeError(f"of={of!r} is no algorithm that could find the mode; give for instance adam(1e-2)")
    if jax.tree_util.all_leaves([of]):
        raise TypeError(
            f"of={of!r} is no pytree and cannot be a part of another; decorate its class with lamu.record.record"
        )
    return of
