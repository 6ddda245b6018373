"""The leading eigenvectors of a Kronecker product, and one number for all others: what wide layers can pay for."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.operators.dense import Dense
from lamu.operators.diagonal import Diagonal
from lamu.operators.interface import Operator
from lamu.operators.kronecker import Kronecker, KroneckerEigen, as_matrix, between, identity_of
from lamu.operators.scalar import Scalar
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["KroneckerLeading", "leading"]


@record
class KroneckerLeading(Operator):
    r"""The operator \(S = c I + (P \otimes Q)\, \mathrm{diag}(e - c)\, (P \otimes Q)^\top\), with orthonormal columns.

    Not linear in its leaves. With all columns it is `KroneckerEigen`; with r and s of them a solve or a draw takes
    \(2\, \mathrm{in} \cdot \mathrm{out} (r + s)\) products or less, where that takes \(2\, \mathrm{in} \cdot
    \mathrm{out} (\mathrm{in} + \mathrm{out})\).

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

    def matvec(self, v: Params) -> Params:
        return self._apply(self.eigenvalues, self.rest, v)

    def factored(self) -> KroneckerLeading:
        return self

    def solve(self, v: Params) -> Params:
        return self._apply(1 / self.eigenvalues, 1 / self.rest, v)

    def inverse_root(self, z: Params) -> Params:
        """Returns S^(−1/2) z, with the symmetric root."""
        return self._apply(jax.lax.rsqrt(self.eigenvalues), jax.lax.rsqrt(self.rest), z)

    def sample(self, key: RandomKey, like: Params) -> Params:
        return self.inverse_root(tree.normal(key, like))

    def logdet(self, like: Params) -> Array:
        others = tree.dimension(like) - self.eigenvalues.size
        return jnp.sum(jnp.log(self.eigenvalues)) + others * jnp.log(self.rest)

    def diagonal(self, like: Params) -> Params:
        return self._diagonal(self.eigenvalues, self.rest, like)

    def variance(self, like: Params) -> Params:
        return self._diagonal(1 / self.eigenvalues, 1 / self.rest, like)

    def dense(self, like: Params) -> Array:
        """Returns S as a matrix, for small spaces."""
        basis = jnp.kron(self.input_basis, self.output_basis)
        found = between(basis, jnp.diag(jnp.ravel(self.eigenvalues - self.rest)), basis.T)
        return found + self.rest * jnp.eye(found.shape[0], dtype=found.dtype)

    def trace_solve(self, other: Operator, like: Params) -> Array:
        """Returns tr(S⁻¹ other), without the matrix of the other where that is a Kronecker product or a diagonal."""
        if isinstance(other, Diagonal | Scalar):
            return tree.dot(other.diagonal(like), self.variance(like))
        extra, small = 1 / self.eigenvalues - 1 / self.rest, (self.input_basis, self.output_basis)
        if isinstance(other, Kronecker):
            parts = (other.input_factor, other.output_factor)
            inner = [jnp.diagonal(between(basis.T, part, basis)) for basis, part in zip(small, parts, strict=True)]
            shift = tree.cast(other.shift, extra)
            whole = jnp.trace(parts[0]) * jnp.trace(parts[1]) + shift * tree.dimension(like)
            return whole / self.rest + jnp.sum((jnp.outer(*inner) + shift) * extra)
        basis, matrix = jnp.kron(*small), other.dense(like)
        return jnp.trace(matrix) / self.rest + jnp.sum(jnp.diagonal(between(basis.T, matrix, basis)) * jnp.ravel(extra))

    def sandwich(self, delta: Operator) -> Dense:
        """Returns Δ S⁻¹ Δ as a matrix, for small spaces."""
        like = jnp.zeros((self.input_basis.shape[0], self.output_basis.shape[0]), self.eigenvalues.dtype)
        matrix, basis = delta.dense(like), jnp.kron(self.input_basis, self.output_basis)
        inner = jnp.ravel(1 / self.eigenvalues - 1 / self.rest)
        inverse = between(basis, jnp.diag(inner), basis.T) + jnp.eye(like.size, dtype=like.dtype) / self.rest
        return Dense(between(matrix, inverse, matrix))

    def scale(self, factor: Number) -> KroneckerLeading:
        by = lambda values: values * tree.cast(factor, values)
        return KroneckerLeading(self.input_basis, self.output_basis, by(self.eigenvalues), by(self.rest))

    def add(self, other: Operator) -> KroneckerLeading:
        """Returns S plus a multiple of the identity (a `Scalar`), exactly."""
        plus = lambda values: values + tree.cast(identity_of(other), values)
        return KroneckerLeading(self.input_basis, self.output_basis, plus(self.eigenvalues), plus(self.rest))

    def add_diagonal(self, values: Params) -> KroneckerLeading:
        """Returns S plus the mean of a diagonal times the identity."""
        return self.add(Scalar(jnp.mean(tree.ravel(values)[0])))

    def spectrum(self) -> tuple[Array, Array]:
        """Returns e, and c."""
        return self.eigenvalues, self.rest

    def is_positive(self, like: Params) -> Array:
        """Returns whether every eigenvalue is positive, and no basis a NaN."""
        finite = jnp.isfinite(jnp.sum(self.input_basis)) & jnp.isfinite(jnp.sum(self.output_basis))
        return jnp.all(self.eigenvalues > 0) & (self.rest > 0) & finite

    def _apply(self, values: Array, rest: Array, v: Params) -> Params:
        matrix, unravel = as_matrix(v, (self.input_basis.shape[0], self.output_basis.shape[0]))
        inner = between(self.input_basis.T, matrix, self.output_basis)
        return unravel(rest * matrix + between(self.input_basis, (values - rest) * inner, self.output_basis.T))

    def _diagonal(self, values: Array, rest: Array, like: Params) -> Params:
        diagonal = rest + between(self.input_basis**2, values - rest, (self.output_basis**2).T)
        return tree.ravel(like)[1](jnp.ravel(diagonal))


