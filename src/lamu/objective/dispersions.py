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
    r"""Returns the dispersions after one step of Fisher scoring, \(\phi \leftarrow \phi - \rho\, I(\phi)^{-1} \bar g\).

    I is the Fisher information of one row, and the gradient that of the mean loss, so that the rate means the same
    as for the Newton steps of the weights.

    Args:
        objective: the loss.
        dispersions: φ; an empty dictionary where nothing is learned.
        gradient: the gradient of the mean loss in φ.
        rate: ρ.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.objective.dispersions import dispersion_step
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian())
        >>> moved = dispersion_step(lamu.objective.Objective(model, 10), {"log_scale": jnp.zeros(1)},
        ...                         {"log_scale": jnp.ones(1)}, rate=0.5)
        >>> moved["log_scale"].tolist()  # the information about log sigma is 2
        [-0.25]
    """
    if not jax.tree.leaves(dispersions):
        return dispersions
    scored = jax.tree.map(jnp.divide, gradient, objective.model.dispersion_information(dispersions))
    return tree.add(dispersions, scored, -rate)
