"""A full symmetric matrix, and its Cholesky factor for repeated use."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from lamu import tree
from lamu.operators.diagonal import Eigenbasis
from lamu.operators.interface import Operator, Structure, is_number
from lamu.record import record
from lamu.typing import Array, Number, Params, PyTree

__all__ = ["Cholesky", "Dense", "DenseEigen"]


_EXACT = jax.lax.Precision.HIGHEST
_LARGEST = 20_000  # coordinates: 1.6 GB in single precision


@record
class Dense(Structure):
    r"""The operator of a symmetric matrix, in the coordinates of `lamu.tree.ravel`.

    Solving, sampling and determinants factor the matrix, at a cost of \(D^3 / 3\): use `factored()` to pay once.

    Attributes:
        matrix: S, shape `[D, D]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import Dense
        >>> Dense(jnp.array([[4.0, 2.0], [2.0, 5.0]])).solve(jnp.array([6.0, 7.0])).tolist()
        [1.0, 1.0]
    """

    matrix: Array

    @classmethod
    def from_diagonal(cls, diagonal: Params) -> Dense:
        """Returns diag(diagonal) as a matrix.

        Raises:
            ValueError: for more coordinates than a matrix in memory should have.
        """
        vector = tree.ravel(diagonal)[0]
        if vector.size > _LARGEST:
            gigabytes = vector.size**2 * vector.dtype.itemsize / 1e9
            raise ValueError(
                f"a dense matrix over {vector.size:,} coordinates takes {gigabytes:,.0f} GB; choose the structure "
                "Diagonal, or a smaller network"
            )
        return cls(jnp.diag(vector))

    @classmethod
    def from_jacobian(cls, jacobian: Params, weight: Array) -> Dense:
        """Returns the sum over the batch of Jᵀ W J, as one matrix product."""
        flat = jax.vmap(jax.vmap(lambda row: tree.ravel(row)[0]))(jacobian)
        weighted = jnp.einsum("bkl,blp->bkp", weight.astype(flat.dtype), flat)
        rows = (-1, flat.shape[-1])
        return cls(flat.reshape(rows).T @ weighted.reshape(rows))

    @classmethod
    def from_hessian(cls, product: Callable[[Params], Params], like: Params) -> Dense:
        """Returns the matrix, one product a column."""
        vector, unravel = tree.ravel(like)
        columns = jax.vmap(lambda e: tree.ravel(product(unravel(e)))[0])(jnp.eye(vector.size, dtype=vector.dtype))
        return cls((columns + columns.T) / 2)

    @classmethod
    def from_outer(cls, u: Params, v: Params) -> Dense:
        """Returns the symmetric part of u vᵀ."""
        outer = jnp.outer(tree.ravel(u)[0], tree.ravel(v)[0])
        return cls((outer + outer.T) / 2)

    @classmethod
    def statistic(cls, theta: Params) -> Dense:
        """Returns θ θᵀ."""
        return cls.from_outer(theta, theta)

    def second_moment(self, like: Params) -> Dense:
        # The symmetric part, so that a gradient in a symmetric matrix is symmetric.
        return Dense(jnp.linalg.inv((self.matrix + self.matrix.T) / 2))

    def matvec(self, v: Params) -> Params:
        vector, unravel = tree.ravel(v)
        return unravel(self.matrix @ vector)

    def factored(self) -> Cholesky:
        """Returns the Cholesky factor, an operator too."""
        return Cholesky(jnp.linalg.cholesky((self.matrix + self.matrix.T) / 2))

    def for_features(self) -> Cholesky:
        return self.factored().for_features()

    def logdet(self, like: Params) -> Array:
        return _logdet(self.matrix)

    def add(self, other: Operator) -> Dense:
        """Returns S + other, exactly."""
        return Dense(self.matrix + other.dense(jnp.zeros_like(self.matrix[0])))

    def add_prior(self, precision: Operator, like: Params) -> Dense:
        return Dense(self.matrix + precision.dense(like).astype(self.matrix.dtype))

    @classmethod
    def numbers_held(cls, like: Params) -> int:
        """Returns the square of the dimension."""
        return super().numbers_held(like) ** 2

    def some_vector(self) -> Array:
        return jnp.diagonal(self.matrix)

    def spectrum(self) -> Array:
        return jnp.linalg.eigvalsh((self.matrix + self.matrix.T) / 2)

    def logdet_plus(self, precision: PyTree, like: Params, spectrum: PyTree = None) -> Array:
        """Returns log det(S + Δ): by the eigenvalues for one number, else by a factorisation."""
        if spectrum is None or not is_number(precision):
            return super().logdet_plus(precision, like)
        return jnp.sum(jnp.log(spectrum + tree.cast(precision, spectrum)))

    def diagonal(self, like: Params) -> Params:
        return tree.ravel(like)[1](jnp.diagonal(self.matrix))

    def dense(self, like: Params) -> Array:
        return self.matrix

    def trace_solve(self, other: Operator, like: Params) -> Array:
        return self.factored().trace_solve(other, like)

    def sandwich(self, delta: Dense) -> Dense:
        """Returns Δ S⁻¹ Δ, by one factorisation and one triangular solve."""
        half = solve_triangular(self.factored().root, delta.matrix, lower=True)
        return Dense(half.T @ half)

    def scale(self, factor: Number) -> Dense:
        return Dense(self.matrix * tree.cast(factor, self.matrix))


@record
class Cholesky(Operator):
    r"""The operator \(S = L L^\top\), by its Cholesky factor L.

    It is not linear in its leaf, so that the rule cannot update it. `Dense.factored()` returns it.

    Attributes:
        root: L, lower triangular, shape `[D, D]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import Dense
        >>> float(Dense(4.0 * jnp.eye(2)).factored().root[0, 0])
        2.0
    """

    root: Array

    layered = True

    def matvec(self, v: Params) -> Params:
        """Returns L Lᵀ v."""
        vector, unravel = tree.ravel(v)
        return unravel(self.root @ (self.root.T @ vector))

    def factored(self) -> Cholesky:
        return self

    def for_features(self) -> Cholesky:
        return self if self.root.shape[0] > _MOST_INVERTED else _InverseCholesky(self.root, self._inverse().T)

    def _inverse(self) -> Array:
        return solve_triangular(self.root, jnp.eye(self.root.shape[0], dtype=self.root.dtype), lower=True)

    def solve(self, v: Params) -> Params:
        """Returns S⁻¹ v, by two triangular solves."""
        vector, unravel = tree.ravel(v)
        return unravel(cho_solve((self.root, True), vector))

    def inverse_root(self, z: Params) -> Params:
        """Returns L⁻ᵀ z."""
        vector, unravel = tree.ravel(z)
        return unravel(solve_triangular(self.root, vector, lower=True, trans="T"))

    def logdet(self, like: Params) -> Array:
        return 2 * jnp.sum(jnp.log(jnp.diagonal(self.root)))

    def diagonal(self, like: Params) -> Params:
        return tree.ravel(like)[1](jnp.sum(self.root**2, axis=1))

    def variance(self, like: Params) -> Params:
        return tree.ravel(like)[1](jnp.sum(self._inverse() ** 2, axis=0))

    def dense(self, like: Params) -> Array:
        """Returns L Lᵀ."""
        return self.root @ self.root.T

    def trace_solve(self, other: Operator, like: Params) -> Array:
        return jnp.trace(cho_solve((self.root, True), other.dense(like)))

    def scale(self, factor: Number) -> Cholesky:
        return Cholesky(self.root * jnp.sqrt(jnp.asarray(factor, self.root.dtype)))

    def tangent_covariance(self, jacobian: Params, marginal: bool) -> Array:
        """Returns J S⁻¹ Jᵀ, by one triangular solve for the Jacobians of all rows."""
        flat = jax.vmap(jax.vmap(lambda a: tree.ravel(a)[0]))(jacobian)
        rows, outputs, size = flat.shape
        white = solve_triangular(self.root, flat.reshape(rows * outputs, size).T, lower=True)
        return _squared(jnp.moveaxis(white.reshape(size, rows, outputs), 0, 1), marginal)

    def feature_covariance(self, features: Array, outputs: int, marginal: bool) -> Array:
        rows, width = features.shape
        if rows > width:  # invert the factor first: the rows then need only a product
            by_output = self._inverse().reshape(-1, width, outputs)
            white = jnp.einsum("ni,dik->ndk", features, by_output, precision=_EXACT)
            return _squared(white, marginal)
        eye = jnp.eye(outputs, dtype=features.dtype)
        columns = (features.T[:, None, :, None] * eye[None, :, None, :]).reshape(width * outputs, rows * outputs)
        white = solve_triangular(self.root, columns, lower=True).reshape(-1, rows, outputs)
        return _squared(jnp.moveaxis(white, 0, 1), marginal)

    def is_positive(self, like: Params) -> Array:
        """Returns whether the factor exists; otherwise it is NaN."""
        return jnp.all(jnp.diagonal(self.root) > 0)


_MOST_INVERTED = 2048  # the most weights for which the inverse factor is stored too: 16 MiB of 32 bits


@record
class _InverseCholesky(Cholesky):
    """A `Cholesky` with L⁻ᵀ stored, so that the covariance of a row's outputs is a product."""

    transposed: Array

    def for_features(self) -> Cholesky:
        return self

    def feature_covariance(self, features: Array, outputs: int, marginal: bool) -> Array:
        if features.shape[0] > features.shape[1]:
            return super().feature_covariance(features, outputs, marginal)
        by_output = self.transposed.reshape(features.shape[1], outputs, -1)  # read once, in its memory order
        white = jnp.einsum("ni,ikd->nkd", features, by_output, precision=_EXACT)
        if marginal:
            return jnp.sum(white**2, axis=2)
        return jnp.einsum("nkd,nld->nkl", white, white, precision=_EXACT)

    def _inverse(self) -> Array:
        return self.transposed.T


