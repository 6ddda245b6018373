r"""The covariance of a belief about a last layer, \(S_k = L_k L_k^\top\) for each output, as what descent moves."""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from lamu import tree
from lamu.operators import Diagonal, OutputBlocks
from lamu.predictives.head import head_size
from lamu.record import record
from lamu.typing import Array, Params

__all__ = ["DenseHead", "DiagonalHead", "HeadCovariance"]


@runtime_checkable
class HeadCovariance(Protocol):
    """A covariance an output, in coordinates without a bound."""

    def init(self, head: Params, scale: Any) -> Array:
        """Returns the coordinates of the covariance scale² I."""
        ...

    def spread(self, raw: Array, phi: Array) -> Array:
        r"""Returns \(\phi^\top S_k \phi\), `[rows, outputs]`."""
        ...

    def variance(self, raw: Array) -> Array:
        """Returns the diagonals of S, `[outputs, in]`."""
        ...

    def entropy(self, raw: Array) -> Array:
        """Returns the entropy in nats."""
        ...

    def precision(self, raw: Array, head: Params) -> Any:
        """Returns S⁻¹, an operator on the layer's weights."""
        ...


@record
class DenseHead:
    r"""A full matrix for each output; L is lower triangular, the logarithms of its diagonal stand in the diagonal.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms import DenseHead
        >>> raw = DenseHead().init({"kernel": jnp.zeros((2, 1))}, 0.5)
        >>> DenseHead().spread(raw, jnp.array([[2.0, 0.0]])).round(6).tolist()
        [[1.0]]
    """

    def init(self, head: Params, scale: Any) -> Array:
        """Returns the logarithm of the scale in the diagonals, `[outputs, in, in]`."""
        width, outputs = head_size(head)
        dtype = jax.tree.leaves(head)[0].dtype
        eye = jnp.eye(width, dtype=dtype) * jnp.log(jnp.asarray(scale, dtype))
        return jnp.broadcast_to(eye[None], (outputs, width, width))

    def spread(self, raw: Array, phi: Array) -> Array:
        """Returns the squared lengths of Lᵀφ."""
        return jnp.sum(jnp.einsum("kij,ni->nkj", _root(raw), phi) ** 2, axis=-1)

    def variance(self, raw: Array) -> Array:
        """Returns the squared lengths of the rows of L."""
        return jnp.sum(_root(raw) ** 2, axis=-1)

    def entropy(self, raw: Array) -> Array:
        """Returns the sum of the logarithms of the diagonals, and the constant."""
        return _entropy(jnp.diagonal(raw, axis1=1, axis2=2))

    def precision(self, raw: Array, head: Params) -> OutputBlocks:
        """Returns one matrix an output."""
        eye = jnp.eye(raw.shape[-1], dtype=raw.dtype)
        return OutputBlocks(jax.vmap(lambda root: cho_solve((root, True), eye))(_root(raw)))


@record
class DiagonalHead:
    r"""Independent weights; the coordinates are the logarithms of their standard deviations.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms import DiagonalHead
        >>> raw = DiagonalHead().init({"kernel": jnp.zeros((2, 1))}, 0.5)
        >>> DiagonalHead().precision(raw, {"kernel": jnp.zeros((2, 1))}).values["kernel"].round(6).ravel().tolist()
        [4.0, 4.0]
    """

    def init(self, head: Params, scale: Any) -> Array:
        """Returns the logarithm of the scale, `[outputs, in]`."""
        width, outputs = head_size(head)
        dtype = jax.tree.leaves(head)[0].dtype
        return jnp.full((outputs, width), jnp.log(jnp.asarray(scale, dtype)), dtype)

    def spread(self, raw: Array, phi: Array) -> Array:
        """Returns the weighted sums of squared features."""
        return phi**2 @ jnp.exp(2 * raw).T

    def variance(self, raw: Array) -> Array:
        """Returns the squares of the deviations."""
        return jnp.exp(2 * raw)

    def entropy(self, raw: Array) -> Array:
        """Returns the sum of the logarithms, and the constant."""
        return _entropy(raw)

    def precision(self, raw: Array, head: Params) -> Diagonal:
        """Returns one number a weight."""
        return Diagonal(tree.ravel(head)[1](jnp.ravel(jnp.exp(-2 * raw).T)))


def _root(raw: Array) -> Array:
    diagonal = jnp.exp(jnp.diagonal(raw, axis1=1, axis2=2))
    return jnp.tril(raw, -1) + jax.vmap(jnp.diag)(diagonal)


def _entropy(logs: Array) -> Array:
    return jnp.sum(logs) + logs.size / 2 * (1 + math.log(2 * math.pi))
