"""The generalised Gauss–Newton matrix."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import with_offset
from lamu.families import Gaussian
from lamu.likelihoods import Likelihood
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import Curvature, Evaluation
from lamu.objective.curvature.kronecker_factors import AtOutputs, by_factors
from lamu.objective.curvature.output_curvature import OutputHessian
from lamu.objective.curvature.reader import linearise, squares_and_gradient
from lamu.objective.curvature.reader.of_outputs import squares_of_outputs
from lamu.objective.curvature.rows import without_padding
from lamu.operators import Diagonal
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["GaussNewton"]


@record
class GaussNewton(Curvature):
    """The Fisher information of the outputs, pulled back to the weights."""

    # \[ H = \sum_i r_i\, J_i^\top \Lambda_i J_i, \qquad J_i = \partial f(\theta, x_i)/\partial\theta \]
    #
    # with \(\Lambda_i\) the Fisher information of row i about f, and \(r_i\) what the row counts in the mean.
    #
    # It is the Hessian of the model linearised in θ, positive semi-definite always, and equal to the expected Fisher
    # information. A prior that is a part of the loss adds its own diagonal curvature. Where the network has a state,
    # the Jacobian is taken in evaluation mode. Cost: for the diagonal one pass over the batch an output, without a
    # Jacobian (`lamu.objective.curvature.reader`), and as many for Kronecker factors; else one backward pass an output
    # and row, and \(B K D\) numbers of memory.
    #
    # Source: Schraudolph (2002); Martens (2020), section 8; Botev, Ritter & Barber (2017), for the Kronecker factors;
    #     Dangel, Kunstner & Hennig (2020), KFLR.

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        # Returns value, gradient and Gauss–Newton matrix.
        if by_factors(structure):
            at = AtOutputs(loss, theta, structure, key)
            return at.evaluation(*at.pulled(OutputHessian(at.likelihood, at.dispersion, at.f, at.counted)))
        at = without_padding(loss).gradient(theta, key)
        return Evaluation(at.value, at.coordinates, at.rest, self.matrix(loss, theta, structure), at.network_state)

    def output_hessian(
        self, likelihood: Likelihood, dispersion: Params, f: Array, y: Any, weights: Array, key: RandomKey
    ) -> OutputHessian:
        # Returns the Fisher information.
        return OutputHessian(likelihood, dispersion, f, likelihood.counted(dispersion, f, y, weights))

    def matrix(self, loss: BatchLoss, theta: Params, structure: Any) -> Any:
        """Returns the matrix alone, in the given structure."""
        if structure is not Diagonal:
            return self.by_jacobian(loss, theta, structure)
        loss = without_padding(loss)
        return _with_prior(Diagonal(_diagonal(loss, theta)), loss, theta)

    def by_jacobian(self, loss: BatchLoss, theta: Params, structure: Any) -> Any:
        """Returns the same matrix from the rows' Jacobians, which can be differentiated in the dispersions."""
        return self.outputs_and_matrix(loss, theta, structure)[2]

    def outputs_and_matrix(self, loss: BatchLoss, theta: Params, structure: Any) -> tuple[Array, Params, Any]:
        """Returns f `[batch, outputs]` without an offset, the rows' Jacobians and the matrix, from one forward pass."""
        loss = without_padding(loss)
        f, jacobian = loss.outputs_and_jacobian(theta)
        blocks = loss.information_blocks(theta, with_offset(f, loss.batch.offset))
        apart = lambda leaf: leaf.reshape(blocks.shape[0], blocks.shape[1], *leaf.shape[2:])
        likelihood = structure.from_jacobian(jax.tree.map(apart, jacobian), blocks)
        return f, jacobian, _with_prior(likelihood, loss, theta)


def _with_prior(likelihood: Any, loss: BatchLoss, theta: Params) -> Any:
    prior = loss.prior_curvature(theta)
    if prior is None:
        return likelihood
    return likelihood.add_diagonal(prior)


def _diagonal(loss: BatchLoss, theta: Params) -> Params:
    r"""Squares of \(\nabla_\theta\, u_{ik} \cdot f(\theta, x_i)\), \(\sum_k u_{ik} u_{ik}^\top = r_i\Lambda_i\)."""
    dispersion = loss.space.join(theta, loss.rest)["likelihood"]
    read = linearise(loss.of_row, theta, loss.batch.x)
    f = with_offset(read.outputs, loss.batch.offset)
    likelihood = loss.objective.model.likelihood
    weights = likelihood.counted(dispersion, f, loss.batch.y, loss.objective.row_factor(loss.batch))
    roots = likelihood.information_root(dispersion, f) * jnp.sqrt(weights).astype(f.dtype)[:, None, None]
    roots = jnp.moveaxis(roots, 2, 0)
    if not read.unread:
        return jax.tree.unflatten(jax.tree.structure(theta), squares_of_outputs(read, roots))

    def along(theta: Params, row: tuple[Array, Array]) -> Array:
        x, root = row
        return jnp.sum(loss.of_row(theta, x) * root)

    # One pass an output: leaves inside of loops are followed.
    total, ones = tree.zeros_like(theta), jnp.ones(roots.shape[1], roots.dtype)
    for root in roots:
        total = tree.add(total, squares_and_gradient(along, theta, (loss.batch.x, root), ones)[2])
    return total
