"""Choices of expectation: how the gradient of E_q[ℓ] in the expectation parameters is taken."""

from lamu.expectations.analytic import Analytic
from lamu.expectations.controls import ConstantBaseline, Control, LeaveOneOut, MovingAverageBaseline, Regression
from lamu.expectations.delta import Delta
from lamu.expectations.enumeration import Enumeration
from lamu.expectations.estimate import GradientEstimator, ValueAndGradient
from lamu.expectations.gauss_hermite import GaussHermite
from lamu.expectations.interface import Expectation
from lamu.expectations.latin_hypercube import LatinHypercube
from lamu.expectations.linear import Exact, Quadrature
from lamu.expectations.monte_carlo import MonteCarlo
from lamu.expectations.quasi_monte_carlo import QuasiMonteCarlo
from lamu.expectations.relaxed import Relaxed
from lamu.expectations.reparameterised import Reparameterised
from lamu.expectations.samplers import Antithetic, IndependentSamples, Sampler
from lamu.expectations.score_function import ScoreFunction
from lamu.expectations.worst_case import FenchelRelaxation, WorstCase, WorstCaseOfDraws

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
