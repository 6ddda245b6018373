"""The loss ℓ(θ) and everything differentiated from it."""

from lamu.objective.batch_loss import BatchLoss, Gradient
from lamu.objective.non_gaussian import NonGaussian
from lamu.objective.objective import Objective
from lamu.objective.space import AllParameters, NetworkParameters

__all__ = ["AllParameters", "BatchLoss", "Gradient", "NetworkParameters", "NonGaussian", "Objective"]
