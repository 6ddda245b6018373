"""Base classes of operators on the space of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.typing import Array, Number, Numeric, OperatorTree, Params, PyTree, RandomKey

__all__ = ["Operator", "Structure", "is_number", "is_operator", "layer_shapes", "retracted"]


@runtime_checkable
class Operator(Protocol):
    r"""A symmetric operator S on the space of parameters: a precision, or a curvature that may become one.

    The space is not stored. Methods that receive a vector act on its space; the others take `like`, any vector of the
    space. Every operator inherits from this class, which has general defaults.

    Attributes:
        per_output: whether it keeps one matrix an output of a layer.
        layered: whether predictions use it, as a block, layer by layer: by `layer_inverse`, or by the Jacobian of its
            own leaves.
        is_diagonal: whether it is one number a coordinate, or one for all.
        by_rows: whether a curvature of this structure is a sum over rows, and not computed by products with vectors.
        by_factors: whether a curvature of this structure is that of a `KroneckerFactored`.
    """

    per_output: bool = False
    layered: bool = False
    is_diagonal: bool = False
    by_rows: bool = True
    by_factors: bool = False

    def matvec(self, v: Params) -> Params:
        """Returns S v."""
        ...

    def factored(self) -> Operator:
        """Returns an equal operator whose solves, roots and determinants are cheap to repeat."""
        ...

    def diagonal(self, like: Params) -> Params:
        """Returns the diagonal of S, a vector of the space."""
        ...

    def scale(self, factor: Number) -> Operator:
        """Returns factor · S."""
        ...

    # Defaults. These use the factored operator.

    def solve(self, v: Params) -> Params:
        """Returns S⁻¹ v."""
        return self.factored().solve(v)

    def inverse_root(self, z: Params) -> Params:
        """Returns R z with R Rᵀ = S⁻¹, which makes a draw from N(0, S⁻¹) of a standard normal z."""
        return self.factored().inverse_root(z)

    def logdet(self, like: Params) -> Array:
        """Returns log det S."""
        return self.factored().logdet(like)

    def variance(self, like: Params) -> Params:
        """Returns the diagonal of S⁻¹, a vector of the space."""
        return self.factored().variance(like)

    def is_positive(self, like: Params) -> Array:
        """Returns whether S is positive definite, one Boolean: a NaN is not."""
        return self.factored().is_positive(like)

    # Defaults from products and solves.

    def sample(self, key: RandomKey, like: Params) -> Params:
        """Returns a draw from N(0, S⁻¹)."""
        return self.inverse_root(tree.normal(key, like))

    def dense(self, like: Params) -> Array:
        """Returns S as a matrix in the coordinates of `tree.ravel`, for small spaces: one product a column."""
        return _columns(self.matvec, like)

    def trace_solve(self, other: Operator, like: Params) -> Array:
        """Returns tr(S⁻¹ other): from the diagonals if one of the two is diagonal, else by one solve a column."""
        if self.is_diagonal or other.is_diagonal:
            return tree.dot(other.diagonal(like), self.variance(like))
        return jnp.trace(_columns(self.solve, like, other.dense(like).T))

    def add(self, other: Operator) -> Operator:
        """Returns S + other, exactly.

        Raises:
            TypeError: if this structure cannot represent the sum.
        """
        raise TypeError(f"a {type(self).__name__} cannot hold its sum with a {type(other).__name__}; add them as Dense")

    def add_diagonal(self, values: Params) -> Operator:
        """Returns S + diag(values), or the part of the diagonal that the structure can represent, such as its mean.

        Raises:
            TypeError: if this structure cannot represent any part.
        """
        from lamu.operators.diagonal import Diagonal

        return self.add(Diagonal(values))

    def add_prior(self, precision: Operator, like: Params) -> Operator:
        """Returns S plus a prior's precision: exactly for a full matrix, the precision's diagonal for other structures.

        Args:
            precision: the prior's.
            like: a vector of the space.
        """
        return self.add_diagonal(precision.diagonal(like))

    @classmethod
    def numbers_held(cls, like: Params) -> int:
        """Returns the number of values stored by an operator of this structure, for `memory_estimate`.

        Args:
            like: a vector of the space, or its shapes.
        """
        return sum(math.prod(np.shape(leaf)) for leaf in jax.tree.leaves(like))

    def some_vector(self) -> Params:
        """Returns some vector of the space.

        Raises:
            TypeError: if the operator does not determine it.
        """
        raise TypeError(
            f"a {type(self).__name__} does not determine the space it acts on; use the structure Diagonal or Dense"
        )

    def spectrum(self) -> PyTree:
        """Returns the eigenvalues of S, in a tree of blocks.

        Raises:
            TypeError: if the structure has no method for them.
        """
        raise TypeError(
            f"the eigenvalues of a {type(self).__name__} are not available; use Dense, DenseBlocks or Diagonal"
        )

    def logdet_plus(self, precision: PyTree, like: Params, spectrum: PyTree = None) -> Array:
        r"""Returns \(\log\det(S + \operatorname{diag}\delta)\), where many coordinates may share one number.

        Args:
            precision: δ, a tree of numbers and arrays that is a prefix of the space.
            like: a vector of the space.
            spectrum: the result of `spectrum`. If it is given, and the eigenvectors do not depend on δ, nothing is
                factored.
        """
        return self.add_diagonal(tree.broadcast(precision, like)).logdet(like)

    def preconditioner(self, like: Params) -> Operator:
        """Returns the factored S, or an approximation of S with cheap solves where those of the factored S are not."""
        return self.factored()

    def tangent_covariance(self, jacobian: Params, marginal: bool) -> Array:
        r"""Returns \(J S^{-1} J^\top\) of every row, `[rows, outputs, outputs]`, or its diagonal, `[rows, outputs]`.

        Args:
            jacobian: J, leaves `[rows, outputs, ...]`.
            marginal: whether the diagonal is enough.
        """

        def of_row(jacobian: Params) -> Array:
            spread = jax.vmap(self.solve)(jacobian)
            if marginal:
                return jax.vmap(tree.dot)(jacobian, spread)
            covariance = jax.vmap(lambda a: jax.vmap(lambda b: tree.dot(a, b))(spread))(jacobian)
            return (covariance + covariance.T) / 2

        return jax.vmap(of_row)(jacobian)

    def for_features(self) -> Operator:
        """Returns an equal operator, factored, whose covariances of features are cheap to repeat."""
        return self.factored()

    def feature_covariance(self, features: Array, outputs: int, marginal: bool) -> Array | None:
        r"""Returns the same for a last layer, \(J = \phi^\top \otimes I\), or None where the Jacobian is needed.

        Args:
            features: φ, `[rows, in]`, the bias's one first.
            outputs: the number of outputs.
            marginal: whether variances are enough. Operators without correlations of outputs always return variances.
        """
        return None

    def layer_inverse(self, outputs: int, outputs_first: bool) -> tuple[Array | None, Array | None, Array] | None:
        """Returns S⁻¹ of one layer's weights: bases of inputs and outputs, and its eigenvalues in them, `[in, out]`.

        Args:
            outputs: the number of outputs of the layer.
            outputs_first: whether the kernel's coordinates run over the outputs first.

        Returns:
            The three, with None for a basis that is the standard one; None for an operator without such a form.
        """
        return None

    def by_leaf(self, numbers: PyTree) -> list[tuple[Operator, list[int]]]:
        """Returns the operators on independent parts of the space, each with the numbers of its leaves.

        Args:
            numbers: a tree like the space, with the leaves' numbers.
        """
        return [(self, jax.tree.leaves(numbers))]

    def renewed(self) -> Operator:
        """Returns the operator with up-to-date factors; itself, unless it factors only at some steps."""
        return self

    def finish(self, count: Number) -> Operator:
        """Returns the curvature per row from sums over so many rows, for operators linear in their leaves."""
        return jax.tree.map(lambda leaf: leaf / jnp.asarray(count, leaf.dtype), self)

    def averaged(self) -> Operator:
        """Returns the average of operators stacked along a leading axis of every leaf."""
        return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), self)


@runtime_checkable
class Structure(Operator, Protocol):
    r"""Base class of structures of precisions, which can be updated by curvature.

    It is *linear in its leaves*: \(a S + b S'\) is a `jax.tree.map`, which is how the rule moves a precision. Curvature
    is added through the class's constructors, each of which projects it onto the structure (`Dense` keeps everything,
    `Diagonal` the diagonal, `Scalar` the mean of the diagonal). A Cholesky factor is an operator, but not a structure.
    """

    def add(self, other: Operator) -> Operator:
        """Returns S + other, exactly, for an other of the same structure."""
        return jax.tree.map(jnp.add, self, other) if type(self) is type(other) else super().add(other)

    def add_diagonal(self, values: Params) -> Structure:
        """Returns S plus the part of a diagonal that the structure can represent."""
        return jax.tree.map(jnp.add, self, type(self).from_diagonal(values))

    @classmethod
    def from_diagonal(cls, diagonal: Params) -> Structure:
        """Returns the operator with the given diagonal, a vector of the space."""
        ...

    @classmethod
    def from_jacobian(cls, jacobian: Params, weight: Array) -> Structure:
        r"""Returns \(\sum_b J_b^\top W_b J_b\), for leaves `[batch, outputs, ...]`, W `[batch, outputs, outputs]`."""
        ...

    @classmethod
    def from_hessian(cls, product: Callable[[Params], Params], like: Params) -> Structure:
        """Returns the operator of which `product` computes matrix-vector products."""
        ...

    @classmethod
    def from_outer(cls, u: Params, v: Params) -> Structure:
        r"""Returns the symmetric part of the outer product, \(\tfrac12 (u v^\top + v u^\top)\)."""
        ...

    def sandwich(self, delta: OperatorTree) -> Structure:
        """Returns Δ S⁻¹ Δ for an operator Δ of the same structure."""
        ...

    # N(m, S⁻¹) is an exponential family: λ₂ = −S/2 pairs with T₂(θ) leaf by leaf.

    @classmethod
    def statistic(cls, theta: Params) -> Structure:
        r"""Returns T₂(θ): the part of \(\theta\theta^\top\) that the structure of S represents."""
        ...

    def second_moment(self, like: Params) -> Structure:
        r"""Returns \(E[T_2(\theta)]\) under N(0, S⁻¹); applied to such a moment, it returns the precision S."""
        ...


def _columns(function: Callable[[Params], Params], like: Params, rows: Array | None = None) -> Array:
    """Returns the matrix of a linear function, or its product with a matrix whose columns are given as rows."""
    vector, unravel = tree.ravel(like)
    rows = jnp.eye(vector.size, dtype=vector.dtype) if rows is None else rows
    return jax.vmap(lambda row: tree.ravel(function(unravel(row)))[0], out_axes=1)(rows)


def layer_shapes(like: Params) -> list[tuple[int, int]]:
    """Returns the numbers of inputs and outputs of every kernel, with one more input for its bias."""
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(like)]
    return [(math.prod(shape[:-1]) + 1, shape[-1]) for shape in shapes if len(shape) > 1]


def is_number(precision: PyTree) -> bool:
    """Returns whether a prefix of the space is one number, for all coordinates."""
    return jax.tree_util.all_leaves([precision]) and jnp.ndim(precision) == 0


def is_operator(node: object) -> bool:
    """Whether a node is an operator, as `isinstance(node, Operator)`."""
    # Cached by class: `isinstance` of a protocol takes a third of the time of a small prediction.
    kind = type(node)
    if kind not in _KNOWN:
        _KNOWN[kind] = isinstance(node, Operator)
    return _KNOWN[kind]


_KNOWN: WeakKeyDictionary[type, bool] = WeakKeyDictionary()


def retracted(precision: OperatorTree, delta: OperatorTree, rate: Numeric) -> OperatorTree:
    r"""Returns \(S + \rho\Delta + \tfrac12 \rho^2 \Delta S^{-1} \Delta\)."""
    # It is \(\tfrac12 S + \tfrac12 (S + \rho\Delta) S^{-1} (S + \rho\Delta)\), and so at least half of S.
    #
    # Source: Lin, Schmidt & Khan (2020), "Handling the positive-definite constraint in the Bayesian learning rule".

    def moved(s: Numeric, d: Numeric, b: Numeric) -> Numeric:
        rho = tree.cast(rate, s)
        return s + rho * d + rho**2 / 2 * b

    return jax.tree.map(moved, precision, delta, precision.sandwich(delta))
