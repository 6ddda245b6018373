"""Reads where a network's parameters meet the data, and so has single examples' gradients squared without them."""

from lamu.objective.curvature.reader.gradient_matrix import GradientMatrix, gradient_matrix
from lamu.objective.curvature.reader.linearised import LinearisedNetwork, linearise
from lamu.objective.curvature.reader.per_example import backward, squares_and_gradient

__all__ = ["GradientMatrix", "LinearisedNetwork", "backward", "gradient_matrix", "linearise", "squares_and_gradient"]
