"""Estimators of the gradient of E_q[ℓ] in the expectation parameters."""

from typing import TYPE_CHECKING

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu.expectations.exact import Analytic, Delta, Enumeration, Exact, GaussHermite, Quadrature
    from lamu.expectations.interface import Expectation, GradientEstimator, ValueAndGradient
    from lamu.expectations.pathwise import MonteCarlo, Relaxed, Reparameterised
    from lamu.expectations.samplers import Antithetic, IndependentSamples, LatinHypercube, QuasiMonteCarlo, Sampler
    from lamu.expectations.score_function import (
        ConstantBaseline,
        Control,
        LeaveOneOut,
        MovingAverageBaseline,
        Regression,
        ScoreFunction,
    )
    from lamu.expectations.worst_case import FenchelRelaxation, WorstCase, WorstCaseOfDraws
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

__all__ = [
    "Analytic",
    "Antithetic",
    "ConstantBaseline",
    "Control",
    "Delta",
    "Enumeration",
    "Exact",
    "Expectation",
    "FenchelRelaxation",
    "GaussHermite",
    "GradientEstimator",
    "IndependentSamples",
    "LatinHypercube",
    "LeaveOneOut",
    "MonteCarlo",
    "MovingAverageBaseline",
    "Quadrature",
    "QuasiMonteCarlo",
    "Regression",
    "Relaxed",
    "Reparameterised",
    "Sampler",
    "ScoreFunction",
    "ValueAndGradient",
    "WorstCase",
    "WorstCaseOfDraws",
]
