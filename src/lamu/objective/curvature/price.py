"""Price's identity: curvature from gradients at draws."""

from __future__ import annotations

from typing import Any

from lamu import tree
from lamu.families import Gaussian
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import Curvature, Evaluation
from lamu.record import record
from lamu.typing import Params, RandomKey

__all__ = ["Price"]


@record
class Price(Curvature):
    r"""\(S(\theta - m)\, \hat g(\theta)^\top\), symmetric part, in the belief's structure."""

    # For \(\theta \sim N(m, S^{-1})\), Stein's lemma gives \(E[S(\theta - m) g(\theta)^\top] = E[\nabla^2 \bar\ell]\):
    # an unbiased estimate of the expected Hessian from one gradient, also on minibatches, and noisy. It means nothing
    # at the mean, so it needs an expectation that draws.
    #
    # Source: Lin, Schmidt & Khan (2020), equation (13); Shen et al. (2024), algorithm 1, line 4.

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        # Returns value, gradient and the estimate of the expected Hessian.
        at = loss.gradient(theta, key)
        away = belief.precision.matvec(tree.add(theta, belief.mean, -1.0))
        estimate = structure.from_outer(away, at.coordinates)
        return Evaluation(at.value, at.coordinates, at.rest, estimate, at.network_state)
