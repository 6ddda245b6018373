"""The absolute gradient, scaled by the root of the precision."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.families import Gaussian
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import Curvature, Evaluation
from lamu.record import record
from lamu.typing import Params, RandomKey

__all__ = ["RootScaledGradient"]


@record
class RootScaledGradient(Curvature):
    r"""\(\sqrt{s}\,|\hat g|\), coordinate by coordinate, with s the belief's precision a row."""

    # It moves s towards where \(\sqrt s = |\hat g|\) on average, as the squared minibatch gradient does, but grows with
    # the gradient's size only. Like that one it depends on the batch size, and is not linear in the rows.
    #
    # Source: Möllenhoff & Khan (2023), algorithm 1 (bSAM).

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        # Returns value, gradient and its scaled absolute value.
        at = loss.gradient(theta, key)
        scale = belief.precision.scale(1.0 / loss.objective.concentration).diagonal(theta)
        size = jax.tree.map(lambda s, g: jnp.sqrt(s) * jnp.abs(g), scale, at.coordinates)
        return Evaluation(at.value, at.coordinates, at.rest, structure.from_diagonal(size), at.network_state)
