"""The exact Hessian."""

from __future__ import annotations

from typing import Any

from lamu.families import Gaussian
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import Curvature, Evaluation
from lamu.objective.curvature.products import hessian_product
from lamu.objective.curvature.rows import without_padding
from lamu.record import record
from lamu.typing import Params, RandomKey

__all__ = ["Hessian"]


@record
class Hessian(Curvature):
    r"""\(\nabla^2\bar\ell(\theta)\), by one Hessian-vector product a coordinate: for small problems."""

    # It may be indefinite; a straight step of the rule with it can then leave the cone of precisions.

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        at = without_padding(loss).gradient(theta, key)
        hessian = structure.from_hessian(hessian_product(loss, theta, key), theta)
        return Evaluation(at.value, at.coordinates, at.rest, hessian, at.network_state)
