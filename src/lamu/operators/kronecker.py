"""Kronecker-factored operators, for the curvature of a layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.base.arguments import require_whole_field
from lamu.operators.block_diagonal import BlockDiagonal
from lamu.operators.diagonal import Diagonal, Eigenbasis, Scalar
from lamu.operators.interface import Operator, layer_shapes
from lamu.operators.low_rank import leading_eigenpairs
from lamu.record import record, static
from lamu.typing import Array, Number, OperatorTree, Params, PyTree, RandomKey

__all__ = [
    "Expand",
    "Kronecker",
    "KroneckerBlocks",
    "KroneckerEigen",
    "KroneckerFactored",
    "KroneckerLeading",
    "Reduce",
    "StaleFactors",
    "as_matrix",
    "between",
    "leading",
]


_WIDEST = 2048  # the widest factor of which a full eigendecomposition is computed once


@record
class StaleFactors(Operator):
    r"""An operator with stale factors: `used` was factored at an earlier step, `fresh` is up to date.

    All methods use `used`, so that solves and draws are cheap and consistent with each other. `fresh` is updated at
    every step, and factored every few steps, as in K-FAC.

    Attributes:
        used: the factored operator.
        fresh: the operator that is updated.
        moves: the number of updates.
        rank: the number of eigenvectors kept of a factor, where the operator supports it (`KroneckerBlocks`); None for
            all of them.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import Kronecker
        >>> from lamu.operators.kronecker import StaleFactors
        >>> old = StaleFactors.of(Kronecker(jnp.eye(1), jnp.eye(1)))
        >>> moved = old.moved(Kronecker(jnp.eye(1), 4.0 * jnp.eye(1)), every=2)
        >>> float(moved.solve(jnp.ones((1, 1)))[0, 0])  # the first step is always time
        0.25
    """

    used: OperatorTree
    fresh: OperatorTree
    moves: Array
    rank: int | None = static(default=None)

    @classmethod
    def of(cls, operator: OperatorTree, rank: int | None = None) -> StaleFactors:
        """Returns the factored operator before the first update."""
        # A block that is its own factor would be in the state twice, and a buffer can be donated only once.
        used = jax.tree.map(jnp.copy, _factored(operator, rank))
        return cls(used, operator, jnp.zeros((), jnp.int32), rank)

    def moved(self, fresh: OperatorTree, every: int) -> StaleFactors:
        """Returns the operator after an update of the fresh one, factored anew at some of the updates.

        Args:
            fresh: the new operator.
            every: the period of the factorisations, in updates. In the first period the operator changes fast and is
                factored at updates 1, 2, 4, 8, ...
        """
        moves = self.moves + 1
        young = (moves < every) & ((moves & (moves - 1)) == 0)
        due = young | (moves % every == 0)
        factor = lambda: _factored(fresh, self.rank, self.used)
        used = factor() if every == 1 else jax.lax.cond(due, factor, lambda: self.used)
        return StaleFactors(used, fresh, moves, self.rank)

    def renewed(self) -> StaleFactors:
        """Returns the operator with the fresh one in use, with all eigenvectors unless a factor is very wide.

        The final result should be neither stale nor truncated: the mean of the omitted eigenvalues would replace those
        of directions without information from the data, and narrow the prior there.
        """
        widest = max(max(jnp.shape(leaf), default=0) for leaf in jax.tree.leaves(self.fresh))
        rank = None if widest <= _WIDEST else self.rank
        return StaleFactors(_factored(self.fresh, rank), self.fresh, self.moves, self.rank)

    def matvec(self, v: Params) -> Params:
        return self.used.matvec(v)

    def factored(self) -> Operator:
        """Returns the factored operator alone."""
        return self.used

    def sample(self, key: RandomKey, like: Params) -> Params:
        return self.used.sample(key, like)

    def diagonal(self, like: Params) -> Params:
        return self.used.diagonal(like)

    def trace_solve(self, other: Operator, like: Params) -> Array:
        return self.used.trace_solve(other.used if isinstance(other, StaleFactors) else other, like)

    def scale(self, factor: Number) -> Operator:
        """Returns factor · S of the operator in use; a scaled operator belongs to a belief and is not updated."""
        return self.used.scale(factor)

    def add(self, other: Operator) -> Operator:
        """Returns S + other for the operator in use."""
        return self.used.add(other)

    def is_positive(self, like: Params) -> Array:
        """Returns whether the operator in use is positive definite, and the fresh one has no NaN."""
        finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((self.fresh, self.moves))]
        return self.used.is_positive(like) & jnp.all(jnp.stack(finite))


def _factored(operator: OperatorTree, rank: int | None, near: OperatorTree = None) -> OperatorTree:
    return operator.factored() if rank is None else operator.leading(rank, near)


@record
class Expand:
    """K-FAC-expand: every position is treated as a separate row, as in the original method for convolutions."""

    # \[ \overline{a a^\top} = \tfrac1P \sum_p a_p a_p^\top, \qquad \overline{d d^\top} = \sum_p d_p d_p^\top \]
    #
    # Exact for deep linear networks whose positions are rows of the loss.
    #
    # Source: Grosse & Martens (2016); Eschenhagen et al. (2023), section 3.

    def view(self, inputs: Array, cotangents: Array) -> tuple[Array, Array]:
        """Returns both unchanged."""
        return inputs, cotangents


@record
class Reduce:
    """K-FAC-reduce: positions are summed before the products, at a fraction of the cost."""

    # \[ \overline{a a^\top} = \bar a \bar a^\top, \quad \bar a = \tfrac1P \sum_p a_p, \qquad
    #    \overline{d d^\top} = \bar d \bar d^\top, \quad \bar d = \sum_p d_p \]
    #
    # Exact for deep linear networks that average over positions in the end.
    #
    # Source: Eschenhagen et al. (2023), section 3.

    def view(self, inputs: Array, cotangents: Array) -> tuple[Array, Array]:
        """Returns the mean and the sum over the positions."""
        return jnp.mean(inputs, axis=1, keepdims=True), jnp.sum(cotangents, axis=1, keepdims=True)


# For a kernel V of shape `[in, out]` the operator \(A \otimes B\) maps V to \(A V B\), with A acting on the inputs and
# B on the outputs. The space may be any of \(\mathrm{in} \cdot \mathrm{out}\) coordinates, in the order of
# `lamu.tree.ravel`: a convolution's kernel `[height, width, in, out]`, where A acts on the patch, or the pair
# `{"bias", "kernel"}`, where the bias is the first row and A has a constant input one. A network has a
# `BlockDiagonal` of such operators, with `Dense` ones for leaves without factors.


@record
class Kronecker(Operator):
    r"""The operator \(S = A \otimes B + \delta I\).

    It is not linear in its leaves: the sum of two Kronecker products is in general not a Kronecker product, so that
    the rule's step needs a projection back to the structure. Only a multiple of the identity is added exactly.
    Solving, sampling and determinants compute the eigendecompositions of A and B, at a cost of
    \(\mathrm{in}^3 + \mathrm{out}^3\): use `factored()` to pay once.

    Attributes:
        input_factor: A, symmetric, shape `[in, in]`.
        output_factor: B, symmetric, shape `[out, out]`.
        shift: δ, a number.

    Source:
        Martens and Grosse, "Optimizing neural networks with Kronecker-factored approximate curvature", 2015.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import Kronecker
        >>> kernel = jnp.ones((2, 3))
        >>> Kronecker(2.0 * jnp.eye(2), jnp.eye(3), shift=0.5).solve(kernel)[0].tolist()  # 1 / 2.5
        [0.4..., 0.4..., 0.4...]
    """

    input_factor: Array
    output_factor: Array
    shift: Number | Array = 0.0

    def __post_init__(self) -> None:
        """Checks that both factors are square."""
        for name, factor in (("input_factor", self.input_factor), ("output_factor", self.output_factor)):
            if factor.ndim < 2 or factor.shape[-1] != factor.shape[-2]:
                raise ValueError(f"{name} has the shape {factor.shape}; a Kronecker factor is a square matrix")

    def matvec(self, v: Params) -> Params:
        """Returns A V B + δ V."""
        matrix, unravel = as_matrix(v, (self.input_factor.shape[0], self.output_factor.shape[0]))
        product = between(self.input_factor, matrix, self.output_factor)
        return unravel(product + tree.cast(self.shift, matrix) * matrix)

    def factored(self) -> KroneckerEigen:
        """Returns the eigendecomposition, an operator too."""
        inputs, input_basis = _eigh(self.input_factor)
        outputs, output_basis = _eigh(self.output_factor)
        eigenvalues = inputs[:, None] * outputs[None, :]
        return KroneckerEigen(input_basis, output_basis, eigenvalues + tree.cast(self.shift, eigenvalues))

    def sample(self, key: RandomKey, like: Params) -> Params:
        return self.factored().sample(key, like)

    def diagonal(self, like: Params) -> Params:
        """Returns the diagonal of S, which needs no eigendecomposition."""
        outer = jnp.outer(jnp.diagonal(self.input_factor), jnp.diagonal(self.output_factor))
        return tree.ravel(like)[1](jnp.ravel(outer + tree.cast(self.shift, outer)))

    def trace_solve(self, other: Operator, like: Params) -> Array:
        return self.factored().trace_solve(other, like)

    def scale(self, factor: Number) -> Kronecker:
        shift = self.shift * tree.cast(factor, self.shift)
        return Kronecker(self.input_factor * tree.cast(factor, self.input_factor), self.output_factor, shift)

    def add(self, other: Operator) -> Kronecker:
        """Returns S plus a multiple of the identity (a `Scalar`), exactly.

        Raises:
            TypeError: for any other operator, since the sum would not be a Kronecker product.
        """
        if not isinstance(other, Scalar):
            raise TypeError(
                f"a Kronecker product plus a {type(other).__name__} is not a Kronecker product; add a Scalar, or "
                "project first"
            )
        value = other.value if isinstance(self.shift, float | int) else tree.cast(other.value, self.shift)
        return Kronecker(self.input_factor, self.output_factor, self.shift + value)

    def add_diagonal(self, values: Params) -> Kronecker:
        """Returns S plus the mean of a diagonal times the identity."""
        return self.add(Scalar(jnp.mean(tree.ravel(values)[0])))

    def spectrum(self) -> Array:
        return self.factored().eigenvalues


@record
class KroneckerEigen(Eigenbasis):
    r"""The operator \(S = (P \otimes Q)\, \mathrm{diag}(e)\, (P \otimes Q)^\top\), with orthogonal P and Q.

    Not linear in its leaves. `Kronecker.factored()` makes it.

    Attributes:
        input_basis: P, the eigenvectors of A in its columns, shape `[in, in]`.
        output_basis: Q, the eigenvectors of B in its columns, shape `[out, out]`.
        eigenvalues: e, products of an eigenvalue of A and one of B plus the shift, shape `[in, out]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import Kronecker
        >>> Kronecker(jnp.diag(jnp.array([1.0, 3.0])), jnp.eye(1)).factored().eigenvalues.ravel().tolist()
        [1.0, 3.0]
    """

    input_basis: Array
    output_basis: Array
    eigenvalues: Array

    layered = True

    def apply(self, function: Callable[[Array], Array], v: Params) -> Params:
        """Returns f(S) v, by four products of small matrices."""
        rows = RowBlocks(v, self.eigenvalues.shape)
        rotated = rows.rotated(self.input_basis, self.output_basis)
        return rows.back(self.input_basis, function(self.eigenvalues) * rotated, self.output_basis)

    def diagonal_of(self, function: Callable[[Array], Array], like: Params) -> Params:
        diagonal = between(self.input_basis**2, function(self.eigenvalues), (self.output_basis**2).T)
        return tree.ravel(like)[1](jnp.ravel(diagonal))

    def sample(self, key: RandomKey, like: Params) -> Params:
        """Returns a draw from N(0, S⁻¹) by a normal draw in the eigenbasis, at half the cost of the symmetric root."""
        noise = as_matrix(tree.normal(key, like), self.eigenvalues.shape)[0]
        rows = RowBlocks(like, self.eigenvalues.shape)
        return rows.back(self.input_basis, jax.lax.rsqrt(self.eigenvalues) * noise, self.output_basis)

    def trace_solve(self, other: Operator, like: Params) -> Array:
        """Returns tr(S⁻¹ other), without the matrix of the other where that is a Kronecker product or a diagonal."""
        if not isinstance(other, Kronecker):
            return super().trace_solve(other, like)
        inverse = 1 / self.eigenvalues
        inputs = jnp.diagonal(between(self.input_basis.T, other.input_factor, self.input_basis))
        outputs = jnp.diagonal(between(self.output_basis.T, other.output_factor, self.output_basis))
        return jnp.sum((jnp.outer(inputs, outputs) + tree.cast(other.shift, inverse)) * inverse)

    def feature_covariance(self, features: Array, outputs: int, marginal: bool) -> Array:
        """Returns the covariance of the outputs, from the rotated features."""
        rotated = jnp.matmul(features, self.input_basis, precision=_EXACT) ** 2
        inner = jnp.matmul(rotated, 1 / self.eigenvalues, precision=_EXACT)
        basis = self.output_basis
        if marginal:
            return jnp.matmul(inner, (basis**2).T, precision=_EXACT)
        return jnp.einsum("nj,kj,lj->nkl", inner, basis, basis, precision=_EXACT)

    def layer_inverse(self, outputs: int, outputs_first: bool) -> tuple[Array, Array, Array]:
        """Returns the bases of inputs and outputs, and 1 / e in these bases."""
        if outputs_first:
            return self.output_basis, self.input_basis, 1 / self.eigenvalues.T
        return self.input_basis, self.output_basis, 1 / self.eigenvalues


# By default accelerators round the operands of float32 products, which is visible in a rotated vector.
_EXACT = jax.lax.Precision.HIGHEST


def between(left: Array, matrix: Array, right: Array) -> Array:
    """Returns the product of three matrices, in full precision."""
    return jnp.matmul(jnp.matmul(left, matrix, precision=_EXACT), right, precision=_EXACT)


def as_matrix(v: Params, shape: tuple[int, ...]) -> tuple[Array, Callable[[Array], Params]]:
    """Returns a vector of the space as a matrix `[in, out]`, and the inverse function."""
    vector, unravel = tree.ravel(v)
    if vector.size != shape[0] * shape[1]:
        raise ValueError(
            f"the vector has {vector.size} coordinates, and factors of {shape[0]} inputs and {shape[1]} outputs "
            f"act on {shape[0] * shape[1]}; check the order of the two factors and whether the bias belongs to them"
        )
    return vector.reshape(shape[0], shape[1]), lambda matrix: unravel(jnp.ravel(matrix))


class RowBlocks:
    """A vector of the space as a matrix `[in, out]`, in blocks of rows, one a leaf."""

    # Avoids to copy a kernel and its bias into one matrix and back for a product: on CPUs the copies cost more than the
    # thin products.

    def __init__(self, v: Params, shape: tuple[int, ...]) -> None:
        """Finds the blocks; one copied block where a leaf does not consist of full rows."""
        leaves, structure = jax.tree.flatten(v)
        self.blocks: list[Array]
        rows, size = shape
        if any(leaf.size % size for leaf in leaves) or sum(leaf.size for leaf in leaves) != rows * size:
            matrix, unravel = as_matrix(v, shape)
            self.blocks, self._unravel = [matrix], lambda blocks: unravel(blocks[0])
            return
        own = lambda blocks: [block.reshape(leaf.shape) for block, leaf in zip(blocks, leaves, strict=True)]
        self.blocks = [leaf.reshape(-1, size) for leaf in leaves]
        self._unravel = lambda blocks: jax.tree.unflatten(structure, own(blocks))

    def rotated(self, left: Array, right: Array) -> Array:
        """Returns Lᵀ V R."""
        parts = self._parts(left)
        inner = [jnp.matmul(part.T, block, precision=_EXACT) for part, block in zip(parts, self.blocks, strict=True)]
        return jnp.matmul(reduce(jnp.add, inner), right, precision=_EXACT)

    def back(self, left: Array, middle: Array, right: Array, factor: Number | None = None) -> Params:
        """Returns L M Rᵀ as a vector of the space, plus factor times V where a factor is given."""
        products = [between(part, middle, right.T) for part in self._parts(left)]
        if factor is not None:
            products = [factor * block + each for block, each in zip(self.blocks, products, strict=True)]
        return self._unravel(products)

    def _parts(self, left: Array) -> list[Array]:
        ends = np.cumsum([block.shape[0] for block in self.blocks])
        return jnp.split(left, ends[:-1])


def _eigh(factor: Array) -> tuple[Array, Array]:
    """Returns the eigenvalues and eigenvectors of a factor."""
    # A factor of few examples is singular, and rounding makes some of its eigenvalues slightly negative. Multiplied by
    # the other factor they could exceed a small shift, so eigenvalues within the decomposition's error are set to zero.
    eigenvalues, basis = jnp.linalg.eigh((factor + factor.T) / 2)
    error = factor.shape[0] * jnp.finfo(eigenvalues.dtype).eps * jnp.max(jnp.abs(eigenvalues))
    return jnp.where((eigenvalues < 0) & (eigenvalues >= -error), jnp.zeros_like(eigenvalues), eigenvalues), basis


@record
class KroneckerLeading(Eigenbasis):
    r"""The operator \(S = c I + (P \otimes Q)\, \mathrm{diag}(e - c)\, (P \otimes Q)^\top\), with orthonormal columns.

    It is not linear in its leaves. With all columns it equals `KroneckerEigen`, whose solves and draws take
    \(2\, \mathrm{in} \cdot \mathrm{out} (\mathrm{in} + \mathrm{out})\) products; with r and s columns they take
    \(2\, \mathrm{in} \cdot \mathrm{out} (r + s)\) or fewer.

    Attributes:
        input_basis: P, shape `[in, r]`.
        output_basis: Q, shape `[out, s]`.
        eigenvalues: e, shape `[r, s]`.
        rest: c, the eigenvalue of all other directions, a number.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import Kronecker, leading
        >>> S = leading(Kronecker(jnp.diag(jnp.array([8.0, 0.0, 0.0])), jnp.eye(1), shift=2.0), rank=1)
        >>> S.eigenvalues.ravel().round(4).tolist(), round(float(S.rest), 4)
        ([10.0], 2.0)
    """

    input_basis: Array
    output_basis: Array
    eigenvalues: Array
    rest: Array

    def apply(self, function: Callable[[Array], Array], v: Params) -> Params:
        values, rest = function(self.eigenvalues), function(self.rest)
        rows = RowBlocks(v, (self.input_basis.shape[0], self.output_basis.shape[0]))
        inner = rows.rotated(self.input_basis, self.output_basis)
        return rows.back(self.input_basis, (values - rest) * inner, self.output_basis, rest)

    def diagonal_of(self, function: Callable[[Array], Array], like: Params) -> Params:
        values, rest = function(self.eigenvalues), function(self.rest)
        diagonal = rest + between(self.input_basis**2, values - rest, (self.output_basis**2).T)
        return tree.ravel(like)[1](jnp.ravel(diagonal))

    def mapped(self, function: Callable[[Array], Array]) -> KroneckerLeading:
        return replace(self, eigenvalues=function(self.eigenvalues), rest=function(self.rest))

    def logdet(self, like: Params) -> Array:
        others = tree.dimension(like) - self.eigenvalues.size
        return jnp.sum(jnp.log(self.eigenvalues)) + others * jnp.log(self.rest)

    def trace_solve(self, other: Operator, like: Params) -> Array:
        """Returns tr(S⁻¹ other), without the matrix of the other where that is a Kronecker product or a diagonal."""
        if not isinstance(other, Kronecker):
            return super().trace_solve(other, like)
        extra = 1 / self.eigenvalues - 1 / self.rest
        factors = ((self.input_basis, other.input_factor), (self.output_basis, other.output_factor))
        inner = [jnp.diagonal(between(basis.T, factor, basis)) for basis, factor in factors]
        shift = tree.cast(other.shift, extra)
        total = jnp.trace(other.input_factor) * jnp.trace(other.output_factor) + shift * tree.dimension(like)
        return total / self.rest + jnp.sum((jnp.outer(*inner) + shift) * extra)

    def spectrum(self) -> tuple[Array, Array]:
        """Returns e and c."""
        return self.eigenvalues, self.rest

    def is_positive(self, like: Params) -> Array:
        """Returns whether every eigenvalue is positive and the bases have no NaN."""
        return super().is_positive(like) & (self.rest > 0)


def leading(
    operator: Kronecker, rank: int, near: KroneckerEigen | KroneckerLeading | None = None
) -> KroneckerEigen | KroneckerLeading:
    r"""Returns a Kronecker product with the leading `rank` eigenvectors of each factor, factored.

    All other eigenvalues are replaced by their mean, which preserves the trace. If no factor is wider than the rank,
    the operator itself is factored. The eigenvectors are approximated by subspace iteration, which takes a few products
    and no decomposition of a matrix much wider than the rank; the error is small for a decaying spectrum.

    Args:
        operator: the product, of positive semi-definite factors.
        rank: the number of eigenvectors of each factor, one or more.
        near: the result for earlier factors, from which the iteration starts; random columns where None.

    Source: Rutishauser (1970); Halko, Martinsson & Tropp (2011), algorithm 4.4.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import Kronecker, leading
        >>> round(float(leading(Kronecker(jnp.eye(4), jnp.eye(1), shift=1.0), rank=2).rest), 4)
        2.0
    """
    factors = (operator.input_factor, operator.output_factor)
    if all(factor.shape[0] <= rank for factor in factors):
        return operator.factored()
    bases = (None, None) if near is None else (near.input_basis, near.output_basis)
    pairs = [leading_eigenpairs(factor, rank, basis) for factor, basis in zip(factors, bases, strict=True)]
    (inputs, first), (outputs, second) = pairs
    shift = tree.cast(operator.shift, inputs)
    eigenvalues = inputs[:, None] * outputs[None, :]
    others = factors[0].shape[0] * factors[1].shape[0] - eigenvalues.size
    left = jnp.maximum(jnp.trace(factors[0]) * jnp.trace(factors[1]) - jnp.sum(eigenvalues), 0) / others
    return KroneckerLeading(first, second, eigenvalues + shift, left + shift)


# Layers are determined from the tree alone: a pair `{"bias", "kernel"}` is a layer, and so is any other leaf of two or
# more axes, the last of which is that of the outputs. All other leaves get a diagonal.


@record
class KroneckerBlocks(BlockDiagonal):
    r"""A Kronecker product plus a multiple of the identity for each layer, and a diagonal for every other leaf.

    If a diagonal is added, each layer adds its mean over the layer: exact for a prior with one scale a layer.

    Attributes:
        blocks: a tree of `Kronecker` and `Diagonal`, a prefix of the space.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import Diagonal, Kronecker
        >>> from lamu.operators.kronecker import KroneckerBlocks
        >>> S = KroneckerBlocks({"w": Kronecker(jnp.eye(2), jnp.eye(1))})
        >>> float(S.add(Diagonal({"w": jnp.array([[1.0], [3.0]])})).blocks["w"].shift)
        2.0
    """

    def add(self, other: Operator) -> KroneckerBlocks:
        """Returns S + other: exactly for blocks and a `Scalar`, with the layers' means for a `Diagonal`."""
        added = self.add_diagonal(other.values) if isinstance(other, Diagonal) else super().add(other)
        return KroneckerBlocks(added.blocks)

    def leading(self, rank: int, near: BlockDiagonal | None = None) -> BlockDiagonal:
        """Returns the operator factored, with no more than `rank` eigenvectors of each factor (see `leading`).

        Args:
            rank: the number of eigenvectors.
            near: the result for earlier factors.
        """

        def of(block: Operator, near: Any = None) -> Operator:
            return leading(block, rank, near) if isinstance(block, Kronecker) else block.factored()

        return BlockDiagonal(self._map(of) if near is None else self._map(of, near.blocks))


@record
class KroneckerFactored:
    """The structure of a Kronecker-factored precision: a `Kronecker` block a layer, a `Diagonal` for other leaves.

    Attributes:
        diagonal: a path pattern, or several, of leaves that always get a diagonal, for instance `"embedding/*"`.
        rank: the number of eigenvectors kept of each factor (`leading`); None for all.
        sharing: how the positions at which a kernel is used are combined: `Expand()` or `Reduce()`.

    Raises:
        ValueError: for a rank that is not a positive integer.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators.kronecker import KroneckerFactored
        >>> S = KroneckerFactored().from_diagonal({"bias": jnp.ones(1), "kernel": jnp.ones((2, 1))})
        >>> S.fresh.blocks.input_factor.shape
        (3, 3)
    """

    diagonal: Any = static(default=())
    rank: int | None = static(default=None)
    sharing: Expand | Reduce = static(default=Expand())

    by_rows = by_factors = True

    def __post_init__(self) -> None:
        patterns = (self.diagonal,) if isinstance(self.diagonal, str) else tuple(self.diagonal)
        object.__setattr__(self, "diagonal", patterns)
        if self.rank is not None:
            require_whole_field(self, "rank", problem="is not a number of eigenvectors; None keeps all of them")

    def __str__(self) -> str:
        return "Kronecker"

    def apart(self, like: Params) -> list[int]:
        """Returns the numbers of the leaves that match the patterns.

        Raises:
            ValueError: if a pattern matches no leaf.
        """
        tree.require_matches(self.diagonal, like)
        paths = tree.paths(like)
        return [i for i, path in enumerate(paths) if any(tree.matches(path, each) for each in self.diagonal)]

    def numbers_held(self, like: Params) -> int:
        """Returns the number of values in the factors and the diagonals of such a precision.

        Args:
            like: a vector of the space, or its shapes.
        """
        return sum(rows**2 + columns**2 for rows, columns in layer_shapes(like)) + Diagonal.numbers_held(like)

    def from_diagonal(self, diagonal: Params) -> StaleFactors:
        """Returns the operator without curvature, with the mean of each layer's diagonal as its shift."""
        apart = self.apart(diagonal)
        leaves, structure = jax.tree.flatten(diagonal)
        marked = structure.unflatten([_Leaf(leaf, number in apart) for number, leaf in enumerate(leaves)])
        blocks = KroneckerBlocks(jax.tree.map(_start, marked, is_leaf=_is_layer))
        return StaleFactors.of(blocks, self.rank)


class _Leaf:
    """A leaf, and whether it is excluded from the layers."""

    def __init__(self, value: PyTree, apart: bool) -> None:
        self.value, self.apart = value, apart


def _is_layer(node: object) -> bool:
    if not (isinstance(node, dict) and set(node) == {"bias", "kernel"}):
        return False
    all_leaves = all(isinstance(part, _Leaf) and not part.apart for part in node.values())
    return all_leaves and node["bias"].value.ndim == 1 and node["kernel"].value.ndim >= 2


def _start(node: PyTree) -> Kronecker | Diagonal:
    if isinstance(node, _Leaf):
        if node.apart or node.value.ndim < 2:
            return Diagonal(node.value)
        values, kernel, extra = node.value, node.value, 0
    else:
        values, kernel, extra = {name: leaf.value for name, leaf in node.items()}, node["kernel"].value, 1
    zero = lambda size: jnp.zeros((size, size), kernel.dtype)
    outputs = kernel.shape[-1]
    return Kronecker(zero(kernel.size // outputs + extra), zero(outputs), jnp.mean(tree.ravel(values)[0]))
