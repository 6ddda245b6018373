"""Curvatures: approximations of the Hessian of the mean loss."""

from typing import TYPE_CHECKING

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu.objective.curvature.gauss_newton import (
        GaussNewton,
        LowRankGradients,
        SampledGaussNewton,
        SquaredGradients,
    )
    from lamu.objective.curvature.interface import Curvature, Evaluation, gauss_newton_product, hessian_product
    from lamu.objective.curvature.simple import (
        ClippedGradient,
        Damped,
        Hessian,
        NoCurvature,
        Price,
        RootScaledGradient,
        SquaredGradient,
        fisher_diagonal,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

__all__ = [
    "ClippedGradient",
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
]
