r"""From μ to λ without a formula: Newton's method on the convex \(A(\lambda) - \langle\lambda, \mu\rangle\)."""

# The step is \(\lambda + F^{-1}(\mu - \nabla A(\lambda))\), taken by the family's retraction, which cannot leave the
# domain, and halved until the objective falls. The result is differentiated by the implicit function theorem.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from lamu.typing import Array

__all__ = ["increasing_root", "natural_from_expectation"]

STEPS = 200


class _Search(NamedTuple):
    """Where the search is: at λ, with the objective's value there, Newton's direction and its slope, and the rate."""

    taken: Array
    natural: Array
    value: Array
    direction: Array
    slope: Array
    rate: Array


def natural_from_expectation(family: Any, values: Any) -> Any:
    r"""Returns the λ at which \(\nabla A(\lambda) = \mu\), member by member; NaN where there is none."""
    components = values if len(family.events) > 1 else (values,)
    structure = jax.tree.structure(components[0])
    found = [_leaf(family, leaves) for leaves in zip(*map(jax.tree.leaves, components), strict=True)]
    natural = tuple(jax.tree.unflatten(structure, component) for component in zip(*found, strict=True))
    return natural if len(family.events) > 1 else natural[0]


def _leaf(family: Any, components: tuple[Array, ...]) -> tuple[Array, ...]:
    shapes = [(a.shape[: a.ndim - e], a.shape[a.ndim - e :]) for a, e in zip(components, family.events, strict=True)]
    batch = shapes[0][0]
    members = tuple(a.reshape(-1, *event) for a, (_, event) in zip(components, shapes, strict=True))
    solved = jax.vmap(lambda *mu: _member(family, mu))(*members)
    return tuple(a.reshape(batch + event) for a, (_, event) in zip(solved, shapes, strict=True))


def _member(family: Any, components: tuple[Array, ...]) -> tuple[Array, ...]:
    """Solves for one member, by its vector of λ."""
    packed = components if len(family.events) > 1 else components[0]
    mu, unravel = ravel_pytree(packed)
    A = lambda natural: family.partition(unravel(natural), ())
    gradient = jax.grad(A)
    tolerance = 100.0 * jnp.finfo(mu.dtype).eps

    def search(residual: Callable[[Array], Array], start: Array) -> Array:
        target = gradient(start) - residual(start)

        def step(at: _Search) -> _Search:
            belief = family.from_natural(unravel(at.natural), ())
            tried = ravel_pytree(belief.retract(unravel(at.direction), at.rate).to_natural())[0]
            value = A(tried) - tried @ target
            slack = tolerance * (1.0 + jnp.abs(at.value))
            falls = value <= at.value - 1e-4 * at.rate * at.slope + jnp.where(jnp.isfinite(slack), slack, 0.0)
            downhill = target - gradient(tried)
            direction = jnp.linalg.solve(jax.hessian(A)(tried), downhill)
            moved = _Search(at.taken, tried, value, direction, downhill @ direction, jnp.ones_like(at.rate))
            shortened = at._replace(rate=at.rate / 2.0)
            chosen = jax.tree.map(lambda new, old: jnp.where(falls, new, old), moved, shortened)
            return chosen._replace(taken=at.taken + 1)

        def searching(at: _Search) -> Array:
            far = jnp.any(jnp.abs(at.direction) > tolerance * (1.0 + jnp.abs(at.natural)))
            return (at.taken < STEPS) & (far | (at.taken == 0)) & (at.rate > 1e-9)

        nowhere = jnp.zeros_like(start)
        infinity, one = jnp.full((), jnp.inf, start.dtype), jnp.ones((), start.dtype)
        first = _Search(jnp.zeros((), jnp.int32), start, infinity, nowhere, 0.0 * one, one)
        end = jax.lax.while_loop(searching, step, first)
        solved = jnp.all(
            jnp.abs(end.direction) <= jnp.maximum(jnp.sqrt(tolerance), 1e-4) * (1.0 + jnp.abs(end.natural))
        )
        return jnp.where(solved, end.natural, jnp.nan)

    start = jax.lax.stop_gradient(ravel_pytree(family.guess(packed).to_natural())[0])
    natural = jax.lax.custom_root(lambda natural: gradient(natural) - mu, start, search, _solve)
    made = unravel(natural)
    return made if len(family.events) > 1 else (made,)


def _solve(linear: Callable[[Array], Array], target: Array) -> Array:
    return jnp.linalg.solve(jax.jacobian(linear)(jnp.zeros_like(target)), target)


def increasing_root(function: Callable[[Array], Array], target: Array, low: float, high: float) -> Array:
    """Returns the t in [low, high] at which an elementwise increasing function is `target`, by bisection."""

    def search(excess: Callable[[Array], Array], start: Array) -> Array:
        def halve(_: Any, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
            below, above = bounds
            middle = (below + above) / 2.0
            short = excess(middle) < 0
            return jnp.where(short, middle, below), jnp.where(short, above, middle)

        below, above = jax.lax.fori_loop(0, 64, halve, (jnp.full_like(start, low), jnp.full_like(start, high)))
        return (below + above) / 2.0

    def divide(linear: Callable[[Array], Array], right: Array) -> Array:
        return right / linear(jnp.ones_like(right))

    return jax.lax.custom_root(lambda t: function(t) - target, jnp.zeros_like(target), search, divide)
