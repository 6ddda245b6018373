"""Choices of curvature: what stands for the Hessian of the mean loss."""

from lamu.objective.curvature.damped import Damped
from lamu.objective.curvature.gauss_newton import GaussNewton
from lamu.objective.curvature.hessian import Hessian
from lamu.objective.curvature.interface import Curvature, Evaluation
from lamu.objective.curvature.low_rank_gradients import LowRankGradients
from lamu.objective.curvature.none import NoCurvature
from lamu.objective.curvature.price import Price
from lamu.objective.curvature.products import gauss_newton_product, hessian_product, hutchinson_diagonal
from lamu.objective.curvature.root_scaled_gradient import RootScaledGradient
from lamu.objective.curvature.sampled_gauss_newton import SampledGaussNewton
from lamu.objective.curvature.signed_rows import fisher_diagonal
from lamu.objective.curvature.squared_gradient import SquaredGradient
from lamu.objective.curvature.squared_gradients import SquaredGradients

__all__ = [
    "Curvature",
    "Damped",
    "Evaluation",
    "GaussNewton",
    "Hessian",
    "LowRankGradients",
    "NoCurvature",
    "Price",
    "RootScaledGradient",
    "SampledGaussNewton",
    "SquaredGradient",
    "SquaredGradients",
    "fisher_diagonal",
    "gauss_newton_product",
    "hessian_product",
    "hutchinson_diagonal",
]
