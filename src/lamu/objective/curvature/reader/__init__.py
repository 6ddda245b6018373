"""Reads where a network's parameters meet the data, and so has single examples' gradients squared without them."""

from lamu.objective.curvature.reader.factors import Expand, Reduce, kronecker_factors
from lamu.objective.curvature.reader.gradient_matrix import GradientMatrix, gradient_matrix
from lamu.objective.curvature.reader.linearised import Linearised, linearise
from lamu.objective.curvature.reader.per_example import (
    Meeting,
    Squares,
    backward,
    squares_and_gradient,
    squares_with_norms,
)

__all__ = [
    "Expand",
    "GradientMatrix",
    "Linearised",
    "Meeting",
    "Reduce",
    "Squares",
    "backward",
    "gradient_matrix",
    "kronecker_factors",
    "linearise",
    "squares_and_gradient",
    "squares_with_norms",
]
