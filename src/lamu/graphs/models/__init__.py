"""Ready models, each a page of the language: functions that return a `lamu.Graph`.

Read one, copy it, and change what differs: a model is nothing but its program.
"""

from lamu.graphs.models.circuits import SumProduct
from lamu.graphs.models.factors import ExponentialPCA, FactorAnalysis, MatrixFactorisation
from lamu.graphs.models.mixtures import BernoulliMixture, GaussianMixture, LatentClass, NaiveBayes
from lamu.graphs.models.regressions import HierarchicalRegression, LinearRegression
from lamu.graphs.models.series import HiddenMarkov, StateSpace
from lamu.graphs.models.topics import Topics

__all__ = [
    "BernoulliMixture",
    "ExponentialPCA",
    "FactorAnalysis",
    "GaussianMixture",
    "HiddenMarkov",
    "HierarchicalRegression",
    "LatentClass",
    "LinearRegression",
    "MatrixFactorisation",
    "NaiveBayes",
    "StateSpace",
    "SumProduct",
    "Topics",
]
