"""Parts of a prior that know nothing of each other, put together: trees that have None where another one has leaves."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.families import Gaussian
from lamu.operators import BlockDiagonal, Dense, Diagonal, Operator, Scalar
from lamu.operators.interface import is_operator
from lamu.typing import Params

__all__ = ["independent_parts", "merged_parts", "restricted", "same_leaves"]

_LARGEST = 4096


def independent_parts(parts: Sequence[Gaussian | None]) -> Gaussian | None:
    """Returns the Gaussian of independent parts, over the leaves of those that are one; None where none is."""
    # The precision is a tree of blocks where each is over one leaf. Where a part has one matrix over several leaves it
    # is one matrix over all, of 4,096 coordinates at most; of more such a part is left out, and enters through the
    # loss.
    some = [part for part in parts if part is not None and jax.tree.leaves(part.mean)]
    if len(some) <= 1:
        return some[0] if some else next((part for part in parts if part is not None), None)
    if all(isinstance(part.precision, Diagonal | Scalar) for part in some):
        means, values = [part.mean for part in some], [part.precision.diagonal(part.mean) for part in some]
        return Gaussian(merged_parts(means), Diagonal(merged_parts(values)))
    blocks = [(part.mean, _blocks(part.precision, part.mean)) for part in some]
    if any(block is None for _, block in blocks) and sum(tree.dimension(part.mean) for part in some) <= _LARGEST:
        return _one_matrix(some)
    blocks = [(mean, block) for mean, block in blocks if block is not None]
    if not blocks:
        return None
    return Gaussian(merged_parts([mean for mean, _ in blocks]), BlockDiagonal(merged_parts([b for _, b in blocks])))


def merged_parts(parts: Sequence[Params]) -> Params:
    """Returns one tree of several that have None where another one has a leaf or an operator."""
    stop = lambda node: node is None or is_operator(node)
    return jax.tree.map(lambda *each: next((leaf for leaf in each if leaf is not None), None), *parts, is_leaf=stop)


def restricted(known: Gaussian, like: Params) -> Gaussian | None:
    """Returns the Gaussian of the leaves that a tree has, the others None; None where leaves are correlated."""
    stop = lambda node: node is None or is_operator(node)
    keep = lambda part: jax.tree.map(lambda x, value: None if x is None else value, like, part, is_leaf=stop)
    if isinstance(known.precision, Scalar):
        return Gaussian(keep(known.mean), known.precision)
    if isinstance(known.precision, Diagonal):
        return Gaussian(keep(known.mean), Diagonal(keep(known.precision.values)))
    if isinstance(known.precision, BlockDiagonal):
        return Gaussian(keep(known.mean), BlockDiagonal(keep(known.precision.blocks)))
    return None


def same_leaves(a: Params, b: Params) -> bool:
    """Returns whether two trees have leaves in the same places."""
    return jax.tree.structure(a) == jax.tree.structure(b)


def _one_matrix(parts: Sequence[Gaussian]) -> Gaussian:
    """The Gaussian of independent parts with a matrix over all of their leaves."""
    mean = merged_parts([part.mean for part in parts])
    flat, unravel = tree.ravel(mean)
    numbers = unravel(jnp.arange(flat.size, dtype=flat.dtype))
    matrix = jnp.zeros((flat.size, flat.size), flat.dtype)
    for part in parts:
        own = jax.tree.map(
            lambda leaf, number: None if leaf is None else number, part.mean, numbers, is_leaf=lambda leaf: leaf is None
        )
        at = tree.ravel(own)[0].astype(jnp.int32)
        matrix = matrix.at[at[:, None], at[None]].set(part.precision.dense(part.mean).astype(flat.dtype))
    return Gaussian(mean, Dense(matrix))


def _blocks(precision: Operator, like: Params) -> Params | None:
    """An operator as a tree of operators leaf by leaf, where it is one."""
    if isinstance(precision, Diagonal | Scalar):
        return jax.tree.map(Diagonal, precision.diagonal(like))
    if isinstance(precision, Dense) and len(jax.tree.leaves(like)) == 1:
        return jax.tree.map(lambda _: precision, like)
    return precision.blocks if isinstance(precision, BlockDiagonal) else None
