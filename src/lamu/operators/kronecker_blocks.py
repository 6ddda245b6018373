"""Kronecker-factored precisions, one Kronecker product a layer, as in K-FAC."""

# Layers are told from the tree alone: a pair `{"bias", "kernel"}` is one, and so is any other leaf of two axes or more;
# the last axis stands for the outputs. All else is diagonal.

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.operators.block_diagonal import BlockDiagonal
from lamu.operators.diagonal import Diagonal
from lamu.operators.interface import Operator, layer_shapes
from lamu.operators.kronecker import Kronecker
from lamu.operators.kronecker_leading import leading
from lamu.operators.stale_factors import StaleFactors
from lamu.operators.weight_sharing import Expand, Sharing
from lamu.record import record, static
from lamu.typing import Params

__all__ = ["KroneckerBlocks", "KroneckerFactored"]


@record
class KroneckerBlocks(BlockDiagonal):
    r"""A Kronecker product plus a multiple of the identity for each layer, and a diagonal for every other leaf.

    Of a diagonal that is added, a layer keeps the mean over its coordinates: exact for a prior of one scale a layer.

    Attributes:
        blocks: a tree of `Kronecker` and `Diagonal`, a prefix of the space.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import Diagonal, Kronecker
        >>> from lamu.operators.kronecker_blocks import KroneckerBlocks
        >>> S = KroneckerBlocks({"w": Kronecker(jnp.eye(2), jnp.eye(1))})
        >>> float(S.add(Diagonal({"w": jnp.array([[1.0], [3.0]])})).blocks["w"].shift)
        2.0
    """

    def add(self, other: Operator) -> KroneckerBlocks:
        """Returns S + other: exactly for blocks and a `Scalar`, with the layers' means for a `Diagonal`."""
        added = self.add_diagonal(other.values) if isinstance(other, Diagonal) else super().add(other)
        return KroneckerBlocks(added.blocks)

    def leading(self, rank: int) -> BlockDiagonal:
        """Returns the operator factored, with no more than `rank` eigenvectors of each factor (see `leading`)."""
        return BlockDiagonal(
            self._map(lambda block: leading(block, rank) if isinstance(block, Kronecker) else block.factored())
        )


@record
class KroneckerFactored:
    """The structure of a Kronecker-factored precision: a `Kronecker` block a layer, a `Diagonal` for other leaves.

    Attributes:
        diagonal: a path pattern, or several, of leaves that get a diagonal whatever they are, for instance
            `"embedding/*"`.
        rank: how many eigenvectors of each factor are kept (`leading`); None for all.
        sharing: what becomes of the positions at which a kernel is used: `Expand()` or `Reduce()`.

    Raises:
        ValueError: for a rank that is not a positive integer.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators.kronecker_blocks import KroneckerFactored
        >>> S = KroneckerFactored().from_diagonal({"bias": jnp.ones(1), "kernel": jnp.ones((2, 1))})
        >>> S.fresh.blocks.input_factor.shape
        (3, 3)
    """

    diagonal: Any = static(default=())
    rank: int | None = static(default=None)
    sharing: Sharing = static(default=Expand())

    def __post_init__(self) -> None:
        patterns = (self.diagonal,) if isinstance(self.diagonal, str) else tuple(self.diagonal)
        object.__setattr__(self, "diagonal", patterns)
        if self.rank is not None and (not isinstance(self.rank, int) or self.rank < 1):
            raise ValueError(
                f"rank={self.rank!r} keeps no eigenvector; give a positive integer, or None for all of them"
            )

    def __str__(self) -> str:
        return "Kronecker"

    def apart(self, like: Params) -> list[int]:
        """Returns the leaves that the patterns name, by number.

        Raises:
            ValueError: if a pattern matches no leaf.
        """
        tree.require_matches(self.diagonal, like)
        paths = tree.paths(like)
        return [i for i, path in enumerate(paths) if any(tree.matches(path, each) for each in self.diagonal)]

    def numbers_held(self, like: Params) -> int:
        """Returns how many numbers the factors and the diagonals of such a precision are.

        Args:
            like: a vector of the space, or its shapes.
        """
        return sum(rows**2 + columns**2 for rows, columns in layer_shapes(like)) + Diagonal.numbers_held(like)

    def from_diagonal(self, diagonal: Params) -> StaleFactors:
        """Returns the operator without curvature: the mean of the diagonal a layer, for its shift."""
        apart = self.apart(diagonal)
        leaves, structure = jax.tree.flatten(diagonal)
        marked = structure.unflatten([_Leaf(leaf, number in apart) for number, leaf in enumerate(leaves)])
        blocks = KroneckerBlocks(jax.tree.map(_start, marked, is_leaf=_is_layer))
        return StaleFactors.of(blocks, self.rank)


class _Leaf:
    """A leaf, and whether it stays out of the layers."""

    def __init__(self, value: Any, apart: bool) -> None:
        self.value, self.apart = value, apart


def _is_layer(node: Any) -> bool:
    pair = isinstance(node, dict) and set(node) == {"bias", "kernel"}
    whole = pair and all(isinstance(part, _Leaf) and not part.apart for part in node.values())
    return whole and node["bias"].value.ndim == 1 and node["kernel"].value.ndim >= 2


def _start(node: Any) -> Kronecker | Diagonal:
    if isinstance(node, _Leaf):
        if node.apart or node.value.ndim < 2:
            return Diagonal(node.value)
        values, kernel, extra = node.value, node.value, 0
    else:
        values, kernel, extra = {name: leaf.value for name, leaf in node.items()}, node["kernel"].value, 1
    zero = lambda size: jnp.zeros((size, size), kernel.dtype)
    outputs = kernel.shape[-1]
    return Kronecker(zero(kernel.size // outputs + extra), zero(outputs), jnp.mean(tree.ravel(values)[0]))
