"""Curvatures from per-example gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.families import Gaussian
from lamu.likelihoods import Likelihood
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import Curvature, Evaluation, OutputHessian, slopes
from lamu.objective.curvature.kronecker_factors import AtOutputs
from lamu.objective.curvature.products import dispersion_prior, row_losses
from lamu.objective.curvature.reader import squares_and_gradient
from lamu.objective.curvature.reader.gradient_matrix import gradient_matrix
from lamu.objective.microbatching import rows_in_parts
from lamu.operators import AnyStructure, Diagonal, LowRank
from lamu.operators.kronecker import by_factors
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey, Targets

__all__ = ["LowRankGradients", "SquaredGradients"]


@record
class SquaredGradients(Curvature):
    """The mean over rows of squared gradients, in the belief's structure."""

    # \[ H \approx \sum_i r_i\, g_i g_i^\top, \qquad g_i = -\nabla \log p(y_i \mid x_i, \theta) \]
    #
    # with \(r_i\) the row's weight in the mean. Unlike the squared minibatch gradient it is linear in the rows, so that
    # it does not depend on the batch size. It is always positive semi-definite, and near a good fit it is close to the
    # Fisher information. It is of the likelihood alone, and linear in the likelihood's power. Cost: for the diagonal
    # and for Kronecker factors one backward pass, which also gives value and gradient, and one or two more products per
    # layer, without per-example gradients (`lamu.objective.curvature.reader`). Other structures take a second pass and
    # one gradient per row, and store \(B D\) numbers. Random layers have separate noise in every row.
    #
    # Source: Khan et al. (2018), section 4 (VOGN); Khan & Rue (2021), section 4.4 (OGN); Zhang et al. (2018), section
    #     3.3, for Kronecker factors.

    def accumulates(self, structure: AnyStructure) -> str:
        return "gradient" if structure is Diagonal else "rows"

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        if by_factors(structure):
            point = AtOutputs(loss, theta, structure, key)
            return point.evaluation(*point.of_the_gradient())
        if loss.has_prior:
            raise TypeError("squares of single rows need a Gaussian prior, which enters the belief exactly; use ivon()")
        row, rows, weights = row_losses(loss, key)
        if structure is Diagonal:
            params = (theta, loss.rest)
            read = lambda rows, weights: squares_and_gradient(row, params, rows, weights, (True, False))
            # Inputs and cotangents are in memory together: about as much as two gradients.
            parts = loss.parts(theta, key, runs=2)
            value, (gradient, rest), (squares, _) = rows_in_parts(read, rows, weights, parts)
            prior, of_prior = dispersion_prior(loss, theta)
            rest = tree.add(rest, of_prior)
            return Evaluation(value + prior.astype(value.dtype), gradient, rest, Diagonal(squares), loss.network_state)
        point = loss.gradient(theta, key)
        single = jax.vmap(jax.grad(lambda theta, example: row((theta, loss.rest), example)), in_axes=(None, 0))
        gradients = jax.tree.map(lambda leaf: leaf[:, None], single(theta, rows))
        return Evaluation.of(point, structure.from_jacobian(gradients, weights[:, None, None]))

    def output_hessian(
        self, likelihood: Likelihood, dispersion: Params, f: Array, y: Targets, weights: Array, key: RandomKey
    ) -> OutputHessian:
        # Returns the outer product of the gradient of every row.
        return OutputHessian(likelihood, dispersion, f, weights, slopes(likelihood, dispersion, f, y)[:, :, None])


@record
class LowRankGradients(Curvature):
    r"""The mean over rows of \(g_i g_i^\top\), approximated by k leading directions and an exact diagonal."""

    # \[ H \approx W W^\top + \mathrm{diag}(d), \qquad W W^\top \text{ the best rank-}k\text{ part of }
    #    \sum_i r_i\, g_i g_i^\top, \qquad d = \sum_i r_i\, g_i^2 - \mathrm{diag}(W W^\top) \]
    #
    # with \(r_i\) the row's weight in the mean. Value, gradient and the gradient in the dispersions come from the same
    # backward pass. In addition a dense layer costs a product for the diagonal, the rows' inner products and k products
    # of the backward pass, without per-example gradients. Random layers have separate noise in every row.
    #
    # Source: Mishkin et al. (2018), section 3.

    rank: int = static()  # k; at most the number of rows is used

    def __post_init__(self) -> None:
        if not isinstance(self.rank, int) or self.rank < 1:
            raise ValueError(f"LowRankGradients(rank={self.rank!r}) has no direction; ask for a rank of at least one")

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: AnyStructure, key: RandomKey | None
    ) -> Evaluation:
        if loss.has_prior:
            raise TypeError(
                "directions of per-example gradients need a Gaussian prior, which enters the belief exactly; use ivon()"
            )
        row, rows, weights = row_losses(loss, key)
        met = gradient_matrix(row, (theta, loss.rest), rows, weights, read=(True, False))
        gradient, rest = met.gradient
        prior, of_prior = dispersion_prior(loss, theta)
        root = met.leading(self.rank)[0]
        explained = LowRank(root, tree.zeros_like(theta)).diagonal(theta)
        # Negative values are rounding errors.
        left = jax.tree.map(lambda square, h: jnp.maximum(square - h, jnp.zeros_like(h)), met.squares()[0], explained)
        curvature = LowRank(root, left)
        value = met.value + prior.astype(met.value.dtype)
        return Evaluation(value, gradient, tree.add(rest, of_prior), curvature, loss.network_state)
