"""A multiple of the identity."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.operators.interface import Operator, Structure
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Scalar"]


@record
class Scalar(Structure):
    r"""The operator \(S = s I\).

    Its constructors keep the mean of the diagonal, which is the projection that leaves the trace unchanged.

    Attributes:
        value: s, a number.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import Scalar
        >>> float(Scalar(2.0).logdet(jnp.zeros(3)))  # 3 log 2
        2.0794415...
    """

    value: Number | Array

    @classmethod
    def from_diagonal(cls, diagonal: Params) -> Scalar:
        """Returns the multiple of the identity with the same trace."""
        total = sum((jnp.sum(leaf) for leaf in jax.tree.leaves(diagonal)), jnp.zeros((), _dtype(diagonal)))
        return cls(total / max(tree.dimension(diagonal), 1))

    @classmethod
    def from_jacobian(cls, jacobian: Params, weight: Array) -> Scalar:
        """Returns the mean of the diagonal of the sum over the batch of Jᵀ W J."""
        squares = jax.tree.map(lambda leaf: _weighted_squares(leaf, weight), jacobian)
        return cls.from_diagonal(squares)

    @classmethod
    def from_hessian(cls, product: Callable[[Params], Params], like: Params) -> Scalar:
        """Returns the mean of the diagonal, one product a coordinate."""
        vector, unravel = tree.ravel(like)
        basis = jnp.eye(vector.size, dtype=vector.dtype)
        entries = jax.lax.map(lambda e: tree.dot(unravel(e), product(unravel(e))), basis)
        return cls(jnp.mean(entries))

    @classmethod
    def from_outer(cls, u: Params, v: Params) -> Scalar:
        """Returns ⟨u, v⟩ divided by the dimension."""
        return cls(tree.dot(u, v) / max(tree.dimension(u), 1))

    @classmethod
    def statistic(cls, theta: Params) -> Scalar:
        """Returns ‖θ‖²."""
        return cls(tree.dot(theta, theta))

    def second_moment(self, like: Params) -> Scalar:
        """Returns D / s."""
        return Scalar(tree.dimension(like) / self.value)

    def matvec(self, v: Params) -> Params:
        return tree.scale(v, self.value)

    def solve(self, v: Params) -> Params:
        """Returns v / s."""
        return jax.tree.map(lambda leaf: leaf / tree.cast(self.value, leaf), v)

    def inverse_root(self, z: Params) -> Params:
        """Returns z / √s."""
        return jax.tree.map(lambda leaf: leaf * jax.lax.rsqrt(jnp.asarray(self.value, leaf.dtype)), z)

    def factored(self) -> Scalar:
        """Returns itself: there is nothing to factor."""
        return self

    def sample(self, key: RandomKey, like: Params) -> Params:
        """Returns a draw from N(0, I / s)."""
        return self.inverse_root(tree.normal(key, like))

    def logdet(self, like: Params) -> Array:
        return tree.dimension(like) * jnp.log(self.value)

    def diagonal(self, like: Params) -> Params:
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, self.value), like)

    def variance(self, like: Params) -> Params:
        """Returns the vector with every coordinate 1 / s."""
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, 1.0 / self.value), like)

    def dense(self, like: Params) -> Array:
        vector, _ = tree.ravel(like)
        return tree.cast(self.value, vector) * jnp.eye(vector.size, dtype=vector.dtype)

    def trace_solve(self, other: Operator, like: Params) -> Array:
        """Returns tr(other) / s."""
        return tree.dot(other.diagonal(like), self.variance(like))

    def sandwich(self, delta: Scalar) -> Scalar:
        """Returns Δ S⁻¹ Δ, which is δ² / s."""
        return Scalar(delta.value**2 / self.value)

    def scale(self, factor: Number) -> Scalar:
        return Scalar(self.value * tree.cast(factor, self.value))

    def some_vector(self) -> Params:
        return jnp.asarray(self.value)

    def is_positive(self, like: Params) -> Array:
        return jnp.asarray(self.value > 0)


def _weighted_squares(leaf: Array, weight: Array) -> Array:
    return jnp.einsum("bk...,bkl,bl...->...", leaf, weight.astype(leaf.dtype), leaf)


def _dtype(a: Params) -> jnp.dtype:
    return jnp.result_type(*jax.tree.leaves(a)) if jax.tree.leaves(a) else jnp.result_type(float)
