"""Block-diagonal operators: one operator a leaf, a layer or another part of the space."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import jax
import jax.numpy as jnp
from jax.scipy.linalg import block_diag

from lamu import tree
from lamu.operators.dense import Dense
from lamu.operators.diagonal import Diagonal, Scalar
from lamu.operators.interface import Operator, is_operator
from lamu.record import record
from lamu.typing import Array, Number, Params, PyTree

__all__ = ["BlockDiagonal", "DenseBlocks"]


@record
class BlockDiagonal(Operator):
    r"""A block-diagonal operator, with one operator for each part of the space.

    The blocks are a prefix tree of the space: an operator may stand at a leaf, at a layer's dictionary, or at a
    top-level key. Types may be mixed. It is linear in its leaves where its blocks are.

    Attributes:
        blocks: a tree of operators, a prefix of the space.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import BlockDiagonal, Kronecker, Scalar
        >>> S = BlockDiagonal({"bias": Scalar(2.0), "kernel": Kronecker(jnp.eye(2), 3.0 * jnp.eye(1))})
        >>> S.diagonal({"bias": jnp.zeros(1), "kernel": jnp.zeros((2, 1))})["kernel"].ravel().tolist()
        [3.0, 3.0]
    """

    blocks: PyTree

    def __post_init__(self) -> None:
        """Checks that the blocks are operators."""
        for block in jax.tree.leaves(self.blocks, is_leaf=is_operator):
            if not is_operator(block):
                raise TypeError(f"a block is a {type(block).__name__}; every leaf of blocks must be an operator")

    def matvec(self, v: Params) -> Params:
        return self._map(lambda block, part: block.matvec(part), v)

    def factored(self) -> BlockDiagonal:
        """Returns the operator with every block factored."""
        return BlockDiagonal(self._map(lambda block: block.factored()))

    def solve(self, v: Params) -> Params:
        return self._map(lambda block, part: block.solve(part), v)

    def inverse_root(self, z: Params) -> Params:
        return self._map(lambda block, part: block.inverse_root(part), z)

    def logdet(self, like: Params) -> Array:
        """Returns the sum of the blocks' log determinants."""
        return _total(self._map(lambda block, part: block.logdet(part), like))

    def diagonal(self, like: Params) -> Params:
        return self._map(lambda block, part: block.diagonal(part), like)

    def variance(self, like: Params) -> Params:
        return self._map(lambda block, part: block.variance(part), like)

    def dense(self, like: Params) -> Array:
        return block_diag(*jax.tree.leaves(self._map(lambda block, part: block.dense(part), like)))

    def trace_solve(self, other: Operator, like: Params) -> Array:
        """Returns tr(S⁻¹ other), which depends only on the other's blocks.

        Cheap where the other is a diagonal, or has the same blocks; any other operator is converted to a matrix.
        """
        others = self._blocks_of(other, like)
        return _total(self._map(lambda block, part, of: block.trace_solve(of, part), like, others))

    def scale(self, factor: Number) -> BlockDiagonal:
        return type(self)(self._map(lambda block: block.scale(factor)))

    def add(self, other: Operator) -> BlockDiagonal:
        """Returns S + other, exactly, for an other of the same blocks or a diagonal."""
        others = self._parts_of(other)
        if others is None:
            raise TypeError(f"a {type(other).__name__} has no blocks; add a BlockDiagonal, a Diagonal or a Scalar")
        return type(self)(self._map(lambda block, of: block.add(of), others))

    def add_diagonal(self, values: Params) -> BlockDiagonal:
        """Returns S plus a diagonal, as far as the structure of every block can represent it."""
        return type(self)(self._map(lambda block, part: block.add_diagonal(part), values))

    def spectrum(self) -> PyTree:
        return self._map(lambda block: block.spectrum())

    @property
    def per_output(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the only block keeps one matrix an output."""
        blocks = self._leaves(lambda block: block)
        return len(blocks) == 1 and blocks[0].per_output

    def tangent_covariance(self, jacobian: Params, marginal: bool) -> Array:
        """Returns J S⁻¹ Jᵀ of every row, the sum over the blocks."""
        return reduce(jnp.add, self._leaves(lambda block, part: block.tangent_covariance(part, marginal), jacobian))

    def feature_covariance(self, features: Array, outputs: int, marginal: bool) -> Array | None:
        """Returns the covariance of the only block; None where there are several."""
        blocks = self._leaves(lambda block: block)
        return blocks[0].feature_covariance(features, outputs, marginal) if len(blocks) == 1 else None

    def by_leaf(self, numbers: PyTree) -> list[tuple[Operator, list[int]]]:
        return [each for blocks in self._leaves(lambda block, part: block.by_leaf(part), numbers) for each in blocks]

    def is_positive(self, like: Params) -> Array:
        signs = self._map(lambda block, part: block.is_positive(part), like)
        return reduce(jnp.logical_and, jax.tree.leaves(signs), jnp.asarray(True))

    def _leaves(self, function: Callable[..., PyTree], *rest: PyTree) -> list[PyTree]:
        layout = jax.tree.structure(self.blocks, is_leaf=is_operator)
        return [function(*each) for each in zip(*map(layout.flatten_up_to, (self.blocks, *rest)), strict=True)]

    def _map(self, function: Callable[..., PyTree], *rest: PyTree) -> PyTree:
        return jax.tree.map(function, self.blocks, *rest, is_leaf=is_operator)

    def _parts_of(self, other: Operator) -> PyTree | None:
        """Returns the other's operators on the parts of S; None where it does not have the same parts."""
        if isinstance(other, Scalar):
            return self._map(lambda block: other)
        if isinstance(other, Diagonal):
            return self._map(lambda block, part: Diagonal(part), other.values)
        layout = lambda blocks: jax.tree.structure(blocks, is_leaf=is_operator)
        if isinstance(other, BlockDiagonal) and layout(other.blocks) == layout(self.blocks):
            return other.blocks
        return None

    def _blocks_of(self, other: Operator, like: Params) -> PyTree:
        """Returns the same for any other operator, from its matrix."""
        parts = self._parts_of(other)
        if parts is not None:
            return parts
        matrix, start, blocks = other.dense(like), 0, []
        for size in jax.tree.leaves(self._map(lambda block, part: tree.dimension(part), like)):
            blocks.append(Dense(matrix[start : start + size, start : start + size]))
            start += size
        return jax.tree.unflatten(jax.tree.structure(self.blocks, is_leaf=is_operator), blocks)


@record
class DenseBlocks(BlockDiagonal):
    r"""A full matrix for each leaf: exact correlations within leaves and none between them.

    It is linear in its leaves, so that it can be the precision of a Gaussian that the rule updates.

    Attributes:
        blocks: one `Dense` a leaf of the space.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import DenseBlocks
        >>> S = DenseBlocks.from_diagonal({"b": jnp.array([2.0]), "w": jnp.array([4.0, 8.0])})
        >>> S.blocks["w"].matrix.tolist()
        [[4.0, 0.0], [0.0, 8.0]]
    """

    @classmethod
    def numbers_held(cls, like: Params) -> int:
        """Returns the sum of the squares of the leaves' sizes."""
        return sum(Dense.numbers_held(leaf) for leaf in jax.tree.leaves(like))

    def logdet_plus(self, precision: PyTree, like: Params, spectrum: PyTree = None) -> Array:
        """Returns log det(S + Δ), by the eigenvalues for leaves where Δ is one number."""
        if spectrum is None:
            return super().logdet_plus(precision, like)
        numbers = jax.tree.map(lambda p, below: jax.tree.map(lambda _: p, below), precision, like)
        return _total(self._map(lambda block, *part: block.logdet_plus(*part), numbers, like, spectrum))

    @classmethod
    def from_diagonal(cls, diagonal: Params) -> DenseBlocks:
        """Returns diag(diagonal)."""
        return cls(jax.tree.map(Dense.from_diagonal, diagonal))

    @classmethod
    def from_jacobian(cls, jacobian: Params, weight: Array) -> DenseBlocks:
        """Returns the blocks of the sum over the batch of Jᵀ W J."""
        return cls(jax.tree.map(lambda leaf: Dense.from_jacobian(leaf, weight), jacobian))

    @classmethod
    def from_hessian(cls, product: Callable[[Params], Params], like: Params) -> DenseBlocks:
        """Returns the blocks of the matrix, one product a column."""
        leaves, structure = jax.tree.flatten(like)

        def block(index: int) -> Dense:
            def within(part: Array) -> Array:
                parts = [jnp.zeros_like(leaf) for leaf in leaves]
                parts[index] = part
                return jax.tree.leaves(product(jax.tree.unflatten(structure, parts)))[index]

            return Dense.from_hessian(within, leaves[index])

        return cls(jax.tree.unflatten(structure, [block(index) for index in range(len(leaves))]))

    @classmethod
    def from_outer(cls, u: Params, v: Params) -> DenseBlocks:
        """Returns the blocks of the symmetric part of u vᵀ."""
        return cls(jax.tree.map(Dense.from_outer, u, v))

    @classmethod
    def statistic(cls, theta: Params) -> DenseBlocks:
        """Returns the blocks of θ θᵀ."""
        return cls.from_outer(theta, theta)

    def sandwich(self, delta: DenseBlocks) -> DenseBlocks:
        """Returns the blocks of Δ S⁻¹ Δ."""
        return DenseBlocks(self._map(lambda block, of: block.sandwich(of), delta.blocks))

    def second_moment(self, like: Params) -> DenseBlocks:
        """Returns the blocks of S⁻¹."""
        return DenseBlocks(self._map(lambda block, part: block.second_moment(part), like))


def _total(terms: PyTree) -> Array:
    return reduce(jnp.add, jax.tree.leaves(terms))
