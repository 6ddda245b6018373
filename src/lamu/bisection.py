"""Bisection, elementwise: the one search behind all quantiles."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from lamu.typing import Array

__all__ = ["Ends", "bisect", "halved", "search"]

Ends = tuple[Array, Array]


def bisect(is_below: Callable[[Array], Array], ends: Ends, steps: int) -> Array:
    """Returns the point between two ends at which a monotone predicate turns from true to false, elementwise.

    Args:
        is_below: whether each point lies below the one that is looked for.
        ends: lower and upper ends, arrays of one shape.
        steps: how often the distance between the ends is halved.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.bisection import bisect
        >>> round(float(bisect(lambda t: t**2 < 2.0, (jnp.zeros(()), jnp.full((), 2.0)), steps=30)), 4)
        1.4142
    """
    lower, upper = jax.lax.fori_loop(0, steps, lambda _, ends: halved(is_below, ends), ends)
    return (lower + upper) / 2


def halved(is_below: Callable[[Array], Array], ends: Ends) -> Ends:
    """Returns the ends after one step of the bisection.

    Args:
        is_below: as for `bisect`.
        ends: lower and upper ends.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.bisection import halved
        >>> [end.tolist() for end in halved(lambda t: t < 3.0, (jnp.zeros(1), jnp.full(1, 4.0)))]
        [[2.0], [4.0]]
    """
    middle = (ends[0] + ends[1]) / 2
    below = is_below(middle)
    return jnp.where(below, middle, ends[0]), jnp.where(below, ends[1], middle)


def search(is_below: Callable[[Array], Array], ends: Ends, compiled: bool = True) -> Array:
    """Returns the point at which a monotone predicate turns, as closely as the dtype of the ends tells numbers apart.

    Args:
        is_below: as for `bisect`.
        ends: lower and upper ends.
        compiled: whether the predicate can be asked inside a compiled loop.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.bisection import search
        >>> round(float(search(lambda t: t**2 < 2.0, (jnp.zeros(()), jnp.full((), 2.0)), compiled=False)), 4)
        1.4142
    """
    steps = 60 if ends[0].dtype == jnp.float64 else 30
    if compiled:
        return bisect(is_below, ends, steps)
    for _ in range(steps):
        ends = halved(is_below, ends)
    return (ends[0] + ends[1]) / 2
