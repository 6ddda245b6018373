"""Bisection, elementwise for arrays, used by all quantiles."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from lamu.typing import Array

__all__ = ["Ends", "bisect", "bisect_closely", "bisected", "doubled", "halved", "search"]

Ends = tuple[Array, Array]


_FAR = 2.0**12


def bisect(is_below: Callable[[Array], Array], ends: Ends, steps: int) -> Array:
    """Returns the point between two ends at which a monotone predicate turns from true to false, elementwise."""
    lower, upper = bisected(is_below, ends, steps)
    return (lower + upper) / 2


def bisect_closely(is_below: Callable[[Array], Array], ends: Ends, most: int) -> Array:
    """Returns the same point to the last digit, in as many steps as that takes; it has no derivative."""

    def going(state: tuple[Array, Ends]) -> Array:
        number, (lower, upper) = state
        middle = (lower + upper) / 2
        return (number < most) & jnp.any((lower < middle) & (middle < upper))

    start = (jnp.zeros((), jnp.int32), ends)
    _, (lower, upper) = jax.lax.while_loop(going, lambda state: (state[0] + 1, halved(is_below, state[1])), start)
    return (lower + upper) / 2


def bisected(is_below: Callable[[Array], Array], ends: Ends, steps: int) -> Ends:
    """Returns the ends after so many steps of the bisection."""
    return jax.lax.fori_loop(0, steps, lambda _, ends: halved(is_below, ends), ends)


def doubled(is_near: Callable[[Array], Array], end: Array, steps: int) -> Array:
    """Returns an end, doubled while it is too near, elementwise."""
    return jax.lax.fori_loop(0, steps, lambda _, end: jnp.where(is_near(end), 2 * end, end), end)


def halved(is_below: Callable[[Array], Array], ends: Ends) -> Ends:
    """Returns the ends after one step of the bisection."""
    lower, upper = ends
    # Between ends of very different magnitude, as for a count with an uncertain log mean, the arithmetic middle misses
    # small numbers: there the geometric middle is taken.
    far = upper - lower > _FAR * (1.0 + jnp.minimum(jnp.abs(lower), jnp.abs(upper)))
    between = jnp.sinh((jnp.arcsinh(lower) + jnp.arcsinh(upper)) / 2)
    middle = jnp.where(far, between, (lower + upper) / 2)
    below = is_below(middle)
    return jnp.where(below, middle, ends[0]), jnp.where(below, ends[1], middle)


_WHOLE = 0.5  # distance between ends at which their middle rounds to the whole number between them


def search(is_below: Callable[[Array], Array], ends: Ends, compiled: bool = True, whole: bool = False) -> Array:
    """Returns the point at which a monotone predicate turns, to the resolution of the ends' dtype."""
    # `whole`: whether the predicate turns at a whole number; then a few steps suffice, as the point can be rounded.
    steps = 60 if ends[0].dtype == jnp.float64 else 30
    if compiled and not whole:
        return bisect(is_below, ends, steps)
    apart = lambda ends: jnp.any(ends[1] - ends[0] > _WHOLE)
    if compiled:
        going = lambda state: (state[0] < steps) & apart(state[1])
        _, ends = jax.lax.while_loop(going, lambda state: (state[0] + 1, halved(is_below, state[1])), (0, ends))
        return (ends[0] + ends[1]) / 2
    for _ in range(steps):
        if whole and not apart(ends):
            break
        ends = halved(is_below, ends)
    return (ends[0] + ends[1]) / 2
