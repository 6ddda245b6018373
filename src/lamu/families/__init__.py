"""Beliefs: the families q(θ), one file each."""

from lamu.families.bernoulli import Bernoulli, Binary
from lamu.families.beta import Beta, Dirichlet
from lamu.families.categorical import Categorical
from lamu.families.draws import Draws
from lamu.families.ensemble import Ensemble
from lamu.families.exponential import ExpectationParameters, ExponentialFamily, NaturalParameters
from lamu.families.gamma import Exponential, Gamma, InverseGamma
from lamu.families.gaussian import Gaussian
from lamu.families.gaussian_chain import GaussianChain
from lamu.families.interface import Family
from lamu.families.markov_chain import MarkovChain
from lamu.families.matrix_normal import MatrixNormal
from lamu.families.mixture import ExpectationMixture, Mixture, NaturalMixture
from lamu.families.multivariate_normal import MultivariateNormal
from lamu.families.normal_gamma import NormalGamma
from lamu.families.parallel_chains import ParallelGaussianChain, ParallelMarkovChain
from lamu.families.partial import PartialBelief
from lamu.families.parts import Parts
from lamu.families.point import Point
from lamu.families.poisson import Poisson
from lamu.families.product import Product
from lamu.families.von_mises import VonMises
from lamu.families.wishart import NormalWishart, Wishart

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
