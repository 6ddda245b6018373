"""The step of the dispersions, which follow a belief about the weights as a point."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.objective.objective import Objective
from lamu.typing import Params

__all__ = ["dispersion_step"]


def dispersion_step(objective: Objective, dispersions: Params, gradient: Params, rate: Any) -> Params:
    r"""Returns the dispersions after a step of Fisher scoring, \(\phi \leftarrow \phi - \rho I(\phi)^{-1} \bar g\)."""
    # I is the Fisher information of one row, and the gradient that of the mean loss, so that the rate means the same as
    # for the Newton steps of the weights.
    if not jax.tree.leaves(dispersions):
        return dispersions
    scored = jax.tree.map(jnp.divide, gradient, objective.model.dispersion_information(dispersions))
    return tree.add(dispersions, scored, -rate)
