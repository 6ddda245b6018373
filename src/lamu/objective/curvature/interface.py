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
    r"""Value, gradient and curvature of the mean loss: at a point, or averaged over a belief.

    Attributes:
        value: \(\bar\ell\) in nats a row.
        gradient: \(\nabla\bar\ell\) in the belief's coordinates.
        rest: the gradient in the rest (dispersions).
        curvature: \(\nabla^2\bar\ell\) or what stands for it, an operator; None where the covariance is fixed.
        network_state: the network's new state.

    Examples:
        >>> from lamu.objective.curvature import Evaluation
        >>> Evaluation(value=0.0, gradient={}, rest={}, curvature=None, network_state={}).curvature is None
        True
    """

    value: Any
    gradient: Params
    rest: Params
    curvature: Any
    network_state: Any


@runtime_checkable
class Curvature(Protocol):
    r"""How \(\nabla^2\bar\ell\) is taken, in the structure of the belief's precision.

    Attributes:
        departure: what it changes about the rule, in words; empty for nothing.
    """

    departure: str | Any = ""

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return type(self).__name__

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        """Returns value, gradient and curvature of the mean loss at θ.

        Args:
            loss: the mean loss on a batch.
            theta: the point.
            belief: the Gaussian that θ was drawn from (Price's identity needs it).
            structure: the operator class whose constructor takes the curvature in.
            key: for random layers.
        """
        ...

    # What has a default.

    def output_hessian(
        self, likelihood: Likelihood, dispersion: Params, f: Array, y: Any, weights: Array, key: RandomKey
    ) -> OutputHessian | None:
        r"""Returns the curvature in the outputs, where this choice is \(\sum_i r_i J_i^\top \Lambda_i J_i\); else None.

        Args:
            likelihood: p(y | f).
            dispersion: its parameters.
            f: the network's outputs `[batch, outputs]`, offset included.
            y: the targets.
            weights: r, what each row counts, `[batch]`.
            key: for targets that are sampled.
        """
        return None
