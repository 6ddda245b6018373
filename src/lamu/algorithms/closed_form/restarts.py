"""Several starts of one algorithm, side by side along a leading axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

__all__ = ["checked", "in_each"]

S = TypeVar("S")


def in_each(state: S, step: Callable[[S], S]) -> S:
    """Returns the states after a step of every start that has not settled; the others stay as they are."""
    known: Any = state
    if known.settled.shape[0] == 1:  # a condition in place of a selection, so that a settled run costs nothing
        alone: Any = jax.tree.map(lambda leaf: leaf[0], state)
        one = jax.lax.cond(alone.settled, lambda s: s, step, alone)
        return jax.tree.map(lambda leaf: leaf[None], one)
    keep = lambda old, made: jnp.where(known.settled.reshape(-1, *[1] * (made.ndim - 1)), old, made)
    return jax.tree.map(keep, state, jax.vmap(step)(state))


def checked(tolerance: float, restarts: int) -> None:
    """Raises a ValueError for a negative tolerance, or no restart."""
    if not tolerance >= 0:
        raise ValueError(f"tolerance={tolerance!r} is negative; give the rise of the bound to stop at, or 0")
    if restarts < 1:
        raise ValueError(f"restarts={restarts!r} start nothing; ask for at least one")
