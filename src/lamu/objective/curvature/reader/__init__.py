"""Finds the uses of parameters in a network's jaxpr, to compute squared per-example gradients without storing them."""

from typing import TYPE_CHECKING

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu.objective.curvature.reader.gradient_matrix import GradientMatrix, gradient_matrix
    from lamu.objective.curvature.reader.linearised import LinearisedNetwork, backward, linearise, squares_and_gradient
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

__all__ = ["GradientMatrix", "LinearisedNetwork", "backward", "gradient_matrix", "linearise", "squares_and_gradient"]
