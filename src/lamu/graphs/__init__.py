r"""Graphs: variables in plates and rows with conjugate factors; every message is a gradient.

A program is a function of `m` that samples variables. Variables that all rows share have a belief of `lamu.families`
as their prior; variables of a row have one of the factors here. `lamu.Graph(program)` is a target like any other.
"""

from lamu.graphs import models
from lamu.graphs.circuit import Circuit
from lamu.graphs.elimination import Coordinate, ExactElimination, Local
from lamu.graphs.expressions import StickBreaking
from lamu.graphs.factor import Factor
from lamu.graphs.graph import Graph
from lamu.graphs.network import exp
from lamu.graphs.normal_factors import MultivariateNormal, Normal
from lamu.graphs.positive_factors import (
    Bernoulli,
    BernoulliLogits,
    Beta,
    Categorical,
    Dirichlet,
    Gamma,
    HalfCauchy,
    InverseGamma,
    Poisson,
)
from lamu.graphs.potential import AtMean, Potential, Quadrature
from lamu.graphs.program import LearnedPrior, Program
from lamu.graphs.rotation import Rotation
from lamu.graphs.series_factors import GaussianChain, Markov
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
