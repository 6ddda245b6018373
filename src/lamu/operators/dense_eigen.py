"""A full symmetric matrix by its eigenvectors: its sum with a multiple of the identity costs nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.operators.dense import Dense
from lamu.operators.diagonal import Diagonal
from lamu.operators.interface import Operator
from lamu.operators.scalar import Scalar
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["DenseEigen"]

_EXACT = jax.lax.Precision.HIGHEST


@record
class DenseEigen(Operator):
    r"""The operator \(S = U\, \mathrm{diag}(e)\, U^\top\), U orthogonal, in the coordinates of `lamu.tree.ravel`."""

    # It is not linear in its leaves. `DenseEigen.of(dense)` makes it, at the cost of one eigendecomposition; a multiple
    # of the identity is then added, and the covariance of outputs taken again, without another.

    basis: Array  # U, the eigenvectors in its columns, shape `[D, D]`
    eigenvalues: Array  # e, shape `[D]`

    @classmethod
    def of(cls, dense: Dense) -> DenseEigen:
        """Returns a matrix by its eigenvectors."""
        values, basis = jnp.linalg.eigh((dense.matrix + dense.matrix.T) / 2)
        return cls(basis, values)

    def matvec(self, v: Params) -> Params:
        return self._apply(self.eigenvalues, v)

    def factored(self) -> DenseEigen:
        return self

    def solve(self, v: Params) -> Params:
        return self._apply(1 / self.eigenvalues, v)

    def inverse_root(self, z: Params) -> Params:
        # Returns S^(−1/2) z, the symmetric root.
        return self._apply(jax.lax.rsqrt(self.eigenvalues), z)

    def sample(self, key: RandomKey, like: Params) -> Params:
        return self.inverse_root(tree.normal(key, like))

    def logdet(self, like: Params) -> Array:
        # Returns the sum of log e.
        return jnp.sum(jnp.log(self.eigenvalues))

    def diagonal(self, like: Params) -> Params:
        return tree.ravel(like)[1](jnp.matmul(self.basis**2, self.eigenvalues, precision=_EXACT))

    def variance(self, like: Params) -> Params:
        return tree.ravel(like)[1](jnp.matmul(self.basis**2, 1 / self.eigenvalues, precision=_EXACT))

    def dense(self, like: Params) -> Array:
        return jnp.matmul(self.basis * self.eigenvalues[None], self.basis.T, precision=_EXACT)

    def trace_solve(self, other: Operator, like: Params) -> Array:
        if isinstance(other, Diagonal | Scalar):
            return tree.dot(other.diagonal(like), self.variance(like))
        rotated = jnp.matmul(other.dense(like), self.basis, precision=_EXACT)
        return jnp.sum(jnp.sum(self.basis * rotated, axis=0) / self.eigenvalues)

    def sandwich(self, delta: Operator) -> Dense:
        half = (
            jnp.matmul(self.basis.T, delta.dense(self.eigenvalues), precision=_EXACT)
            * jax.lax.rsqrt(self.eigenvalues)[:, None]
        )
        return Dense(jnp.matmul(half.T, half, precision=_EXACT))

    def scale(self, factor: Number) -> DenseEigen:
        return DenseEigen(self.basis, self.eigenvalues * tree.cast(factor, self.eigenvalues))

    def add(self, other: Operator) -> DenseEigen:
        # Returns S plus a multiple of the identity (a `Scalar`), exactly.
        if not isinstance(other, Scalar):
            raise TypeError(f"a DenseEigen plus a {type(other).__name__} has other eigenvectors; add them as Dense")
        return DenseEigen(self.basis, self.eigenvalues + tree.cast(other.value, self.eigenvalues))

    def add_diagonal(self, values: Params) -> DenseEigen:
        # Returns S plus the mean of a diagonal times the identity: exact for a prior of one scale.
        return self.add(Scalar(jnp.mean(tree.ravel(values)[0])))

    def spectrum(self) -> Array:
        return self.eigenvalues

    def is_positive(self, like: Params) -> Array:
        # Returns whether every eigenvalue is positive, and no eigenvector a NaN.
        return jnp.all(self.eigenvalues > 0) & jnp.isfinite(jnp.sum(self.basis))

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

    def _apply(self, values: Array, v: Params) -> Params:
        vector, unravel = tree.ravel(v)
        rotated = jnp.matmul(self.basis.T, vector, precision=_EXACT)
        return unravel(jnp.matmul(self.basis, values * rotated, precision=_EXACT))
