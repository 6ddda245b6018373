"""No curvature: the covariance is fixed."""

from __future__ import annotations

from typing import Any

from lamu.families import Gaussian
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import Curvature, Evaluation
from lamu.record import record
from lamu.typing import Params, RandomKey

__all__ = ["NoCurvature"]


@record
class NoCurvature(Curvature):
    """The gradient alone, one backward pass."""

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        at = loss.gradient(theta, key)
        return Evaluation(at.value, at.coordinates, at.rest, None, at.network_state)
