"""Gradient descent on the parameters of a belief: the algorithm, gradient estimators and scale transforms."""

from typing import TYPE_CHECKING

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu.algorithms.descent.belief_descent import (
        BeliefDescent,
        DescentState,
        ExpTransform,
        PositiveTransform,
        SoftplusTransform,
    )
    from lamu.algorithms.descent.estimators import Estimator, Flipout, Global, LocalReparameterisation
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

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
