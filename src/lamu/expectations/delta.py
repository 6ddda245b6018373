"""The delta method: everything at the mean."""

from __future__ import annotations

from typing import Any

from lamu.families import Gaussian
from lamu.objective import BatchLoss
from lamu.objective.curvature import Curvature, Evaluation
from lamu.record import record
from lamu.typing import RandomKey

__all__ = ["Delta"]


@record
class Delta:
    r"""\(E_q[h(\theta)] \approx h(m)\), the zeroth-order delta method: one gradient.

    Gradient and curvature are exact where the loss is quadratic; the value is then low by
    \(\tfrac12 \mathrm{tr}(H\Sigma)\).

    Source: Khan & Rue (2021), section 1.3.1.

    Examples:
        >>> from lamu.expectations import Delta
        >>> Delta()
        Delta()
    """

    def evaluate(
        self, key: RandomKey, belief: Gaussian, loss: BatchLoss, curvature: Curvature, structure: Any
    ) -> Evaluation:
        """Returns value, gradient and curvature at the mean."""
        return curvature.evaluate(loss, belief.mean, belief, structure, key)
