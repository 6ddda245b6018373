"""The squared minibatch gradient."""

from __future__ import annotations

from typing import Any

from lamu.families import Gaussian
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import Curvature, Evaluation
from lamu.record import record
from lamu.typing import Params, RandomKey

__all__ = ["SquaredGradient"]


@record
class SquaredGradient(Curvature):
    r"""\(\hat g \hat g^\top\) in the belief's structure, with \(\hat g\) the gradient of the mean loss on the batch."""

    # For a batch of B rows its expectation is \(\bar g \bar g^\top\) plus 1/B of the covariance of the rows' gradients:
    # as an estimate of curvature it is biased, it depends on the batch size, and it is not linear in the rows. It is
    # what RMSprop and Adam use.

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        at = loss.gradient(theta, key)
        square = structure.from_outer(at.coordinates, at.coordinates)
        return Evaluation(at.value, at.coordinates, at.rest, square, at.network_state)
