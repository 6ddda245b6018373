"""An operator of a layer whose kernel is stored as `[out, in]`, as in PyTorch and Equinox."""

# Operators of a layer (`Kronecker`, `OutputEigen`) act on its weights as a matrix `[in, out]`, row by row, with the
# bias as the first input. In the order of a kernel `[out, in]` and a separate bias such an operator is not a Kronecker
# product.

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from lamu.operators.diagonal import Scalar
from lamu.operators.interface import Operator, is_number
from lamu.record import record, static
from lamu.typing import Array, Number, OperatorTree, Params, PyTree, RandomKey

__all__ = ["LayerOrder", "layer_matrix", "permutation"]


def layer_matrix(layer: Params, outputs_first: bool) -> tuple[Array, Callable[[Array], Params]]:
    """Returns a layer's weights as a matrix `[in, out]` with the bias as first row, and the inverse function."""
    leaves, structure = jax.tree.flatten(layer)
    kernel_at = max(range(len(leaves)), key=lambda index: leaves[index].ndim)
    kernel, biases = leaves[kernel_at], [leaf for index, leaf in enumerate(leaves) if index != kernel_at]
    outputs = biases[0].size if biases else kernel.shape[0 if outputs_first else -1]
    matrix = kernel.reshape(outputs, -1).T if outputs_first else kernel.reshape(-1, outputs)

    def back(matrix: Array) -> Params:
        own = matrix[len(biases) :]
        parts = [(own.T if outputs_first else own).reshape(kernel.shape)]
        if biases:
            parts.insert(1 - kernel_at, matrix[0].reshape(biases[0].shape))
        return jax.tree.unflatten(structure, parts)

    return jnp.concatenate([*(bias.reshape(1, outputs) for bias in biases), matrix]), back


def permutation(layer: Params, outputs_first: bool) -> Array:
    """Returns for each coordinate of `tree.ravel(layer)` its index in the layer's matrix, row by row."""
    matrix, back = layer_matrix(layer, outputs_first)
    numbers = jax.tree.leaves(back(jnp.arange(matrix.size).reshape(matrix.shape)))
    return jnp.concatenate([jnp.ravel(leaf) for leaf in numbers])


@record
class LayerOrder(Operator):
    """The operator `base` on the weights of a layer in their stored order."""

    base: OperatorTree  # the operator on the matrix `[in, out]` of the layer (`layer_matrix`)
    outputs_first: bool = static()  # whether the kernel's coordinates run over the outputs first

    layered = True

    @property
    def per_output(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        # The value of the operator on the matrix.
        return self.base.per_output

    def matvec(self, v: Params) -> Params:
        return self._on(self.base.matvec, v)

    def factored(self) -> LayerOrder:
        # Returns the factored operator.
        return self._with(self.base.factored())

    def for_features(self) -> LayerOrder:
        return self._with(self.base.for_features())

    def solve(self, v: Params) -> Params:
        return self._on(self.base.solve, v)

    def inverse_root(self, z: Params) -> Params:
        return self._on(self.base.inverse_root, z)

    def sample(self, key: RandomKey, like: Params) -> Params:
        return self._on(lambda matrix: self.base.sample(key, matrix), like)

    def logdet(self, like: Params) -> Array:
        return self.base.logdet(self._matrix(like))

    def logdet_plus(self, precision: PyTree, like: Params, spectrum: PyTree = None) -> Array:
        # Returns log det(S + Δ): by the eigenvalues for one number.
        if is_number(precision):
            return self.base.logdet_plus(precision, self._matrix(like), spectrum)
        return super().logdet_plus(precision, like)

    def diagonal(self, like: Params) -> Params:
        return self._on(self.base.diagonal, like)

    def variance(self, like: Params) -> Params:
        return self._on(self.base.variance, like)

    def trace_solve(self, other: Operator, like: Params) -> Array:
        if isinstance(other, LayerOrder) and other.outputs_first == self.outputs_first:
            return self.base.trace_solve(other.base, self._matrix(like))
        return super().trace_solve(other, like)

    def scale(self, factor: Number) -> LayerOrder:
        return self._with(self.base.scale(factor))

    def add(self, other: Operator) -> LayerOrder:
        # Returns S plus an operator of the same order, or a `Scalar`.
        if isinstance(other, Scalar):
            return self._with(self.base.add(other))
        if isinstance(other, LayerOrder) and other.outputs_first == self.outputs_first:
            return self._with(self.base.add(other.base))
        raise TypeError(f"a LayerOrder cannot hold its sum with a {type(other).__name__}; add them as Dense")

    def add_diagonal(self, values: Params) -> LayerOrder:
        # Returns S plus the part of a diagonal that the operator can represent.
        return self._with(self.base.add_diagonal(self._matrix(values)))

    def spectrum(self) -> PyTree:
        return self.base.spectrum()

    def is_positive(self, like: Params) -> Array:
        return self.base.is_positive(self._matrix(like))

    def feature_covariance(self, features: Array, outputs: int, marginal: bool) -> Array | None:
        # Returns that of the operator on the matrix, since features do not depend on the order of the weights.
        return self.base.feature_covariance(features, outputs, marginal)

    def layer_inverse(self, outputs: int, outputs_first: bool) -> tuple[Array | None, Array | None, Array] | None:
        return self.base.layer_inverse(outputs, False)

    def _matrix(self, v: Params) -> Array:
        return layer_matrix(v, self.outputs_first)[0]

    def _on(self, function: Callable[[Array], Array], v: Params) -> Params:
        matrix, back = layer_matrix(v, self.outputs_first)
        return back(function(matrix))

    def _with(self, base: OperatorTree) -> LayerOrder:
        return LayerOrder(base, self.outputs_first)
