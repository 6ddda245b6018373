"""Gradient estimators of stochastic-gradient samplers: minibatches, control variates, and their variance."""

# A gradient estimator gets a batch and the objective, and has a state within the sampler's. One that needs all the data
# takes them in a pass over the batches of one epoch, during which the chain may have to rest.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import number, require, require_whole_field
from lamu.data.batch import Batch
from lamu.objective import AllParameters, BatchLoss, Objective
from lamu.objective.curvature.interface import row_losses
from lamu.objective.curvature.reader import squares_and_gradient
from lamu.objective.objective import num_chunks
from lamu.record import record, static
from lamu.typing import Array, Number, Params, State

__all__ = [
    "ControlVariates",
    "Found",
    "GradientEstimate",
    "KnownNoise",
    "Minibatch",
    "NoNoise",
    "RowNoise",
    "mean_loss",
    "noise_of",
]


def mean_loss(objective: Objective, batch: Batch, network_state: State) -> Callable[[Params], Array]:
    r"""Returns the mean loss on a batch as a function of free parameters; the target is \(\exp(-\kappa\bar\ell)\)."""
    # The network is in evaluation mode, with its initial state: a density over parameters has no batch statistics. A
    # density's Jacobian is not tempered, as for all samplers.
    model = objective.model

    def value(params: Params) -> Array:
        parts = num_chunks(objective.model, batch, network_state, params)
        loss = objective.mean_loss(params, batch, network_state, parts=parts)[0]
        if not model.transforms:
            return loss
        volume = objective.untempered_volume(params).astype(loss.dtype)
        return loss - volume / tree.cast(jnp.asarray(objective.concentration), loss)

    return value


@dataclass(frozen=True)
class Found:
    """Result of a gradient estimator: the mean loss, its gradient, the new state, and whether the chain may move."""

    value: Array
    gradient: Params
    memory: State
    moves: Array | None = None


@record
class Minibatch:
    """The gradient of the batch: one gradient a step, without a state."""

    def init(self, position: Params) -> State:
        """Returns nothing."""
        return {}

    def __call__(
        self, memory: State, position: Params, batch: Batch, objective: Objective, network_state: State
    ) -> Found:
        """Returns the batch's own gradient."""
        value, gradient = jax.value_and_grad(mean_loss(objective, batch, network_state))(position)
        return Found(value, gradient, memory)


@record
class ControlVariates:
    r"""Control variates: the batch gradient, minus that at a reference \(\tilde\theta\), plus the full one there.

    \[ \hat g(\theta) = \nabla\bar\ell_B(\theta) - \nabla\bar\ell_B(\tilde\theta) + \nabla\bar\ell(\tilde\theta) \]

    Unbiased, with a variance of the order of \(\lVert\theta - \tilde\theta\rVert^2\) instead of a constant: the noise
    of batches vanishes near the reference. The full gradient is accumulated over one pass of batches, in which the
    chain rests at its reference (draws in this pass repeat a point); then it moves for `period` passes, and its
    position becomes the next reference. It takes two gradients a step, of which both are needed only in moving.

    Attributes:
        period: the number of passes for one reference; None to keep the first one, for chains that start at a mode
            (`start=` an optimiser's posterior).

    Raises:
        ValueError: for a period below one pass.

    Source: Dubey, Reddi, Póczos, Smola, Xing & Williamson (2016), algorithm 1 (SVRG-LD); Baker, Fearnhead, Fox & Nemeth
    (2019), equation 6, for a reference that stays.

    Examples:
        >>> from lamu.mcmc.gradients import ControlVariates
        >>> sorted(ControlVariates(period=5).init({"w": 1.0}))
        ['full', 'reference', 'rows']
    """

    period: int | None = static(default=10)

    def __post_init__(self) -> None:
        if self.period is not None:
            require_whole_field(self, "period")

    def init(self, position: Params) -> State:
        """Returns the start as the reference, with an empty sum."""
        # A copy, since a run must not donate the same array twice.
        rows = jnp.zeros((), jnp.result_type(float))
        return {"reference": tree.copied(position), "full": tree.zeros_like(position), "rows": rows}

    def __call__(
        self, memory: State, position: Params, batch: Batch, objective: Objective, network_state: State
    ) -> Found:
        """Returns the controlled gradient; while the pass at the reference is incomplete, the chain must not move."""
        loss = jax.value_and_grad(mean_loss(objective, batch, network_state))
        size = jnp.asarray(objective.data_size, jnp.result_type(float))
        # Half a row allows for rounding, where N is not an integer.
        if self.period is None:
            begins = jnp.asarray(False)
        else:
            begins = memory["rows"] >= (1 + self.period) * size - 0.5
        choose = lambda a, b: jax.tree.map(lambda x, y: jnp.where(begins, x, y), a, b)
        reference = choose(position, memory["reference"])
        full = choose(tree.zeros_like(position), memory["full"])
        rows = jnp.where(begins, 0.0, memory["rows"])
        gathering = rows < size - 0.5
        value, here = loss(position)
        there = loss(reference)[1]
        count = batch.count.astype(rows.dtype)
        share = jnp.where(gathering, count / size, 0.0)
        controlled = jax.tree.map(lambda g, r, f: g - r + f, here, there, full)
        memory = {"reference": reference, "full": tree.add(full, there, share), "rows": rows + count}
        return Found(value, controlled, memory, ~gathering)


