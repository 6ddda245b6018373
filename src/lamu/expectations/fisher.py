r"""From a gradient in λ to one in μ, \(\nabla_\mu = F^{-1} \nabla_\lambda\), member by member."""

# \(d\mu = F\, d\lambda\) with \(F = \nabla^2 A(\lambda)\) the Fisher matrix, which is block diagonal over the members
# of a batch of beliefs: one small system each (two equations for a Gamma or a Beta), whatever the number of parameters.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from lamu.families import ExponentialFamily
from lamu.typing import Array

__all__ = ["inverse_fisher", "require_exponential"]


def require_exponential(belief: Any, name: str) -> None:
    """Refuses a belief without natural parameters."""
    if not isinstance(belief, ExponentialFamily):
        raise TypeError(f"{name} needs a belief of an exponential family, not a {type(belief).__name__}")


def inverse_fisher(belief: ExponentialFamily) -> Callable[[Any], Any]:
    r"""Returns the function \(v \mapsto F^{-1} v\) on trees like the values of λ, with F factored once."""
    family, natural = type(belief), belief.natural()
    if family.events == (0,):  # one number a member: its Fisher information
        ones = jax.tree.map(jnp.ones_like, natural.values)
        information = belief.fisher_product(ones)
        return lambda values: jax.tree.map(jnp.divide, values, information)
    several = len(family.events) > 1
    components = natural.values if several else (natural.values,)
    structure = jax.tree.structure(components[0])
    groups = list(zip(*map(jax.tree.leaves, components), strict=True))

    def fisher(*leaves: Array) -> Array:
        vector, unravel = ravel_pytree(leaves)
        pack = lambda at: unravel(at) if several else unravel(at)[0]
        return jax.hessian(lambda at: family.partition(pack(at), natural.given))(vector)

    inverses = [_inverse(jax.vmap(fisher)(*_members(group, family.events)), family.events) for group in groups]

    def product(values: Any) -> Any:
        parts = values if several else (values,)
        solved = [
            _apply(inverse, group, family.events)
            for inverse, group in zip(inverses, zip(*map(jax.tree.leaves, parts), strict=True), strict=True)
        ]
        trees = tuple(jax.tree.unflatten(structure, list(leaves)) for leaves in zip(*solved, strict=True))
        return trees if several else trees[0]

    return product


def _members(group: tuple[Array, ...], events: tuple[int, ...]) -> list[Array]:
    return [leaf.reshape(-1, *leaf.shape[leaf.ndim - event :]) for leaf, event in zip(group, events, strict=True)]


def _apply(inverse: Array, group: tuple[Array, ...], events: tuple[int, ...]) -> tuple[Array, ...]:
    def one(inverse: Array, *leaves: Array) -> tuple[Array, ...]:
        vector, unravel = ravel_pytree(leaves)
        return unravel(inverse @ vector)

    solved = jax.vmap(one)(inverse, *_members(group, events))
    return tuple(leaf.reshape(like.shape) for leaf, like in zip(solved, group, strict=True))


def _inverse(matrices: Array, events: tuple[int, ...]) -> Array:
    if max(events) < 2:
        return jnp.linalg.inv(matrices)
    # A symmetric matrix of parameters has fewer coordinates than entries. The pseudo-inverse is the inverse on them.
    return jnp.linalg.pinv(matrices, hermitian=True)