def leading(operator: Kronecker, rank: int) -> KroneckerEigen | KroneckerLeading:
    r"""Returns a Kronecker product with the leading `rank` eigenvectors of each factor, factored.

    All other eigenvalues become their mean, so that the trace stays. The operator itself where no factor is wider than
    the rank. The eigenvectors are found in the range of \(A^3 \Omega\), with a fixed random Ω of `rank` columns, for a
    few products and no decomposition of a matrix wider than the rank: closely, where the spectrum falls.

    Args:
        operator: the product, of positive semi-definite factors.
        rank: how many eigenvectors of each factor, one or more.

    Source: Halko, Martinsson & Tropp (2011), algorithm 4.4.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import Kronecker, leading
        >>> round(float(leading(Kronecker(jnp.eye(4), jnp.eye(1), shift=1.0), rank=2).rest), 4)
        2.0
    """
    factors = (operator.input_factor, operator.output_factor)
    if all(factor.shape[0] <= rank for factor in factors):
        return operator.factored()
    (inputs, first), (outputs, second) = (_leading(factor, rank) for factor in factors)
    shift = tree.cast(operator.shift, inputs)
    eigenvalues = inputs[:, None] * outputs[None, :]
    others = factors[0].shape[0] * factors[1].shape[0] - eigenvalues.size
    left = jnp.maximum(jnp.trace(factors[0]) * jnp.trace(factors[1]) - jnp.sum(eigenvalues), 0) / others
    return KroneckerLeading(first, second, eigenvalues + shift, left + shift)


def _leading(factor: Array, rank: int) -> tuple[Array, Array]:
    """The leading eigenvalues and eigenvectors; Rayleigh and Ritz's in the range of a few products."""
    basis = jnp.eye(factor.shape[0], dtype=factor.dtype)
    if factor.shape[0] > rank:
        basis = jax.random.normal(jax.random.key(0), (factor.shape[0], rank), factor.dtype)
        for _ in range(3):
            basis = jnp.linalg.qr(jnp.matmul(factor, basis, precision=jax.lax.Precision.HIGHEST))[0]
    small = between(basis.T, factor, basis)
    values, rotation = jnp.linalg.eigh((small + small.T) / 2)
    return jnp.maximum(values, 0), jnp.matmul(basis, rotation, precision=jax.lax.Precision.HIGHEST)
