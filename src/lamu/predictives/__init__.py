"""p(y* | x*, D), and the rules that make it of a belief."""

from lamu.predictives.approximate_classes import LaplaceBridge, Probit
from lamu.predictives.at_positions import AtPositions
from lamu.predictives.class_probabilities import ClassProbabilities
from lamu.predictives.conjugate import ConjugatePredictive, ConjugateRule
from lamu.predictives.gaussian import GaussianPredictive
from lamu.predictives.input_mixture import InputMixture
from lamu.predictives.interface import Predictive, Prepared
from lamu.predictives.lazy import Deferred
from lamu.predictives.linearised import ClosedForm, Linearised, LinearisedMarginal
from lamu.predictives.mixture import MixturePredictive
from lamu.predictives.moment_propagation import Propagated
from lamu.predictives.pooling import Pooling
from lamu.predictives.rule import PredictiveRule
from lamu.predictives.sampled import Sampled
from lamu.predictives.student import StudentPredictive, StudentRule
from lamu.predictives.tangent_draws import TangentDraws
from lamu.predictives.trials import OfTrials
from lamu.predictives.weighted import Weighted

__all__ = [
    "AtPositions",
    "ClassProbabilities",
    "ClosedForm",
    "ConjugatePredictive",
    "ConjugateRule",
    "Deferred",
    "GaussianPredictive",
    "InputMixture",
    "LaplaceBridge",
    "Linearised",
    "LinearisedMarginal",
    "MixturePredictive",
    "OfTrials",
    "Pooling",
    "Predictive",
    "PredictiveRule",
    "Prepared",
    "Probit",
    "Propagated",
    "Sampled",
    "StudentPredictive",
    "StudentRule",
    "TangentDraws",
    "Weighted",
]
