"""Observations: what a conjugate belief sees, one formula each."""

from lamu.observations.coins import Bernoulli, Categorical
from lamu.observations.interface import Observation
from lamu.observations.normal import MultivariateNormal, Normal, NormalMean
from lamu.observations.rates import Exponential, Poisson

__all__ = [
    "Bernoulli",
    "Categorical",
    "Exponential",
    "MultivariateNormal",
    "Normal",
    "NormalMean",
    "Observation",
    "Poisson",
]
