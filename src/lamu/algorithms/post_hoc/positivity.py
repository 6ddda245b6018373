"""Whether a precision at a mode is positive, told in words where it is not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.algorithms.post_hoc.at_mode import Mode, prior_precision, with_prior
from lamu.objective import Objective
from lamu.operators import Dense, DenseBlocks, Diagonal
from lamu.operators.interface import is_operator
from lamu.typing import Array

__all__ = ["require_positive"]


def require_positive(mode: Mode, objective: Objective) -> None:
    """Raises unless curvature and prior are positive together.

    Args:
        mode: what was found at the mode, in a structure whose eigenvalues can be had.
        objective: the loss.

    Raises:
        ValueError: with the most negative eigenvalue, and what would help.
    """
    mean = mode.params["network"]
    prior = prior_precision(objective, mean).scale(1 / objective.data_size)
    values = _eigenvalues(with_prior(mode.curvature, prior, mean))
    lowest, largest = float(jnp.min(values)), float(jnp.max(values))
    if lowest > 0:
        return
    raise ValueError(
        f"the curvature at the mode is indefinite: its smallest eigenvalue is {lowest:.3g} a row, the prior included, "
        f"beside a largest of {largest:.3g}, so that the posterior has no maximum here; train longer, take "
        f"curvature=GaussNewton(), or add a damping above {-lowest:.3g}, Damped(Hessian(), "
        f"{max(-2 * lowest, 1e-3):.1g})"
    )


def _eigenvalues(operator: Any) -> Array:
    """Its eigenvalues, or numbers with the same sign at both ends."""
    if isinstance(operator, Dense):
        return jnp.linalg.eigvalsh((operator.matrix + operator.matrix.T) / 2)
    if isinstance(operator, Diagonal):
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(operator.values)])
    if isinstance(operator, DenseBlocks):
        blocks = jax.tree.leaves(operator.blocks, is_leaf=is_operator)
        return jnp.concatenate([_eigenvalues(block) for block in blocks])
    raise TypeError(
        f"whether a {type(operator).__name__} of a curvature of one's own is positive cannot be told; take Dense, "
        "DenseBlocks or Diagonal"
    )
