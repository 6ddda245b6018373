"""The squares of the single rows' gradients."""

from __future__ import annotations

from typing import Any

import jax

from lamu import tree
from lamu.families import Gaussian
from lamu.likelihoods import Likelihood
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import Curvature, Evaluation
from lamu.objective.curvature.kronecker_factors import AtOutputs, by_factors
from lamu.objective.curvature.output_curvature import OutputHessian, slopes
from lamu.objective.curvature.reader import squares_and_gradient
from lamu.objective.curvature.rows import dispersion_prior, row_losses, without_padding
from lamu.objective.microbatching import rows_in_parts
from lamu.operators import Diagonal
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["SquaredGradients"]


@record
class SquaredGradients(Curvature):
    """The mean over rows of squared gradients, in the belief's structure."""

    # \[ H \approx \sum_i r_i\, g_i g_i^\top, \qquad g_i = -\nabla \log p(y_i \mid x_i, \theta) \]
    #
    # with \(r_i\) what the row counts in the mean. Unlike the squared minibatch gradient it is linear in the rows, so
    # it does not depend on the batch size; it is positive always, and near a good fit it is close to the Fisher
    # information. It covers the likelihood alone, and the power of the likelihood once. Cost: for the diagonal and for
    # Kronecker factors one backward pass, which gives value and gradient too, and a product or two a layer beside it,
    # without a single row's gradient held (`lamu.objective.curvature.reader`); for other structures a second pass and
    # one gradient a row, \(B D\) numbers of memory. Random layers have noise of their own in every row.
    #
    # Source: Khan et al. (2018), section 4 (VOGN); Khan & Rue (2021), section 4.4 (OGN); Zhang et al. (2018), section
    #     3.3, for Kronecker factors.

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        if by_factors(structure):
            at = AtOutputs(loss, theta, structure, key)
            return at.evaluation(*at.of_the_gradient())
        if loss.has_prior:
            raise TypeError("squares of single rows need a Gaussian prior, which enters the belief exactly; use ivon()")
        row, rows, weights = row_losses(loss, key)
        if structure is Diagonal:
            params = (theta, loss.rest)
            read = lambda rows, weights: squares_and_gradient(row, params, rows, weights, (True, False))
            # Inputs and cotangents are held side by side: about what two gradients hold.
            parts = loss.parts(theta, key, runs=2)
            value, (gradient, rest), (squares, _) = rows_in_parts(read, rows, weights, parts)
            prior, of_prior = dispersion_prior(loss, theta)
            rest = tree.add(rest, of_prior)
            return Evaluation(value + prior.astype(value.dtype), gradient, rest, Diagonal(squares), loss.network_state)
        at = without_padding(loss).gradient(theta, key)
        single = jax.vmap(jax.grad(lambda theta, example: row((theta, loss.rest), example)), in_axes=(None, 0))
        gradients = jax.tree.map(lambda leaf: leaf[:, None], single(theta, rows))
        square = structure.from_jacobian(gradients, weights[:, None, None])
        return Evaluation(at.value, at.coordinates, at.rest, square, at.network_state)

    def output_hessian(
        self, likelihood: Likelihood, dispersion: Params, f: Array, y: Any, weights: Array, key: RandomKey
    ) -> OutputHessian:
        # Returns the outer product of the gradient of every row.
        return OutputHessian(likelihood, dispersion, f, weights, slopes(likelihood, dispersion, f, y)[:, :, None])
