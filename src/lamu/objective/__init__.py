"""The loss ℓ(θ), its gradients and its curvatures."""

from typing import TYPE_CHECKING

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu.objective.batch_loss import BatchLoss, Gradient
    from lamu.objective.objective import AllParameters, NetworkParameters, NonGaussian, Objective
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

__all__ = ["AllParameters", "BatchLoss", "Gradient", "NetworkParameters", "NonGaussian", "Objective"]