GradientEstimate = Minibatch | ControlVariates


@record
class NoNoise:
    """No estimate: the noise of batches is ignored, and heats the chain a little."""

    def __call__(self, position: Params, batch: Batch, objective: Objective, network_state: State) -> None:
        """Returns None."""
        return None


@record
class KnownNoise:
    """A given variance of a minibatch gradient of the mean loss, a number for every coordinate."""

    variance: Number  # \(\hat V\)

    def __post_init__(self) -> None:
        require(
            self.variance >= 0, f"noise_estimate={self.variance!r} is not a variance; give zero or a positive number"
        )

    def __call__(self, position: Params, batch: Batch, objective: Objective, network_state: State) -> Params:
        """Returns the number at every coordinate."""
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, self.variance), position)


@record
class RowNoise:
    r"""The variance of a minibatch gradient, estimated at every step from the gradients of rows.

    \[ \hat V = \frac1B \Big(1 - \frac BN\Big) \Big(\frac1B \sum_i g_i^2 - \bar g^2\Big) \]

    Its cost is that of `lamu.objective.curvature.SquaredGradients`, a second pass with products, without storing the
    gradients of rows. It is the variance of independently drawn batches. The loop shuffles, so that the noise of an
    epoch's batches sums to zero and heats slow directions much less: there the estimate subtracts too much.

    Raises:
        TypeError: for a network whose rows interact.

    Source: Ahn, Korattikara & Welling (2012), section 4; Chen, Fox & Guestrin (2014), section 3.3, for its use.

    Examples:
        >>> from lamu.mcmc import RowNoise
        >>> RowNoise()
        RowNoise()
    """

    def __call__(self, position: Params, batch: Batch, objective: Objective, network_state: State) -> Params:
        """Returns the estimate, with the position's leaves."""
        loss = BatchLoss(objective, batch, network_state, AllParameters(), {}, conjugate=True)
        row, rows, weights = row_losses(loss, None)
        _, (gradient, _), (squares, _) = squares_and_gradient(row, (position, {}), rows, weights, (True, False))
        count = batch.count
        finite = jnp.maximum(1.0 - count / tree.cast(objective.data_size, count), 0.0) / jnp.maximum(count, 1.0)

        def variance(square: Array, g: Array) -> Array:
            power = tree.cast(objective.likelihood_power, g)
            return tree.cast(finite, g) * jnp.maximum(power * square - g * g, 0.0)

        return jax.tree.map(variance, squares, gradient)


def noise_of(estimate: Number | Callable[..., Params] | None) -> Callable[..., Params | None]:
    """Returns an estimate of the gradient's variance as an object."""
    if estimate is None:
        return NoNoise()
    if (variance := number(estimate)) is not None:
        return KnownNoise(variance)
    if callable(estimate):
        return estimate
    raise TypeError(f"noise_estimate={estimate!r} is neither a number nor an estimate; give for instance RowNoise()")
