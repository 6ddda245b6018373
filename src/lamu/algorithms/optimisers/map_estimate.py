"""The most probable parameters, by any optax optimiser."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu import tree
from lamu.algorithms.optax_defaults import optimiser_or
from lamu.algorithms.optax_step import optax_step
from lamu.data.batch import Batch
from lamu.families import Point
from lamu.objective import AllParameters, BatchLoss, Objective
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.protocol import Choices, Info, Runnable, Traits
from lamu.record import record, static
from lamu.typing import Params, RandomKey

__all__ = ["MapEstimate", "MapState", "map_estimate"]


@record
class MapState:
    """Parameters, the optimiser's state and the network's."""

    params: Params  # all free parameters
    optimizer: Any  # the optax state
    network_state: Any


@record
class MapEstimate(Runnable):
    """The algorithm that `map_estimate` makes."""

    optimizer: Any = static()  # an optax gradient transformation

    @property
    def traits(self) -> Traits:
        # Minibatches, as long as the caller says.
        return Traits()

    @property
    def choices(self) -> Choices:
        return Choices("Gaussian, fixed covariance", "Delta", "none", departures=("whatever the optimiser adds",))

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> MapState:
        # Returns the network's initial parameters and the optimiser's first state.
        params, network_state = objective.model.init(key, batch)
        return MapState(params, self.optimizer.init(params), network_state)

    def step(self, key: RandomKey, state: MapState, batch: Batch, objective: Objective) -> tuple[MapState, Info]:
        # Returns the state after one update.
        loss = BatchLoss(objective, batch, state.network_state, AllParameters(), {})
        at = loss.gradient(state.params, key)
        again = lambda params: loss.value(params, {}, key)[0]
        params, optimizer = optax_step(self.optimizer, at.coordinates, state.optimizer, state.params, at.value, again)
        norm = jnp.sqrt(tree.dot(at.coordinates, at.coordinates))
        return MapState(params, optimizer, at.network_state), Info(at.value, norm)

    def posterior(self, key: RandomKey, state: MapState, objective: Objective, data: Any, trace: Any) -> Posterior:
        return Posterior(
            objective.model, Point(state.params), state.network_state, Sampled(), key, temperature=objective.temperature
        )


def map_estimate(optimizer: Any = None) -> MapEstimate:
    r"""The most probable parameters, \(\arg\min_\theta \bar\ell(\theta)\), by an optax optimiser.

    \[ \theta \leftarrow \theta + \mathrm{update}\big(\nabla\bar\ell(\theta)\big) \]

    on minibatches, with the prior in the loss. One gradient a step, and what the optimiser adds (L-BFGS with a line
    search evaluates the loss several times; give it the whole data as one batch).

    Departures from the rule: whatever the optimiser adds to gradient descent.

    Args:
        optimizer: an optax gradient transformation; `optax.adam(1e-3)` where none is given.

    Returns:
        The algorithm. Its posterior is the point θ.

    Raises:
        TypeError: for something that is no gradient transformation.

    Source: Khan & Rue (2021), section 1.3.1, for the gradient; optax names the paper of each optimiser.

    Examples:
        >>> import lamu, optax
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=55.0)).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), lamu.algorithms.map_estimate(optax.lbfgs()), steps=20, batch_size=442)
        >>> bool(fit.history["residual"][-1] < 1e-3)
        True
    """
    optimizer = optimiser_or(optimizer, "adam", 1e-3)
    return MapEstimate(optimizer=optimizer)
