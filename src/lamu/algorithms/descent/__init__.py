"""Gradient descent on the parameters of a belief: the algorithm, gradient estimators and scale transforms."""

from lamu.algorithms.descent.belief_descent import (
    BeliefDescent,
    DescentState,
    ExpTransform,
    PositiveTransform,
    SoftplusTransform,
)
from lamu.algorithms.descent.estimators import Estimator, Flipout, Global, LocalReparameterisation

__all__ = [
    "BeliefDescent",
    "DescentState",
    "Estimator",
    "ExpTransform",
    "Flipout",
    "Global",
    "LocalReparameterisation",
    "PositiveTransform",
    "SoftplusTransform",
]
