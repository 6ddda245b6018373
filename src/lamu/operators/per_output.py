"""One operator for each output: the structure of a last layer with independent outputs."""

# The space is that of a layer, a kernel `[in, out]` or a pair `{"bias", "kernel"}`, in the order of `lamu.tree.ravel`:
# coordinate \((i, k)\) is weight i of output k, and outputs are not coupled. A Kronecker product would need a square
# matrix over the outputs, which is too large for ten thousand of them.

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from lamu import tree
from lamu.operators.diagonal import Eigenbasis
from lamu.operators.interface import Operator, is_number, layer_shapes
from lamu.operators.kronecker import as_matrix
from lamu.record import record
from lamu.typing import Array, Number, Params, PyTree

__all__ = ["OutputBlocks", "OutputCholesky", "OutputEigen"]

_EXACT = jax.lax.Precision.HIGHEST


@record
class OutputBlocks(Operator):
    r"""A full matrix for each output of a layer, \(S = \bigoplus_k H_k\).

    It is linear in its leaf. Solving, sampling and determinants factor the matrices, at \(\mathrm{out} \cdot
    \mathrm{in}^3 / 3\): use `factored()` to pay once.

    Attributes:
        matrices: H, `[out, in, in]`; the first input is the bias, if the layer has one.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import OutputBlocks
        >>> S = OutputBlocks(jnp.array([[[4.0]], [[16.0]]]))
        >>> S.solve({"kernel": jnp.ones((1, 2))})["kernel"].tolist()
        [[0.25, 0.0625]]
    """

    matrices: Array

    per_output = True

    def matvec(self, v: Params) -> Params:
        matrix, unravel = as_matrix(v, self._shape())
        return unravel(jnp.einsum("kij,jk->ik", self.matrices, matrix, precision=_EXACT))

    def factored(self) -> OutputCholesky:
        """Returns the Cholesky factors, an operator too."""
        return OutputCholesky(jnp.linalg.cholesky((self.matrices + jnp.swapaxes(self.matrices, 1, 2)) / 2))

    def diagonal(self, like: Params) -> Params:
        diagonal = jnp.diagonal(self.matrices, axis1=1, axis2=2).T
        return tree.ravel(like)[1](jnp.ravel(diagonal))

    def scale(self, factor: Number) -> OutputBlocks:
        return OutputBlocks(self.matrices * tree.cast(factor, self.matrices))

    def add(self, other: Operator) -> OutputBlocks:
        """Returns S plus an operator of the same kind, a Diagonal or a Scalar, exactly."""
        if isinstance(other, OutputBlocks):
            return OutputBlocks(self.matrices + other.matrices)
        if not other.is_diagonal:
            raise TypeError(f"a {type(other).__name__} couples outputs; add a Diagonal, or take the structure Dense")
        width, outputs = self._shape()
        diagonal = other.diagonal(jnp.zeros((width, outputs)))
        added = as_matrix(diagonal, (width, outputs))[0].astype(self.matrices.dtype)
        return OutputBlocks(self.matrices + jax.vmap(jnp.diag)(added.T))

    @classmethod
    def numbers_held(cls, like: Params) -> int:
        """Returns the square of the inputs for each output."""
        return sum(columns * rows**2 for rows, columns in layer_shapes(like))

    def spectrum(self) -> Array:
        """Returns every output's eigenvalues, `[out, in]`."""
        return jnp.linalg.eigvalsh((self.matrices + jnp.swapaxes(self.matrices, 1, 2)) / 2)

    def logdet_plus(self, precision: PyTree, like: Params, spectrum: PyTree = None) -> Array:
        """Returns log det(S + Δ): by the eigenvalues for one number, else by factorisations."""
        if spectrum is None or not is_number(precision):
            return super().logdet_plus(precision, like)
        return jnp.sum(jnp.log(spectrum + tree.cast(precision, spectrum)))

    def _shape(self) -> tuple[int, int]:
        return self.matrices.shape[1], self.matrices.shape[0]


