"""The mean loss on one batch, as a function of the belief's coordinates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from lamu import tree
from lamu.data.batch import Batch, with_offset
from lamu.objective.objective import (
    AllParameters,
    NetworkParameters,
    NonGaussian,
    Objective,
    num_chunks,
    outputs_and_row_jacobian,
)
from lamu.operators import Diagonal, Scalar
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey, State

__all__ = ["BatchLoss", "Gradient"]


@record
class Gradient:
    """The mean loss at one point, with its gradient.

    Attributes:
        value: the mean loss in nats a row.
        coordinates: its gradient in the belief's coordinates.
        rest: its gradient in the remaining parameters (dispersions).
        network_state: the network's new state.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.objective import Gradient
        >>> float(Gradient(value=jnp.array(1.0), coordinates={}, rest={}, network_state={}).value)
        1.0
    """

    value: Array
    coordinates: Params
    rest: Params
    network_state: State


@record
class BatchLoss:
    r"""\(\bar\ell\) on one batch, with the remaining parameters and the network's state fixed.

    Attributes:
        objective: the objective.
        batch: the rows.
        network_state: the network's state before the pass.
        space: the coordinates of the argument.
        rest: the remaining parameters.
        conjugate: whether the weights' prior is omitted, because it enters the belief exactly.
        remainder: the part of the prior that is in the loss nevertheless, where only some leaves are Gaussian; None
            where there is none.

    Examples:
        >>> import jax, lamu
        >>> from lamu.objective import BatchLoss, Objective, NetworkParameters
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=1.0))
        >>> batch = lamu.data.Batch.of(jax.numpy.ones((4, 3)), jax.numpy.zeros(4))
        >>> params, state = model.init(jax.random.key(0), batch)
        >>> loss = BatchLoss(Objective(model, 4), batch, state, NetworkParameters(), rest={}, conjugate=True)
        >>> loss.gradient(params["network"], None).value.shape
        ()
    """

    objective: Objective
    batch: Batch
    network_state: State
    space: AllParameters | NetworkParameters
    rest: Params
    conjugate: bool = static(default=False)
    remainder: NonGaussian | None = None

    @classmethod
    def beside(
        cls,
        prior: Any,
        objective: Objective,
        batch: Batch,
        network_state: State,
        space: AllParameters | NetworkParameters,
        rest: Params,
        like: Params,
    ) -> BatchLoss:
        """Returns the loss for an algorithm that adds the Gaussian part of the prior exactly.

        Args:
            prior: that part, from `NetworkParameters.conjugate_prior`; None where the loss contains all of the prior.
            objective: the loss.
            batch: the rows.
            network_state: the network's state.
            space: the coordinates of the argument.
            rest: the remaining parameters.
            like: coordinates, for their structure.
        """
        if prior is None:
            return cls(objective, batch, network_state, space, rest)
        remainder = NonGaussian.of(objective.model.free_prior, like)
        return cls(objective, batch, network_state, space, rest, conjugate=True, remainder=remainder)

    @property
    def has_prior(self) -> bool:
        """Whether a prior of some of the weights is a part of this loss."""
        return not self.conjugate or self.remainder is not None

    def value(self, coordinates: Params, rest: Params, key: RandomKey | None) -> tuple[Array, State]:
        """Returns the mean loss in nats a row and the network's new state."""
        params = self.space.join(coordinates, rest)
        parts = self.parts(coordinates, key)
        value, state = self.objective.negative_log_likelihood(
            params, self.batch, self.network_state, key, train=True, parts=parts
        )
        if not self.conjugate:
            return value + self.objective.negative_log_prior(params).astype(value.dtype), state
        dispersions = self.objective.model.dispersion_log_prior(params["likelihood"]) / self.objective.data_size
        value = value - dispersions.astype(value.dtype)
        return value if self.remainder is None else value + self._surprise(coordinates, rest).astype(value.dtype), state

    def gradient(self, coordinates: Params, key: RandomKey | None) -> Gradient:
        """Returns the mean loss and its gradient, one backward pass."""
        (value, state), (ours, rest) = jax.value_and_grad(self.value, argnums=(0, 1), has_aux=True)(
            coordinates, self.rest, key
        )
        return Gradient(value=value, coordinates=ours, rest=rest, network_state=state)

    def of_the_data(self) -> BatchLoss:
        """Returns the same loss without the weights' prior."""
        return replace(self, conjugate=True, remainder=None)

    def prior(self, coordinates: Params) -> tuple[Array, Params]:
        r"""Returns \(-\log p(\theta) / N\) of the weights, and its gradient; zero where this loss omits the prior."""
        if not self.has_prior:
            leaves = jax.tree.leaves(coordinates)
            return jax.numpy.zeros((), jax.numpy.result_type(*leaves)), tree.zeros_like(coordinates)
        return jax.value_and_grad(self._surprise)(coordinates, self.rest)

    def prior_curvature(self, coordinates: Params) -> Params | None:
        r"""Returns the diagonal of \(-\nabla^2 \log p(\theta) / N\); None where this loss omits the prior.

        Weights are independent under the supported priors, so that one product with ones gives the diagonal Hessian.

        Raises:
            TypeError: for a prior whose Hessian is not diagonal.
        """
        if not self.has_prior:
            return None
        if self.remainder is None:
            weights = self.space.join(coordinates, self.rest)["network"]
            gaussian = self.objective.model.free_prior.gaussian(weights)
            if gaussian is not None and not isinstance(gaussian.precision, Diagonal | Scalar):
                raise TypeError(
                    f"a prior with a {type(gaussian.precision).__name__} precision has no diagonal curvature to add; "
                    "use laplace(), conjugate() or ivon(), or a prior from a diagonal posterior"
                )

        def negative_log_prior(theta: Params) -> Array:  # also of the dispersions, where they are coordinates
            dispersions = self.space.join(theta, self.rest)["likelihood"]
            own = self.objective.model.dispersion_log_prior(dispersions) / self.objective.data_size
            weights = self._surprise(theta, self.rest)
            return weights - own.astype(weights.dtype)

        ones = jax.tree.map(jax.numpy.ones_like, coordinates)
        return jax.jvp(jax.grad(negative_log_prior), (coordinates,), (ones,))[1]

    def outputs(self, coordinates: Params) -> Array:
        """Returns f(θ, x) of the batch's rows in evaluation mode, offset included, shape `[batch, outputs]`."""
        return with_offset(self._outputs(coordinates, self.batch.x), self.batch.offset)

    def jacobian(self, coordinates: Params) -> Params:
        """Returns ∂f/∂θ for every row, leaves `[batch, outputs, ...]`, in evaluation mode."""
        return self.outputs_and_jacobian(coordinates)[1]

    def outputs_and_jacobian(self, coordinates: Params) -> tuple[Array, Params]:
        """Returns f `[batch, outputs]`, without an offset, and the same Jacobian, from one forward pass."""
        of_row = lambda x: outputs_and_row_jacobian(lambda theta: self.of_row(theta, x), coordinates)
        return jax.vmap(of_row)(self.batch.x)

    def of_row(self, coordinates: Params, x: Array) -> Array:
        """Returns f(θ, x) of one row without a batch axis, in evaluation mode and without an offset, `[outputs]`."""
        return self._outputs(coordinates, x[None])[0]

    def parts(self, coordinates: Params, key: RandomKey | None, runs: int = 1) -> int:
        """Returns the number of chunks of rows in a pass, so that each fits in the cache; mostly one.

        Args:
            coordinates: the coordinates.
            key: for random layers.
            runs: the number of gradients in memory together.
        """
        asked = self.objective.microbatches(self.batch)
        if asked:
            return asked
        params = self.space.join(coordinates, self.rest)
        return num_chunks(self.objective.model, self.batch, self.network_state, params, runs, key, train=True)

    def _surprise(self, coordinates: Params, rest: Params) -> Array:
        r"""Returns the part of \(-\log p(\theta) / N\) of the weights in this loss."""
        prior = self.objective.model.free_prior if self.remainder is None else self.remainder
        return -prior.log_prob(self.space.join(coordinates, rest)["network"]) / self.objective.data_size

    def _outputs(self, coordinates: Params, x: Array) -> Array:
        params = self.space.join(coordinates, self.rest)
        return self.objective.model.outputs(params, self.network_state, x)[0]
