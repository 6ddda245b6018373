"""The Gauss–Newton matrix by labels drawn from the model."""

from __future__ import annotations

import math
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
from lamu.objective.curvature.output_curvature import OutputHessian, slopes
from lamu.objective.curvature.reader import squares_and_gradient
from lamu.objective.curvature.rows import without_padding
from lamu.operators import Diagonal
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["SampledGaussNewton"]


@record
class SampledGaussNewton(Curvature):
    """`GaussNewton` by Monte Carlo: squares of single rows' gradients, with labels drawn from the model."""

    # \[ H \approx \frac1S \sum_s \sum_i r_i\, \tilde g_{is} \tilde g_{is}^\top, \qquad
    #    \tilde g_{is} = -\nabla_\theta \log p(\tilde y_{is} \mid f(\theta, x_i)), \quad
    #    \tilde y_{is} \sim p(y \mid f(\theta, x_i)) \]
    #
    # Unbiased, and positive always. With the data's own labels in the place of the drawn ones it would be
    # `SquaredGradients`, the empirical Fisher matrix. A prior that is a part of the loss adds its own diagonal
    # curvature, and labels are drawn in evaluation mode. Cost: for the diagonal one pass over the batch a draw, beside
    # the gradient's, however many outputs there are, and the same for Kronecker factors; for other structures one
    # gradient a row too, \(B D\) numbers of memory.
    #
    # Source: Martens & Grosse (2015), section 5, for Kronecker factors; Martens (2020), section 8; Dangel, Kunstner &
    #     Hennig (2020), section 2.2 (DiagGGN-MC).

    samples: int = static(default=1)  # S, how many labels a row

    def __post_init__(self) -> None:
        if not self.samples >= 1:
            raise ValueError(f"samples={self.samples!r} labels a row show no curvature; give 1 or more")

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        # Returns value, gradient and the estimate of the Gauss–Newton matrix.
        if key is None:
            raise ValueError("SampledGaussNewton() draws labels, for which it needs a key; pass key=jax.random.key(0)")
        of_layers, of_labels = jax.random.split(key)
        if by_factors(structure):
            at = AtOutputs(loss, theta, structure, of_layers)
            keys = of_labels[None] if self.samples == 1 else jax.random.split(of_labels, self.samples)
            hessian = _of_labels(at.likelihood, at.dispersion, at.f, at.counted, keys)
            return at.evaluation(*at.pulled(hessian))
        loss = without_padding(loss)
        at = loss.gradient(theta, of_layers)
        matrix = self.matrix(loss, theta, structure, of_labels)
        return Evaluation(at.value, at.coordinates, at.rest, matrix, at.network_state)

    def output_hessian(
        self, likelihood: Likelihood, dispersion: Params, f: Array, y: Any, weights: Array, key: RandomKey
    ) -> OutputHessian:
        # Returns the mean outer product of gradients with sampled targets.
        keys = jax.random.split(key, self.samples)
        return _of_labels(likelihood, dispersion, f, likelihood.counted(dispersion, f, y, weights), keys)

    def matrix(self, loss: BatchLoss, theta: Params, structure: Any, key: RandomKey) -> Any:
        """Returns the matrix alone, in the given structure."""
        likelihood, batch = loss.objective.model.likelihood, without_padding(loss).batch
        dispersion, weights = loss.space.join(theta, loss.rest)["likelihood"], loss.objective.row_factor(batch)
        weights = likelihood.counted(dispersion, without_padding(loss).outputs(theta), batch.y, weights)

        def row(theta: Params, row: tuple[Array, Array | None, RandomKey]) -> Array:
            x, offset, key = row
            f = with_offset(loss.of_row(theta, x)[None], None if offset is None else offset[None])
            y = likelihood.sample(key, dispersion, jax.lax.stop_gradient(f))
            return -likelihood.log_prob(dispersion, f, y)[0]

        def of_draw(key: RandomKey) -> Any:
            rows = (batch.x, batch.offset, jax.random.split(key, weights.shape[0]))
            if structure is Diagonal:
                return Diagonal(squares_and_gradient(row, theta, rows, weights)[2])
            single = jax.vmap(jax.grad(row), in_axes=(None, 0))(theta, rows)
            return structure.from_jacobian(jax.tree.map(lambda leaf: leaf[:, None], single), weights[:, None, None])

        if self.samples == 1:
            found = of_draw(key)
        else:
            found = jax.tree.map(
                lambda leaf: jnp.mean(leaf, axis=0), jax.lax.map(of_draw, jax.random.split(key, self.samples))
            )
        prior = loss.prior_curvature(theta)
        return found if prior is None else tree.add(found, structure.from_diagonal(prior))


def _of_labels(likelihood: Likelihood, dispersion: Params, f: Array, weights: Array, keys: Any) -> OutputHessian:
    of_draw = lambda key: slopes(likelihood, dispersion, f, likelihood.sample(key, dispersion, f))
    found = jax.vmap(of_draw, out_axes=2)(keys)
    return OutputHessian(likelihood, dispersion, f, weights, found / math.sqrt(len(keys)))
