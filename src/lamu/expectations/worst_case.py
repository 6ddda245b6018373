r"""The worst case in a ball about the mean, in place of an expectation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import require
from lamu.expectations.interface import Expectation
from lamu.families import Gaussian
from lamu.objective import BatchLoss
from lamu.objective.curvature import Curvature, Evaluation
from lamu.objective.curvature.interface import evaluated
from lamu.operators import AnyStructure
from lamu.record import record
from lamu.typing import Number, Params, RandomKey

__all__ = ["FenchelRelaxation", "WorstCase", "WorstCaseOfDraws"]


@record
class WorstCase(Expectation):
    r"""\(\max_{\lVert\epsilon\rVert \le r} \bar\ell(m + \epsilon)\), to first order: two gradients.

    \[ \hat g = \nabla\bar\ell_D(m), \qquad \theta = m + r\,\hat g / \lVert\hat g\rVert \]

    and everything is evaluated at θ. The worst case is that of the data's loss \(\bar\ell_D\) alone; the prior, if it
    is a part of the loss, is evaluated at the mean. The state is that of the pass at the mean, where it is used.

    It is the tightest convex lower bound of the expected negative loss, as a function of the mean, with r of the
    belief's own width; here r is fixed.

    Attributes:
        radius: r, in the units of a weight, over all coordinates together.

    Raises:
        ValueError: for a radius that is negative.

    Source: Foret et al. (2021), equations 2 and 3; Möllenhoff & Khan (2023), section 3.

    Examples:
        >>> from lamu.expectations.worst_case import WorstCase
        >>> WorstCase(0.05).departure
        'normalised ascent'
    """

    radius: Number = 0.05

    departure = "normalised ascent"

    def __post_init__(self) -> None:
        _require_radius(self.radius)

    def evaluate(
        self, key: RandomKey, belief: Gaussian, loss: BatchLoss, curvature: Curvature, structure: AnyStructure
    ) -> Evaluation:
        first, second = jax.random.split(key)
        data = loss.of_the_data()
        ascent = data.gradient(belief.mean, first)
        # Not zero: at a stationary point there is no direction, and the mean is as bad as any point.
        norm = jnp.sqrt(jnp.maximum(tree.dot(ascent.coordinates, ascent.coordinates), 1e-30))
        theta = tree.add(belief.mean, ascent.coordinates, tree.cast(self.radius, norm) / norm)
        evaluation = evaluated(curvature, data, theta, belief, structure, second)
        return _with_prior(replace(evaluation, network_state=ascent.network_state), loss, belief.mean, structure)


@record
class FenchelRelaxation(Expectation):
    r"""Curvature at a draw, gradient at the worst case in its direction from the mean: two gradients and one draw.

    \[ \theta = m + \sigma z, \quad \hat g = \nabla\bar\ell_D(\theta), \qquad
       \epsilon = r\,\kappa S^{-1} \hat g, \quad \hat g_\epsilon = \nabla\bar\ell_D(m + \epsilon) \]

    with \(\sigma^2 = S^{-1}\) and \(\kappa S^{-1}\) the inverse of the precision per row. The gradient is
    \(\hat g_\epsilon\); value, curvature and network state are those of the draw. The prior, if it is a part of the
    loss, is evaluated at the mean.

    Attributes:
        radius: r; the step of the ascent, relative to the belief's own metric.

    Raises:
        ValueError: for a radius that is negative.

    Source: Möllenhoff & Khan (2023), algorithm 1 (bSAM).

    Examples:
        >>> from lamu.expectations.worst_case import FenchelRelaxation
        >>> FenchelRelaxation(0.01).radius
        0.01
    """

    radius: Number = 0.01

    def __post_init__(self) -> None:
        _require_radius(self.radius)

    @property
    def divergence_remedy(self) -> str:
        """What to change where a run has ended at NaN."""
        # Of 400 counts and `MLP((32, 32))` the loss of `bsam()` rises from 8 to 6,000 at any learning rate: in
        # coordinates without curvature P is δ/N, and the ascent 1e-3 · 400 times the gradient.
        radius = float(self.radius)
        return (
            f"the ascent to the worst case, of radius {radius:g}, is longest where gradients are large, as those of "
            f"counts, and the precision small; lower the radius, for instance to {radius / 100:g}, or take ivon()"
        )

    def evaluate(
        self, key: RandomKey, belief: Gaussian, loss: BatchLoss, curvature: Curvature, structure: AnyStructure
    ) -> Evaluation:
        """Returns the gradient at the worst point, and the others at the draw."""
        noise, first, second = jax.random.split(key, 3)
        data, factored = loss.of_the_data(), Gaussian(belief.mean, belief.precision.factored())
        draw = factored.sample(noise)
        evaluation = evaluated(curvature, data, draw, belief, structure, first)
        direction = factored.precision.solve(evaluation.gradient)
        theta = tree.add(self._ascent_start(belief, draw), direction, self.radius * loss.objective.concentration)
        worst = data.gradient(theta, second)
        return _with_prior(
            replace(evaluation, gradient=worst.coordinates, rest=worst.rest), loss, belief.mean, structure
        )

    def _ascent_start(self, belief: Gaussian, draw: Params) -> Params:
        """Returns the start of the ascent."""
        return belief.mean


@record
class WorstCaseOfDraws(FenchelRelaxation):
    r"""`FenchelRelaxation` with the ascent from the draw: \(\hat g_\epsilon = \nabla\bar\ell_D(\theta + \epsilon)\).

    At the mean, \(\hat g_\epsilon\) is zero near a mode, which for few rows is half a standard deviation from where
    \(E_q[\nabla\ell] = 0\). From the draw the expectation is over q, up to the ascent.

    Attributes:
        radius: r; the step of the ascent, relative to the belief's own metric.

    Raises:
        ValueError: for a radius that is negative.

    Source: Möllenhoff & Khan (2023), algorithm 1, but for where the ascent starts.

    Examples:
        >>> from lamu.expectations.worst_case import WorstCaseOfDraws
        >>> WorstCaseOfDraws(0.01).departure
        'ascent from the draw'
    """

    departure = "ascent from the draw"

    def _ascent_start(self, belief: Gaussian, draw: Params) -> Params:
        return draw


def _with_prior(evaluation: Evaluation, loss: BatchLoss, mean: Params, structure: Any) -> Evaluation:
    if not loss.has_prior:
        return evaluation
    value, gradient = loss.prior(mean)
    matrix = evaluation.curvature
    if matrix is not None:
        diagonal: Any = loss.prior_curvature(mean)
        matrix = jax.tree.map(jnp.add, matrix, structure.from_diagonal(diagonal))
    return replace(
        evaluation,
        value=evaluation.value + value.astype(evaluation.value.dtype),
        gradient=tree.add(evaluation.gradient, gradient),
        curvature=matrix,
    )


def _require_radius(radius: Number) -> None:
    require(radius >= 0, f"radius={radius!r} is not a distance; give a number that is not negative")
