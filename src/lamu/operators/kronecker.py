"""A Kronecker product of two small matrices plus a multiple of the identity: the curvature of one layer."""

# For a kernel V of shape `[in, out]` the operator \(A \otimes B\) maps V to \(A V B\), where A stands over the inputs
# and B over the outputs. Any space of \(\mathrm{in} \cdot \mathrm{out}\) coordinates will do, in the order of
# `lamu.tree.ravel`: a convolution's kernel `[height, width, in, out]`, where A stands over the patch, or the pair
# `{"bias", "kernel"}`, where the bias comes first and A begins with the input that is always one. A network is a
# `BlockDiagonal` of such operators, with `Dense` ones where a leaf has no product.

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.operators.dense import Dense
from lamu.operators.diagonal import Diagonal
from lamu.operators.interface import Operator
from lamu.operators.scalar import Scalar
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Kronecker", "KroneckerEigen", "as_matrix", "between", "identity_of"]


@record
class Kronecker(Operator):
    r"""The operator \(S = A \otimes B + \delta I\).

    Not linear in its leaves: the sum of two Kronecker products is none, so that the rule's step leaves the structure
    and a stated projection must return. Only a multiple of the identity is added exactly. Solving, sampling and
    determinants take the eigendecompositions of A and B, at a cost of \(\mathrm{in}^3 + \mathrm{out}^3\): use
    `factored()` to pay once.

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

    def solve(self, v: Params) -> Params:
        return self.factored().solve(v)

    def inverse_root(self, z: Params) -> Params:
        """Returns S^(−1/2) z, with the symmetric root."""
        return self.factored().inverse_root(z)

    def sample(self, key: RandomKey, like: Params) -> Params:
        return self.factored().sample(key, like)

    def logdet(self, like: Params) -> Array:
        return self.factored().logdet(like)

    def diagonal(self, like: Params) -> Params:
        """Returns the diagonal of S, which needs no eigendecomposition."""
        outer = jnp.outer(jnp.diagonal(self.input_factor), jnp.diagonal(self.output_factor))
        return tree.ravel(like)[1](jnp.ravel(outer + tree.cast(self.shift, outer)))

    def variance(self, like: Params) -> Params:
        return self.factored().variance(like)

    def dense(self, like: Params) -> Array:
        """Returns S as a matrix, for small spaces."""
        product = jnp.kron(self.input_factor, self.output_factor)
        return product + tree.cast(self.shift, product) * jnp.eye(product.shape[0], dtype=product.dtype)

    def trace_solve(self, other: Operator, like: Params) -> Array:
        return self.factored().trace_solve(other, like)

    def sandwich(self, delta: Operator) -> Dense:
        """Returns Δ S⁻¹ Δ as a matrix, for small spaces: it is no Kronecker product."""
        return self.factored().sandwich(delta)

    def scale(self, factor: Number) -> Kronecker:
        shift = self.shift * tree.cast(factor, self.shift)
        return Kronecker(self.input_factor * tree.cast(factor, self.input_factor), self.output_factor, shift)

    def add(self, other: Operator) -> Kronecker:
        """Returns S plus a multiple of the identity (a `Scalar`), exactly.

        Raises:
            TypeError: for any other operator, with which the sum is no Kronecker product.
        """
        return Kronecker(self.input_factor, self.output_factor, _sum(self.shift, identity_of(other)))

    def add_diagonal(self, values: Params) -> Kronecker:
        """Returns S plus the mean of a diagonal times the identity."""
        return self.add(Scalar(jnp.mean(tree.ravel(values)[0])))

    def spectrum(self) -> Array:
        return self.factored().eigenvalues

    def is_positive(self, like: Params) -> Array:
        return self.factored().is_positive(like)


@record
class KroneckerEigen(Operator):
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

    def matvec(self, v: Params) -> Params:
        return self._apply(self.eigenvalues, v)

    def factored(self) -> KroneckerEigen:
        return self

    def solve(self, v: Params) -> Params:
        """Returns S⁻¹ v, by four products of small matrices."""
        return self._apply(1 / self.eigenvalues, v)

    def inverse_root(self, z: Params) -> Params:
        """Returns S^(−1/2) z.

        The symmetric root is the one that does not depend on the signs and the order of the eigenvectors.
        """
        return self._apply(jax.lax.rsqrt(self.eigenvalues), z)

    def sample(self, key: RandomKey, like: Params) -> Params:
        """Returns a draw from N(0, S⁻¹): a normal one in the eigenbasis, at half the price of the symmetric root."""
        noise, unravel = as_matrix(tree.normal(key, like), self.eigenvalues.shape)
        return unravel(between(self.input_basis, jax.lax.rsqrt(self.eigenvalues) * noise, self.output_basis.T))

    def logdet(self, like: Params) -> Array:
        """Returns the sum of log e."""
        return jnp.sum(jnp.log(self.eigenvalues))

    def diagonal(self, like: Params) -> Params:
        return self._diagonal(self.eigenvalues, like)

    def variance(self, like: Params) -> Params:
        """Returns the diagonal of S⁻¹: a sum of positive terms."""
        return self._diagonal(1 / self.eigenvalues, like)

    def dense(self, like: Params) -> Array:
        """Returns S as a matrix, for small spaces."""
        basis = jnp.kron(self.input_basis, self.output_basis)
        return between(basis, jnp.diag(jnp.ravel(self.eigenvalues)), basis.T)

    def trace_solve(self, other: Operator, like: Params) -> Array:
        """Returns tr(S⁻¹ other), without the matrix of the other where that is a Kronecker product or a diagonal."""
        if isinstance(other, Diagonal | Scalar):
            return tree.dot(other.diagonal(like), self.variance(like))
        inverse = 1 / self.eigenvalues
        if isinstance(other, Kronecker):
            inputs = jnp.diagonal(between(self.input_basis.T, other.input_factor, self.input_basis))
            outputs = jnp.diagonal(between(self.output_basis.T, other.output_factor, self.output_basis))
            return jnp.sum((jnp.outer(inputs, outputs) + tree.cast(other.shift, inverse)) * inverse)
        basis = jnp.kron(self.input_basis, self.output_basis)
        return jnp.sum(jnp.diagonal(between(basis.T, other.dense(like), basis)) * jnp.ravel(inverse))

    def sandwich(self, delta: Operator) -> Dense:
        """Returns Δ S⁻¹ Δ as a matrix, for small spaces."""
        basis = jnp.kron(self.input_basis, self.output_basis)
        matrix = delta.dense(self.eigenvalues)
        half = jnp.matmul(basis.T, matrix, precision=_EXACT) * jax.lax.rsqrt(jnp.ravel(self.eigenvalues))[:, None]
        return Dense(jnp.matmul(half.T, half, precision=_EXACT))

    def scale(self, factor: Number) -> KroneckerEigen:
        scaled = self.eigenvalues * tree.cast(factor, self.eigenvalues)
        return KroneckerEigen(self.input_basis, self.output_basis, scaled)

    def add(self, other: Operator) -> KroneckerEigen:
        """Returns S plus a multiple of the identity (a `Scalar`), exactly, without another eigendecomposition."""
        shifted = _sum(self.eigenvalues, tree.cast(identity_of(other), self.eigenvalues))
        return KroneckerEigen(self.input_basis, self.output_basis, jnp.asarray(shifted))

    def add_diagonal(self, values: Params) -> KroneckerEigen:
        """Returns S plus the mean of a diagonal times the identity."""
        return self.add(Scalar(jnp.mean(tree.ravel(values)[0])))

    def spectrum(self) -> Array:
        return self.eigenvalues

    def feature_covariance(self, features: Array, outputs: int, marginal: bool) -> Array:
        """Returns the covariance of the outputs, the features rotated first."""
        rotated = jnp.matmul(features, self.input_basis, precision=_EXACT) ** 2
        inner = jnp.matmul(rotated, 1 / self.eigenvalues, precision=_EXACT)
        basis = self.output_basis
        if marginal:
            return jnp.matmul(inner, (basis**2).T, precision=_EXACT)
        return jnp.einsum("nj,kj,lj->nkl", inner, basis, basis, precision=_EXACT)

    def layer_inverse(self, outputs: int, outputs_first: bool) -> tuple[Array, Array, Array]:
        """Returns the bases of inputs and outputs, and 1 / e between them."""
        if outputs_first:
            return self.output_basis, self.input_basis, 1 / self.eigenvalues.T
        return self.input_basis, self.output_basis, 1 / self.eigenvalues

    def is_positive(self, like: Params) -> Array:
        """Returns whether every eigenvalue is positive, and no basis a NaN."""
        finite = jnp.isfinite(jnp.sum(self.input_basis)) & jnp.isfinite(jnp.sum(self.output_basis))
        return jnp.all(self.eigenvalues > 0) & finite

    def _apply(self, values: Array, v: Params) -> Params:
        matrix, unravel = as_matrix(v, self.eigenvalues.shape)
        rotated = between(self.input_basis.T, matrix, self.output_basis)
        return unravel(between(self.input_basis, values * rotated, self.output_basis.T))

    def _diagonal(self, values: Array, like: Params) -> Params:
        diagonal = between(self.input_basis**2, values, (self.output_basis**2).T)
        return tree.ravel(like)[1](jnp.ravel(diagonal))


# Accelerators shorten the factors of a float32 product unless told not to, and a rotated vector would show it.
_EXACT = jax.lax.Precision.HIGHEST


def between(left: Array, matrix: Array, right: Array) -> Array:
    """Returns the product of three matrices, in full precision."""
    return jnp.matmul(jnp.matmul(left, matrix, precision=_EXACT), right, precision=_EXACT)


def as_matrix(v: Params, shape: tuple[int, ...]) -> tuple[Array, Callable[[Array], Params]]:
    """Returns a vector of the space as a matrix `[in, out]`, and the function that takes such a matrix back."""
    vector, unravel = tree.ravel(v)
    if vector.size != shape[0] * shape[1]:
        raise ValueError(
            f"the vector has {vector.size} coordinates, and factors of {shape[0]} inputs and {shape[1]} outputs "
            f"act on {shape[0] * shape[1]}; check the order of the two factors and whether the bias belongs to them"
        )
    return vector.reshape(shape[0], shape[1]), lambda matrix: unravel(jnp.ravel(matrix))


def _eigh(factor: Array) -> tuple[Array, Array]:
    """The eigenvalues and eigenvectors of a factor."""
    # A factor of a few examples is singular, and rounding then makes some of its eigenvalues slightly negative. Times
    # the other factor these could outweigh a small shift: within the error of the decomposition they are zeros.
    eigenvalues, basis = jnp.linalg.eigh((factor + factor.T) / 2)
    error = factor.shape[0] * jnp.finfo(eigenvalues.dtype).eps * jnp.max(jnp.abs(eigenvalues))
    return jnp.where((eigenvalues < 0) & (eigenvalues >= -error), jnp.zeros_like(eigenvalues), eigenvalues), basis


def identity_of(other: Operator) -> Number | Array:
    """Returns how often an operator is the identity."""
    if not isinstance(other, Scalar):
        raise TypeError(
            f"a Kronecker product plus a {type(other).__name__} is no Kronecker product; add a Scalar, or project first"
        )
    return other.value


def _sum(a: Number | Array, b: Number | Array) -> Number | Array:
    """The sum, in the dtype of whichever is an array."""
    return a + (b if isinstance(a, float | int) else tree.cast(b, a))