@record
class OutputCholesky(Operator):
    r"""The operator \(S = \bigoplus_k L_k L_k^\top\), by its factors; `OutputBlocks.factored()` returns it.

    Attributes:
        roots: L, lower triangular, `[out, in, in]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import OutputBlocks
        >>> OutputBlocks(jnp.array([[[4.0]]])).factored().roots.ravel().tolist()
        [2.0]
    """

    roots: Array

    per_output = True

    def matvec(self, v: Params) -> Params:
        matrix, unravel = as_matrix(v, self._shape())
        inner = jnp.einsum("kji,jk->ik", self.roots, matrix, precision=_EXACT)
        return unravel(jnp.einsum("kij,jk->ik", self.roots, inner, precision=_EXACT))

    def factored(self) -> OutputCholesky:
        return self

    def solve(self, v: Params) -> Params:
        """Returns S⁻¹ v, by two triangular solves an output."""
        return self._each(lambda root, column: cho_solve((root, True), column), v)

    def inverse_root(self, z: Params) -> Params:
        """Returns L⁻ᵀ z, output by output."""
        return self._each(lambda root, column: solve_triangular(root, column, lower=True, trans="T"), z)

    def logdet(self, like: Params) -> Array:
        return 2 * jnp.sum(jnp.log(jnp.diagonal(self.roots, axis1=1, axis2=2)))

    def diagonal(self, like: Params) -> Params:
        return tree.ravel(like)[1](jnp.ravel(jnp.sum(self.roots**2, axis=2).T))

    def variance(self, like: Params) -> Params:
        eye = jnp.eye(self.roots.shape[1], dtype=self.roots.dtype)
        # One output after the other, so that only one inverse is in memory at a time.
        of_output = lambda root: jnp.sum(solve_triangular(root, eye, lower=True) ** 2, axis=0)
        return tree.ravel(like)[1](jnp.ravel(jax.lax.map(of_output, self.roots).T))

    def scale(self, factor: Number) -> OutputCholesky:
        return OutputCholesky(self.roots * jnp.sqrt(jnp.asarray(factor, self.roots.dtype)))

    def feature_covariance(self, features: Array, outputs: int, marginal: bool) -> Array:
        """Returns the variances of the outputs, which are uncorrelated."""
        of_output = lambda root: jnp.sum(solve_triangular(root, features.T, lower=True) ** 2, axis=0)
        return jax.lax.map(of_output, self.roots).T

    def is_positive(self, like: Params) -> Array:
        """Returns whether all factors exist; otherwise some are NaN."""
        return jnp.all(jnp.diagonal(self.roots, axis1=1, axis2=2) > 0)

    def _each(self, function: Callable[[Array, Array], Array], v: Params) -> Params:
        matrix, unravel = as_matrix(v, self._shape())
        return unravel(jax.vmap(function)(self.roots, matrix.T).T)

    def _shape(self) -> tuple[int, int]:
        return self.roots.shape[1], self.roots.shape[0]


@record
class OutputEigen(Eigenbasis):
    r"""The operator \(S = \bigoplus_k P\, \mathrm{diag}(e_k)\, P^\top\): one basis for all outputs.

    It is the factored form of \(A \otimes \mathrm{diag}(b)\) plus a diagonal, and stores
    \(\mathrm{in}^2 + \mathrm{in} \cdot \mathrm{out}\) numbers.

    Attributes:
        basis: P, the eigenvectors of A in its columns, `[in, in]`.
        eigenvalues: e, `[in, out]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import OutputEigen
        >>> OutputEigen.of(jnp.eye(1), jnp.array([2.0, 4.0])).solve(jnp.ones((1, 2))).tolist()
        [[0.5, 0.25]]
    """

    basis: Array
    eigenvalues: Array

    per_output = True

    @classmethod
    def of(cls, inputs: Array, outputs: Array) -> OutputEigen:
        r"""Returns \(A \otimes \mathrm{diag}(b)\).

        Args:
            inputs: A, positive semi-definite, `[in, in]`.
            outputs: b, `[out]`.
        """
        values, basis = jnp.linalg.eigh((inputs + inputs.T) / 2)
        return cls(basis, jnp.maximum(values, 0)[:, None] * outputs[None, :])

    def apply(self, function: Callable[[Array], Array], v: Params) -> Params:
        matrix, unravel = as_matrix(v, self.eigenvalues.shape)
        inner = function(self.eigenvalues) * jnp.matmul(self.basis.T, matrix, precision=_EXACT)
        return unravel(jnp.matmul(self.basis, inner, precision=_EXACT))

    def diagonal_of(self, function: Callable[[Array], Array], like: Params) -> Params:
        values = jnp.matmul(self.basis**2, function(self.eigenvalues), precision=_EXACT)
        return tree.ravel(like)[1](jnp.ravel(values))

    def add_diagonal(self, values: Params) -> Eigenbasis:
        """Returns S plus a diagonal by its mean for each output."""
        added = jnp.mean(as_matrix(values, self.eigenvalues.shape)[0], axis=0, keepdims=True)
        return self.mapped(lambda eigenvalues: eigenvalues + added.astype(eigenvalues.dtype))

    @classmethod
    def numbers_held(cls, like: Params) -> int:
        """Returns the sizes of basis and eigenvalues."""
        return sum(rows**2 + rows * columns for rows, columns in layer_shapes(like))

    def feature_covariance(self, features: Array, outputs: int, marginal: bool) -> Array:
        """Returns the variances of the outputs, which are uncorrelated."""
        return jnp.matmul(jnp.matmul(features, self.basis, precision=_EXACT) ** 2, 1 / self.eigenvalues)
