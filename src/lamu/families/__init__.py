"""Beliefs: the families q(θ), one file for each kind of variable."""

from typing import TYPE_CHECKING

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu.families.chains import GaussianChain, MarkovChain, ParallelGaussianChain, ParallelMarkovChain
    from lamu.families.exponential import ExpectationParameters, ExponentialFamily, NaturalParameters
    from lamu.families.gaussian import Gaussian
    from lamu.families.interface import Family
    from lamu.families.matrix_normal import MatrixNormal
    from lamu.families.normal_wishart import MultivariateNormal, NormalGamma, NormalWishart, Wishart
    from lamu.families.points import Draws, Ensemble, Point
    from lamu.families.probabilities import (
        Bernoulli,
        Beta,
        Binary,
        Categorical,
        Dirichlet,
        Exponential,
        Gamma,
        InverseGamma,
        Poisson,
        VonMises,
    )
    from lamu.families.products import ExpectationMixture, Mixture, NaturalMixture, PartialBelief, Parts, Product
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

__all__ = [
    "Bernoulli",
    "Beta",
    "Binary",
    "Categorical",
    "Dirichlet",
    "Draws",
    "Ensemble",
    "ExpectationMixture",
    "ExpectationParameters",
    "Exponential",
    "ExponentialFamily",
    "Family",
    "Gamma",
    "Gaussian",
    "GaussianChain",
    "InverseGamma",
    "MarkovChain",
    "MatrixNormal",
    "Mixture",
    "MultivariateNormal",
    "NaturalMixture",
    "NaturalParameters",
    "NormalGamma",
    "NormalWishart",
    "ParallelGaussianChain",
    "ParallelMarkovChain",
    "PartialBelief",
    "Parts",
    "Point",
    "Poisson",
    "Product",
    "VonMises",
    "Wishart",
]
