"""The squares of the single rows' gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu.data.batch import Batch
from lamu.families import Gaussian
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import Evaluation
from lamu.objective.curvature.reader import squares_and_gradient
from lamu.operators import Diagonal
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["SquaredGradients"]


@record
class SquaredGradients:
    r"""The mean over rows of squared gradients, in the belief's structure.

    \[ H \approx \sum_i r_i\, g_i g_i^\top, \qquad g_i = -\nabla \log p(y_i \mid x_i, \theta) \]

    with \(r_i\) what the row counts in the mean. Unlike the squared minibatch gradient it is linear in the rows, so it
    does not depend on the batch size; it is positive always, and near a good fit it is close to the Fisher information.
    It covers the likelihood alone. Cost: for the diagonal a second backward pass and a product a layer, without a
    single row's gradient held (`lamu.objective.curvature.reader`); for other structures one gradient a row, \(B D\)
    numbers of memory.

    Raises:
        TypeError: for a network with a state, whose rows are not independent in training mode, and for a prior that is
            not Gaussian, which has no share in a row.

    Source: Khan et al. (2018), section 4 (VOGN); Khan & Rue (2021), section 4.4 (OGN).

    Examples:
        >>> from lamu.objective.curvature import SquaredGradients
        >>> SquaredGradients()
        SquaredGradients()
    """

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        """Returns value, gradient and the mean of the rows' squares."""
        if jax.tree.leaves(loss.network_state):
            raise TypeError("squares of single rows need a network without a state (batch statistics); use ivon()")
        if not loss.conjugate:
            raise TypeError("squares of single rows need a Gaussian prior, which enters the belief exactly; use ivon()")
        at = loss.gradient(theta, key)
        # The power of the likelihood multiplies the curvature once, as it does any Fisher information, not squared.
        plain = replace(loss.objective, likelihood_power=1.0)

        def row(theta: Params, example: tuple[Array, Array, Array | None]) -> Array:
            x, y, offset = example
            one = Batch.of(x[None], y[None], None if offset is None else offset[None])
            one = jax.tree.map(jnp.asarray, one)
            alone = BatchLoss(plain, one, loss.network_state, loss.space, loss.rest, conjugate=True)
            return alone.value(theta, loss.rest, key)[0]

        examples = (loss.batch.x, loss.batch.y, loss.batch.offset)
        factor = loss.objective.row_factor(loss.batch)
        if structure is Diagonal:
            square = Diagonal(squares_and_gradient(row, theta, examples, factor.astype(at.value.dtype))[2])
            return Evaluation(at.value, at.coordinates, at.rest, square, at.network_state)
        rows = jax.vmap(jax.grad(row), in_axes=(None, 0))(theta, examples)
        rows = jax.tree.map(lambda leaf: jnp.where(_like(factor > 0, leaf), leaf, jnp.zeros_like(leaf))[:, None], rows)
        square = structure.from_jacobian(rows, factor[:, None, None])
        return Evaluation(at.value, at.coordinates, at.rest, square, at.network_state)


def _like(rows: Array, leaf: Array) -> Array:
    return rows.reshape(-1, *[1] * (leaf.ndim - 1))
