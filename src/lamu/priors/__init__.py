"""Priors: the distribution of a network's parameters before any data, one file a distribution."""

from lamu.priors.belief import Belief, gaussian_belief
from lamu.priors.heavy_tails import Cauchy, GeneralisedNormal, Laplace, StudentT
from lamu.priors.independent import FanIn, Independent
from lamu.priors.interface import Prior
from lamu.priors.layerwise import LayerwiseNormal
from lamu.priors.learned import LearnedNormal
from lamu.priors.normal import Normal
from lamu.priors.scale_mixture import ScaleMixture

__all__ = [
    "Belief",
    "Cauchy",
    "FanIn",
    "GeneralisedNormal",
    "Independent",
    "Laplace",
    "LayerwiseNormal",
    "LearnedNormal",
    "Normal",
    "Prior",
    "ScaleMixture",
    "StudentT",
    "gaussian_belief",
]
