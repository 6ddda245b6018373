"""What a choice of curvature computes, at one point."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from lamu.families import Gaussian
from lamu.likelihoods import Likelihood
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.output_curvature import OutputHessian
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Curvature", "Evaluation"]


@record
class Evaluation:
    """Value, gradient and curvature of the mean loss: at a point, or averaged over a belief."""

    value: Any  # \(\bar\ell\) in nats a row
    gradient: Params  # \(\nabla\bar\ell\) in the belief's coordinates
    rest: Params  # the gradient in the rest (dispersions)
    curvature: Any  # \(\nabla^2\bar\ell\) or what stands for it, an operator; None where the covariance is fixed
    network_state: Any  # the network's new state


@runtime_checkable
class Curvature(Protocol):
    r"""How \(\nabla^2\bar\ell\) is taken, in the structure of the belief's precision."""

    departure: str | Any = ""  # what it changes about the rule, in words; empty for nothing

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return type(self).__name__

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        """Returns value, gradient and curvature of the mean loss at θ."""
        ...

    # What has a default.

    def output_hessian(
        self, likelihood: Likelihood, dispersion: Params, f: Array, y: Any, weights: Array, key: RandomKey
    ) -> OutputHessian | None:
        r"""Returns the curvature in the outputs if this choice is \(\sum_i r_i J_i^\top \Lambda_i J_i\); else None."""
        return None