@jax.custom_jvp
def _logdet(matrix: Array) -> Array:
    return _logdet_and_root(matrix)[0]


@_logdet.defjvp
def _logdet_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # The derivative of log det S is the inverse; the derivative of a Cholesky factor costs three times as much.
    value, root = _logdet_and_root(primals[0])
    inverse = cho_solve((root, True), jnp.eye(root.shape[0], dtype=root.dtype))
    return value, jnp.sum(inverse * tangents[0])


def _logdet_and_root(matrix: Array) -> tuple[Array, Array]:
    root = jnp.linalg.cholesky((matrix + matrix.T) / 2)
    return 2 * jnp.sum(jnp.log(jnp.diagonal(root))), root


def _squared(white: Array, marginal: bool) -> Array:
    """Returns Vᵀ V of every row, for V `[N, D, K]`, or its diagonal."""
    return jnp.sum(white**2, axis=1) if marginal else jnp.einsum("ndk,ndl->nkl", white, white, precision=_EXACT)


@record
class DenseEigen(Eigenbasis):
    r"""The operator \(S = U\, \mathrm{diag}(e)\, U^\top\), U orthogonal, in the coordinates of `lamu.tree.ravel`."""

    # `DenseEigen.of(dense)` computes it by one eigendecomposition. Adding a multiple of the identity, and the
    # covariance of outputs after it, take no further decomposition.

    basis: Array  # U, the eigenvectors in its columns, shape `[D, D]`
    eigenvalues: Array  # e, shape `[D]`

    @classmethod
    def of(cls, dense: Dense) -> DenseEigen:
        """Returns the eigendecomposition of a matrix."""
        values, basis = jnp.linalg.eigh((dense.matrix + dense.matrix.T) / 2)
        return cls(basis, values)

    def apply(self, function: Callable[[Array], Array], v: Params) -> Params:
        vector, unravel = tree.ravel(v)
        rotated = jnp.matmul(self.basis.T, vector, precision=_EXACT)
        return unravel(jnp.matmul(self.basis, function(self.eigenvalues) * rotated, precision=_EXACT))

    def diagonal_of(self, function: Callable[[Array], Array], like: Params) -> Params:
        return tree.ravel(like)[1](jnp.matmul(self.basis**2, function(self.eigenvalues), precision=_EXACT))

    def tangent_covariance(self, jacobian: Params, marginal: bool) -> Array:
        # Returns J S⁻¹ Jᵀ of every row, the Jacobians rotated first.
        flat = jax.vmap(jax.vmap(lambda a: tree.ravel(a)[0]))(jacobian)
        return self._between(jnp.matmul(flat, self.basis, precision=_EXACT), marginal)

    def feature_covariance(self, features: Array, outputs: int, marginal: bool) -> Array:
        basis = self.basis.reshape(features.shape[1], outputs, -1)
        return self._between(jnp.einsum("ni,ikd->nkd", features, basis, precision=_EXACT), marginal)

    def _between(self, rotated: Array, marginal: bool) -> Array:
        if marginal:
            return jnp.matmul(rotated**2, 1 / self.eigenvalues, precision=_EXACT)
        return jnp.einsum("nkd,nld->nkl", rotated / self.eigenvalues[None, None], rotated, precision=_EXACT)
