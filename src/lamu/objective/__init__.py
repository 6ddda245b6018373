"""The loss ℓ(θ) and everything differentiated from it."""

from lamu.objective.batch_loss import BatchLoss, Gradient
from lamu.objective.objective import AllParameters, NetworkParameters, NonGaussian, Objective

__all__ = ["AllParameters", "BatchLoss", "Gradient", "NetworkParameters", "NonGaussian", "Objective"]
