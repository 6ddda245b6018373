"""The most probable parameters in a measure that no choice of parameters changes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.algorithms.optax_defaults import optimiser_or
from lamu.algorithms.optax_step import optax_step
from lamu.algorithms.optimisers.map_estimate import MapState
from lamu.data.batch import Batch
from lamu.families import Point
from lamu.objective import AllParameters, BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import GaussNewton
from lamu.operators import Dense
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.protocol import Choices, Info, Runnable, Traits
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["InvariantMap", "invariant_map", "log_volume"]


@record
class InvariantMap(Runnable):
    """The algorithm that `invariant_map` makes."""

    optimizer: Any = static()  # an optax gradient transformation

    @property
    def traits(self) -> Traits:
        # All the data at every step: the information is that of all rows.
        return Traits(batching="full")

    @property
    def choices(self) -> Choices:
        departures = ("half the log-determinant of the Fisher information", "whatever the optimiser adds")
        return Choices("Gaussian, fixed covariance", "Delta", "none", departures=departures)

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> MapState:
        # Returns the network's initial parameters and the optimiser's first state.
        params, network_state = objective.model.init(key, batch)
        return MapState(params, self.optimizer.init(params), network_state)

    def step(self, key: RandomKey, state: MapState, batch: Batch, objective: Objective) -> tuple[MapState, Info]:
        # Returns the state after one update.
        loss = BatchLoss(objective, batch, state.network_state, AllParameters(), {})

        def criterion(params: Params) -> tuple[Array, Any]:
            value, network_state = loss.value(params, {}, key)
            volume = log_volume(objective, batch, state.network_state, params) / (2 * objective.data_size)
            return value + volume.astype(value.dtype), network_state

        (value, network_state), gradient = jax.value_and_grad(criterion, has_aux=True)(state.params)
        again = lambda params: criterion(params)[0]
        params, optimizer = optax_step(self.optimizer, gradient, state.optimizer, state.params, value, again)
        norm = jnp.sqrt(tree.dot(gradient, gradient))
        return MapState(params, optimizer, network_state), Info(value, norm)

    def posterior(self, key: RandomKey, state: MapState, objective: Objective, data: Any, trace: Any) -> Posterior:
        return Posterior(
            objective.model, Point(state.params), state.network_state, Sampled(), key, temperature=objective.temperature
        )

    def complaint(self, state: MapState) -> str:
        # Returns what a criterion that is not finite means, and the remedy.
        return (
            "the Fisher information of the data has no finite log-determinant there: some direction of the parameters "
            "changes no prediction (more weights than the data tell apart, or dead units); use map_estimate(), or a "
            "smaller network"
        )


def log_volume(objective: Objective, batch: Batch, network_state: Any, params: Params) -> Array:
    r"""Returns \(\log\det F(\theta)\) of all parameters, F the Fisher information of the data."""
    # Weights have the generalised Gauss–Newton matrix \(\sum_i J_i^\top \Lambda_i J_i\), which is the Fisher
    # information; dispersions, which are orthogonal to them, N times their own.
    weights, rest = NetworkParameters().split(params)
    loss = BatchLoss(objective, batch, network_state, NetworkParameters(), rest, conjugate=True)
    matrix = GaussNewton().matrix(loss, weights, Dense).matrix * objective.data_size
    # Positive by construction; a Cholesky factor says so where rounding would not, by NaN.
    found = 2 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(matrix))))
    if jax.tree.leaves(rest):
        information = objective.model.dispersion_information(rest)
        for leaf in jax.tree.leaves(information):
            found = found + jnp.sum(jnp.log(leaf * objective.data_size)).astype(found.dtype)
    return found


def invariant_map(optimizer: Any = None) -> InvariantMap:
    r"""The most probable parameters by a density that does not depend on how the model is written.

    \[ \hat\theta = \arg\max_\theta\; \log p(\theta \mid D) - \tfrac12 \log\det F(\theta) \]

    with F the Fisher information of the data. In other parameters φ the posterior's density gains the factor
    \(|\det \partial\theta / \partial\varphi|\), and so does \(\sqrt{\det F}\): their ratio, the density with respect to
    Jeffreys' measure, has its maximum at the same distribution of the data, where that of the density alone moves.

    A step takes the gradient of the determinant through the Jacobian of all rows: \(N K D\) numbers of memory and
    \(D^3\) operations, for small models whose parameters the data tell apart.

    Departures from the rule: the volume of the Fisher information, and whatever the optimiser adds to gradient descent.

    Args:
        optimizer: an optax gradient transformation; `optax.lbfgs()` where none is given.

    Returns:
        The algorithm. Its posterior is the point θ. Every step sees all the data.

    Raises:
        TypeError: for something that is no gradient transformation.

    Source: Druilhet & Marin (2007); Khan & Rue (2021) for the plain mode.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.optimisers.invariant_map import invariant_map
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x[:, :4], y)
        >>> fit = lamu.fit(model, (x[:, :4], y), invariant_map(), steps=15)
        >>> lamu.scores.accuracy(fit.posterior.predict(x[:, :4]), y) > 0.85
        True
    """
    optimizer = optimiser_or(optimizer, "lbfgs")
    return InvariantMap(optimizer=optimizer)
