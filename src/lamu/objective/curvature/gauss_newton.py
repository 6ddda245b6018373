"""The generalised Gauss–Newton matrix."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.families import Gaussian
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import Evaluation
from lamu.record import record
from lamu.typing import Params, RandomKey

__all__ = ["GaussNewton"]


@record
class GaussNewton:
    r"""The Fisher information of the outputs, pulled back to the weights.

    \[ H = \sum_i r_i\, J_i^\top \Lambda_i J_i, \qquad J_i = \partial f(\theta, x_i)/\partial\theta \]

    with \(\Lambda_i\) the Fisher information of row i about f, and \(r_i\) what the row counts in the mean.

    It is the Hessian of the model linearised in θ, positive semi-definite always, and equal to the expected Fisher
    information. A prior that is a part of the loss adds its own diagonal curvature. Where the network has a state, the
    Jacobian is taken in evaluation mode. Cost: one backward pass an output and row, and \(B K D\) numbers of memory.

    Source: Schraudolph (2002); Martens (2020), section 8.

    Examples:
        >>> from lamu.objective.curvature import GaussNewton
        >>> GaussNewton()
        GaussNewton()
    """

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        """Returns value, gradient and Gauss–Newton matrix."""
        at = loss.gradient(theta, key)
        return Evaluation(at.value, at.coordinates, at.rest, self.matrix(loss, theta, structure), at.network_state)

    def matrix(self, loss: BatchLoss, theta: Params, structure: Any) -> Any:
        """Returns the matrix alone, in the given structure."""
        information = loss.information(theta, loss.outputs(theta))
        likelihood = structure.from_jacobian(loss.jacobian(theta), information)
        prior = loss.prior_curvature(theta)
        return likelihood if prior is None else jax.tree.map(jnp.add, likelihood, structure.from_diagonal(prior))
