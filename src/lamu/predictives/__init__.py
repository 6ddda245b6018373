"""p(y* | x*, D), and the rules that make it of a belief."""

from lamu.predictives.conjugate import ConjugatePredictive, ConjugateRule
from lamu.predictives.deferred import Deferred
from lamu.predictives.gaussian import GaussianPredictive
from lamu.predictives.interface import Predictive, Prepared
from lamu.predictives.linearised import ClosedForm, Linearised
from lamu.predictives.mixture import Mixture
from lamu.predictives.pooled import Pooled, Pooling
from lamu.predictives.rule import PredictiveRule
from lamu.predictives.sampled import Sampled

__all__ = [
    "ClosedForm",
    "ConjugatePredictive",
    "ConjugateRule",
    "Deferred",
    "GaussianPredictive",
    "Linearised",
    "Mixture",
    "Pooled",
    "Pooling",
    "Predictive",
    "PredictiveRule",
    "Prepared",
    "Sampled",
]
