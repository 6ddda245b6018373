"""Priors: the distribution of a network's parameters before any data, one file a distribution."""

from lamu.priors.belief import Belief, gaussian_belief, independent_normal
from lamu.priors.by_path import ByPath
from lamu.priors.correlated import CorrelatedNormal, FilterGroups, MatrixNormal
from lamu.priors.discrete import Discrete
from lamu.priors.gates import Gates
from lamu.priors.heavy_tails import Cauchy, GeneralisedNormal, Laplace, StudentT
from lamu.priors.hierarchy import Hierarchical, Hierarchy, ScaledNetwork
from lamu.priors.independent import FanIn, Independent
from lamu.priors.interface import ConditionalPrior, IndependentLeaves, Prior
from lamu.priors.jeffreys import Jeffreys
from lamu.priors.layerwise import LayerwiseNormal
from lamu.priors.learned import LearnedNormal
from lamu.priors.normal import Normal
from lamu.priors.scale_groups import Scale
from lamu.priors.scale_laws import GammaVariance, HalfCauchyScale, InverseGammaVariance, ScaleLaw
from lamu.priors.shrinkage import ARD, Horseshoe, RegularisedHorseshoe
from lamu.priors.spike_and_slab import ScaleMixture, SpikeAndSlab

__all__ = [
    "ARD",
    "Belief",
    "ByPath",
    "Cauchy",
    "ConditionalPrior",
    "CorrelatedNormal",
    "Discrete",
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
    "IndependentLeaves",
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
    "SpikeAndSlab",
    "StudentT",
    "gaussian_belief",
    "independent_normal",
]
