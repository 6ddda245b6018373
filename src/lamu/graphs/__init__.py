r"""Graphs: variables in plates and rows with conjugate factors; every message is a gradient.

A program is a function of `m` that samples variables. Those that all rows share have a belief of `lamu.families` for
their prior; a row's own have one of the factors here. `lamu.Graph(program)` is a target like any other.
"""

from lamu.graphs import models
from lamu.graphs.bernoulli import Bernoulli
from lamu.graphs.bernoulli_logits import BernoulliLogits
from lamu.graphs.beta import Beta
from lamu.graphs.categorical import Categorical
from lamu.graphs.circuit import Circuit
from lamu.graphs.dirichlet import Dirichlet
from lamu.graphs.expressions import StickBreaking
from lamu.graphs.factor import Factor
from lamu.graphs.gamma import Gamma, InverseGamma
from lamu.graphs.gaussian_chain import GaussianChain
from lamu.graphs.graph import Graph
from lamu.graphs.half_cauchy import HalfCauchy
from lamu.graphs.learned_prior import LearnedPrior
from lamu.graphs.local import Coordinate, ExactElimination, Local
from lamu.graphs.markov import Markov
from lamu.graphs.multivariate_normal import MultivariateNormal
from lamu.graphs.network import exp
from lamu.graphs.normal import Normal
from lamu.graphs.poisson import Poisson
from lamu.graphs.potential import AtMean, Potential, Quadrature
from lamu.graphs.program import Program
from lamu.graphs.rotation import Rotation
from lamu.graphs.words import Words

__all__ = [
    "AtMean",
    "Bernoulli",
    "BernoulliLogits",
    "Beta",
    "Categorical",
    "Circuit",
    "Coordinate",
    "Dirichlet",
    "ExactElimination",
    "Factor",
    "Gamma",
    "GaussianChain",
    "Graph",
    "HalfCauchy",
    "InverseGamma",
    "LearnedPrior",
    "Local",
    "Markov",
    "MultivariateNormal",
    "Normal",
    "Poisson",
    "Potential",
    "Program",
    "Quadrature",
    "Rotation",
    "StickBreaking",
    "Words",
    "exp",
    "models",
]
