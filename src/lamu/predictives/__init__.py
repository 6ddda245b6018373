"""Predictive distributions p(y* | x*, D), and the rules that compute them from a belief."""

from typing import TYPE_CHECKING

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu.predictives.approximate_classes import ClassProbabilities, LaplaceBridge, Probit
    from lamu.predictives.gaussian import (
        ConjugatePredictive,
        ConjugateRule,
        GaussianPredictive,
        StudentPredictive,
        StudentRule,
    )
    from lamu.predictives.input_mixture import InputMixture
    from lamu.predictives.interface import Predictive, Prepared
    from lamu.predictives.lazy import Deferred, PredictiveRule
    from lamu.predictives.linearised import ClosedForm, Linearised, LinearisedMarginal, TangentDraws
    from lamu.predictives.mixture import MixturePredictive, Pooling, Weighted
    from lamu.predictives.moment_propagation import Propagated
    from lamu.predictives.program import ProgramPredictive
    from lamu.predictives.sampled import Sampled
    from lamu.predictives.wrapper import AtPositions, OfTrials
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

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
    "ProgramPredictive",
    "Propagated",
    "Sampled",
    "StudentPredictive",
    "StudentRule",
    "TangentDraws",
    "Weighted",
]
