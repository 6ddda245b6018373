"""Priors: the distribution of a network's parameters before any data, one file a distribution."""

from lamu.priors.belief import Belief, gaussian_belief
from lamu.priors.by_path import ByPath
from lamu.priors.correlated import CorrelatedNormal, FilterGroups, MatrixNormal
from lamu.priors.gates import Gates
from lamu.priors.heavy_tails import Cauchy, GeneralisedNormal, Laplace, StudentT
from lamu.priors.hierarchy import Hierarchical, Hierarchy, ScaledNetwork
from lamu.priors.independent import FanIn, Independent
from lamu.priors.interface import Prior
from lamu.priors.jeffreys import Jeffreys
from lamu.priors.layerwise import LayerwiseNormal
from lamu.priors.learned import LearnedNormal
from lamu.priors.normal import Normal
from lamu.priors.scale_groups import Scale
from lamu.priors.scale_laws import GammaVariance, HalfCauchyScale, InverseGammaVariance, ScaleLaw
from lamu.priors.scale_mixture import ScaleMixture
from lamu.priors.shrinkage import ARD, Horseshoe, RegularisedHorseshoe

__all__ = [
    "ARD",
    "Belief",
    "ByPath",
    "Cauchy",
    "CorrelatedNormal",
    "FanIn",
    "FilterGroups",
    "GammaVariance",
    "Gates",
    "GeneralisedNormal",
    "HalfCauchyScale",
    "Hierarchical",
    "Hierarchy",
    "Horseshoe",
    "Independent",
    "InverseGammaVariance",
    "Jeffreys",
    "Laplace",
    "LayerwiseNormal",
    "LearnedNormal",
    "MatrixNormal",
    "Normal",
    "Prior",
    "RegularisedHorseshoe",
    "Scale",
    "ScaleLaw",
    "ScaleMixture",
    "ScaledNetwork",
    "StudentT",
    "gaussian_belief",
]
