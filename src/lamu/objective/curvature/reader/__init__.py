"""Reads where a network's parameters meet the data, and so has single examples' gradients squared without them."""

from lamu.objective.curvature.reader.meeting import Meeting, backward
from lamu.objective.curvature.reader.per_example import Squares, squares_and_gradient, squares_with_norms

__all__ = ["Meeting", "Squares", "backward", "squares_and_gradient", "squares_with_norms"]
