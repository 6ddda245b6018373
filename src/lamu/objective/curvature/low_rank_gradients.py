"""The leading directions of the single rows' gradients, and the diagonal."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.families import Gaussian
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import Curvature, Evaluation
from lamu.objective.curvature.reader.gradient_matrix import gradient_matrix
from lamu.objective.curvature.rows import dispersion_prior, row_losses
from lamu.operators import LowRank
from lamu.record import record, static
from lamu.typing import Params, RandomKey

__all__ = ["LowRankGradients"]


@record
class LowRankGradients(Curvature):
    r"""The mean over rows of \(g_i g_i^\top\) by its k leading directions, with the diagonal exact."""

    # \[ H \approx W W^\top + \mathrm{diag}(d), \qquad W W^\top \text{ the best rank-}k\text{ part of }
    #    \sum_i r_i\, g_i g_i^\top, \qquad d = \sum_i r_i\, g_i^2 - \mathrm{diag}(W W^\top) \]
    #
    # with \(r_i\) what the row counts in the mean. Value, gradient and the gradient in the dispersions come from the
    # same backward pass. Beside it, a dense layer costs a product for the diagonal, the rows' inner products and k
    # products of the backward pass; no row's gradient is held. Random layers have noise of their own in every row.
    #
    # Source: Mishkin et al. (2018), section 3.

    rank: int = static()  # k; there are never more directions than rows

    def __post_init__(self) -> None:
        if not isinstance(self.rank, int) or self.rank < 1:
            raise ValueError(f"LowRankGradients(rank={self.rank!r}) has no direction; ask for a rank of at least one")

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        if loss.has_prior:
            raise TypeError(
                "directions of single rows need a Gaussian prior, which enters the belief exactly; use ivon()"
            )
        row, rows, weights = row_losses(loss, key)
        met = gradient_matrix(row, (theta, loss.rest), rows, weights, read=(True, False))
        gradient, rest = met.gradient
        prior, of_prior = dispersion_prior(loss, theta)
        root = met.leading(self.rank)[0]
        held = LowRank(root, tree.zeros_like(theta)).diagonal(theta)
        # Below zero by rounding alone.
        left = jax.tree.map(lambda square, h: jnp.maximum(square - h, jnp.zeros_like(h)), met.squares()[0], held)
        found = LowRank(root, left)
        value = met.value + prior.astype(met.value.dtype)
        return Evaluation(value, gradient, tree.add(rest, of_prior), found, loss.network_state)
