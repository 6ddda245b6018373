"""Conjugate Bayes: the rule with rate one, on a model where it is exact."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.expectations import Exact
from lamu.families import Gaussian, Point, Product
from lamu.objective import BatchLoss, Objective, Weights
from lamu.objective.curvature import GaussNewton
from lamu.operators import Dense
from lamu.posterior import Posterior
from lamu.predictives import ClosedForm
from lamu.protocol import Choices, Info, Traits
from lamu.record import record
from lamu.rule import gaussian_step
from lamu.typing import RandomKey

__all__ = ["Conjugate", "ConjugateState", "conjugate"]


@record
class ConjugateState:
    """The belief after the rows seen so far.

    Attributes:
        belief: q, exact for those rows.
        evidence: the log of the tempered joint's integral so far, in nats.
        network_state: the network's state.

    Examples:
        >>> from lamu.algorithms.closed_form.conjugate import ConjugateState
        >>> ConjugateState(belief=None, evidence=0.0, network_state={}).evidence
        0.0
    """

    belief: Any
    evidence: Any
    network_state: Any


@record
class Conjugate:
    """The algorithm that `conjugate` makes.

    Examples:
        >>> import lamu
        >>> lamu.algorithms.conjugate().traits.batching
        'once'
    """

    @property
    def traits(self) -> Traits:
        """Every row exactly once, on a linear-Gaussian model."""
        return Traits(batching="once", needs=("linear-Gaussian", "Gaussian prior"), network_state=False)

    @property
    def choices(self) -> Choices:
        """The row of the table."""
        return Choices("Gaussian, dense precision", "Exact", "none needed")

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> ConjugateState:
        """Returns the prior as a belief, tempered as the objective says."""
        params, network_state = objective.model.init(key, batch)
        _require_conjugate(objective, params)
        weights = params["network"]
        known = Weights().conjugate_prior(objective, weights)
        if known is None:
            name = type(objective.model.prior).__name__
            raise TypeError(f"conjugate() needs a Gaussian prior, not {name}; use nuts(), laplace() or von()")
        mean, precision = known
        prior = Gaussian(mean, Dense.from_diagonal(tree.scale(precision, objective.concentration)))
        # The prior to the power 1/T is no normalised density: its integral is where the evidence starts.
        peak = objective.model.log_prior({"network": mean, "likelihood": {}}) / objective.temperature
        return ConjugateState(prior, peak + _log_volume(prior), network_state)

    def step(
        self, key: RandomKey, state: ConjugateState, batch: Batch, objective: Objective
    ) -> tuple[ConjugateState, Info]:
        """Returns the belief after the batch's rows: the old belief is the prior, and the batch all the data."""
        alone = replace(objective, data_size=jnp.maximum(batch.count, 1))
        loss = BatchLoss(alone, batch, state.network_state, Weights(), {}, conjugate=True)
        old = state.belief
        at = Exact().evaluate(key, old, loss, GaussNewton(), Dense)
        # An empty batch (all padding) has no rows to say anything.
        total = batch.count / objective.temperature
        target = jax.tree.map(jnp.add, at.curvature.scale(total), old.precision)
        new = gaussian_step(old, tree.scale(at.gradient, total), target, rate=1.0)
        away = tree.add(new.mean, old.mean, -1.0)
        energy = total * loss.value(new.mean, {}, None)[0] + tree.dot(away, old.precision.matvec(away)) / 2
        evidence = state.evidence - energy + _log_volume(new) - _log_volume(old)
        return ConjugateState(new, evidence, state.network_state), Info(loss=at.value)

    def posterior(
        self, key: RandomKey, state: ConjugateState, objective: Objective, data: Any, trace: Any
    ) -> Posterior:
        """Returns the exact posterior, with its evidence."""
        belief = Product({"network": state.belief, "likelihood": Point({})})
        return Posterior(objective.model, belief, state.network_state, ClosedForm(), key, evidence=state.evidence)


def conjugate() -> Conjugate:
    r"""Exact Bayesian linear regression, one pass over the data.

    \[ S \leftarrow S + \tfrac1T \sum_i J_i^\top \Lambda_i J_i, \qquad
       m \leftarrow m - S^{-1} \tfrac1T \sum_i \nabla\ell_i(m) \]

    for every batch of rows, from the prior on: the rule with ρ = 1 and exact expectations, where the prior is the
    posterior of the rows before. Any order and any batches give the same posterior. One Jacobian and one factorisation
    a batch.

    Departures from the rule: none.

    Returns:
        The algorithm. Its posterior is the dense Gaussian, with the exact evidence.

    Raises:
        TypeError: (when it runs) for a network that is not linear in its weights, a likelihood that is not Gaussian or
            whose noise is learned, or a prior that is not Gaussian.

    Source: Khan & Rue (2021), section 5.1; Bishop (2006), equations 3.50 to 3.54.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.7)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> round(float(posterior.predict(x).interval(0.9)[0][0]))
        116
    """
    return Conjugate()


def _log_volume(belief: Gaussian) -> Any:
    dimension = tree.dimension(belief.mean)
    return (dimension * math.log(2 * math.pi) - belief.precision.logdet(belief.mean)) / 2


def _require_conjugate(objective: Objective, params: Any) -> None:
    model = objective.model
    if not model.network.linear:
        name = type(model.network).__name__
        raise TypeError(
            f"conjugate() needs a network that is linear in its weights, not {name}; use laplace() or ivon()"
        )
    if not model.likelihood.quadratic:
        name = type(model.likelihood).__name__
        raise TypeError(f"conjugate() needs a Gaussian likelihood, not {name}; use laplace(), von() or nuts()")
    if jax.tree.leaves(params["likelihood"]):
        raise TypeError(
            "conjugate() needs a known noise, Gaussian(scale=...); with a learned one use laplace() or nuts()"
        )
