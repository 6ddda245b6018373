"""Priors: distributions of a network's parameters before any data."""

from typing import TYPE_CHECKING

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu.priors.belief import Belief
    from lamu.priors.correlated import CorrelatedNormal, FilterGroups, MatrixNormal
    from lamu.priors.hierarchy import (
        ARD,
        GammaVariance,
        HalfCauchyScale,
        Hierarchical,
        Hierarchy,
        Horseshoe,
        InverseGammaVariance,
        RegularisedHorseshoe,
        Scale,
        ScaledNetwork,
        ScaleLaw,
    )
    from lamu.priors.independent import (
        Cauchy,
        Discrete,
        FanIn,
        GeneralisedNormal,
        Independent,
        Laplace,
        ScaleMixture,
        SpikeAndSlab,
        StudentT,
    )
    from lamu.priors.interface import (
        ByPath,
        ConditionalPrior,
        IndependentLeaves,
        Prior,
        gaussian_belief,
        independent_normal,
    )
    from lamu.priors.jeffreys import Jeffreys
    from lamu.priors.normal import Gates, LayerwiseNormal, LearnedNormal, Normal
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

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
