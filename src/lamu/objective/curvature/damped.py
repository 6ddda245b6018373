"""Damped curvature: a multiple of the identity added to another curvature."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu.families import Gaussian
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import Curvature, Evaluation
from lamu.record import record
from lamu.typing import Number, Params, RandomKey

__all__ = ["Damped"]


@record
class Damped(Curvature):
    r"""\(H + \gamma I\): another choice of curvature, with a floor under it."""

    # The belief becomes narrower than the curvature says, by as much as a prior of precision \(N\gamma\) would make it;
    # the mean's fixed point stays where it is.

    base: Curvature  # the choice of curvature
    damping: Number  # γ, in the units of the curvature of a row

    departure = "damping"

    @property
    def name(self) -> str:
        # The name of the curvature that is damped.
        return self.base.name

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        at = self.base.evaluate(loss, theta, belief, structure, key)
        floor = jax.tree.map(lambda leaf: jnp.full_like(leaf, self.damping), theta)
        return replace(at, curvature=at.curvature.add_diagonal(floor))
