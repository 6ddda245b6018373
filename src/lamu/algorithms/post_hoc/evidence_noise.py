"""The noise of a regression by the evidence, with the weights held."""

# Weights that follow the rows closely leave residuals that are smaller than the noise. With M observations, squared
# residuals R and γ well-determined weights the evidence is greatest, in the noise, at \(\sigma^2 = R / (M - \gamma)\)
# (MacKay 1992, equation 2.25), where γ depends on σ in its turn. At a joint mode of weights and noise γ is missing.

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.algorithms.post_hoc.laplace_fit import LaplaceFit, prior_precision
from lamu.objective import Objective
from lamu.typing import Array, Params

__all__ = ["determined_by_all", "noise_factor", "well_determined"]

_WIDEST = math.log(100.0)
_STEPS = 12  # halvings: the logarithm to a thousandth


def well_determined(metric: Any, objective: Objective, mean: Params) -> Array:
    r"""Returns \(\gamma = D - \operatorname{tr} S^{-1} \Delta / T\), with Δ the prior's precision."""
    prior = prior_precision(objective, mean).scale(1 / objective.temperature).diagonal(mean)
    return tree.dimension(mean) - tree.dot(metric.variance(mean), prior)


def determined_by_all(mode: LaplaceFit, objective: Objective) -> float | None:
    """Returns γ at the noise at which the evidence is stationary; None if rounding or M leave no room for a noise."""
    determined = float(_determined(mode.widened(objective, noise_factor(mode, objective)), objective))
    return determined if determined < float(mode.observed) * mode.misfit.size else None  # NaN is none


def noise_factor(mode: LaplaceFit, objective: Objective) -> float:
    """Returns c ≥ 1, by which every noise deviation is to be multiplied for the evidence to be stationary in it."""
    # It is one where the noise is too large already, and where the precision is singular to rounding.
    lowest, highest = 0.0, _WIDEST
    if not float(_slope(mode, objective, lowest)) > 0.0:  # NaN is not
        return 1.0
    for _ in range(_STEPS):
        middle = (lowest + highest) / 2
        lowest, highest = (middle, highest) if float(_slope(mode, objective, middle)) > 0.0 else (lowest, middle)
    return math.exp(lowest)


@jax.jit
def _slope(mode: LaplaceFit, objective: Objective, log_factor: Array | float) -> Array:
    """Returns the derivative of the evidence in log c."""
    wide = mode.widened(objective, jnp.exp(log_factor))
    log_prior = lambda log_factor: objective.model.dispersion_log_prior(
        mode.widened(objective, jnp.exp(log_factor)).params["likelihood"]
    )
    own = 2.0 * jnp.sum(wide.misfit) - wide.observed * wide.misfit.size + jax.grad(log_prior)(log_factor)
    return own / objective.temperature + _determined(wide, objective)


@jax.jit
def _determined(mode: LaplaceFit, objective: Objective) -> Array:
    mean = mode.params["network"]
    return well_determined(mode.precision(objective).preconditioner(mean), objective, mean)
