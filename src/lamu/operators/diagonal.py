"""One number a coordinate."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.operators.interface import Operator, Structure
from lamu.record import record
from lamu.typing import Array, Number, Params, PyTree, RandomKey

__all__ = ["Diagonal"]


@record
class Diagonal(Structure):
    r"""The operator \(S = \mathrm{diag}(s)\), where s has the shape of the parameters.

    Attributes:
        values: s, a vector of the space.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import Diagonal
        >>> Diagonal({"w": jnp.array([1.0, 4.0])}).solve({"w": jnp.ones(2)})["w"].tolist()
        [1.0, 0.25]
    """

    values: Params

    layered = True

    @classmethod
    def from_diagonal(cls, diagonal: Params) -> Diagonal:
        """Returns diag(diagonal)."""
        return cls(diagonal)

    @classmethod
    def from_jacobian(cls, jacobian: Params, weight: Array) -> Diagonal:
        """Returns the diagonal of the sum over the batch of Jᵀ W J."""
        return cls(
            jax.tree.map(
                lambda leaf: jnp.einsum("bk...,bkl,bl...->...", leaf, weight.astype(leaf.dtype), leaf), jacobian
            )
        )

    @classmethod
    def from_hessian(cls, product: Callable[[Params], Params], like: Params) -> Diagonal:
        """Returns the exact diagonal, one product a coordinate: for small problems."""
        vector, unravel = tree.ravel(like)
        basis = jnp.eye(vector.size, dtype=vector.dtype)
        return cls(unravel(jax.lax.map(lambda e: tree.dot(unravel(e), product(unravel(e))), basis)))

    @classmethod
    def from_outer(cls, u: Params, v: Params) -> Diagonal:
        """Returns diag(u v)."""
        return cls(jax.tree.map(jnp.multiply, u, v))

    @classmethod
    def statistic(cls, theta: Params) -> Diagonal:
        """Returns θ², coordinate by coordinate."""
        return cls.from_outer(theta, theta)

    def second_moment(self, like: Params) -> Diagonal:
        """Returns 1 / s."""
        return Diagonal(self.variance(like))

    def matvec(self, v: Params) -> Params:
        return jax.tree.map(jnp.multiply, self.values, v)

    def solve(self, v: Params) -> Params:
        """Returns v / s."""
        return jax.tree.map(lambda s, leaf: leaf / s, self.values, v)

    def inverse_root(self, z: Params) -> Params:
        """Returns z / √s."""
        return jax.tree.map(lambda s, leaf: leaf * jax.lax.rsqrt(s), self.values, z)

    def factored(self) -> Diagonal:
        """Returns itself: there is nothing to factor."""
        return self

    def sample(self, key: RandomKey, like: Params) -> Params:
        """Returns a draw from N(0, diag(1 / s))."""
        return self.inverse_root(tree.normal(key, like))

    def logdet(self, like: Params) -> Array:
        return tree.dot(jax.tree.map(jnp.log, self.values), jax.tree.map(jnp.ones_like, like))

    def diagonal(self, like: Params) -> Params:
        return self.values

    def variance(self, like: Params) -> Params:
        """Returns 1 / s."""
        return jax.tree.map(jnp.reciprocal, self.values)

    def dense(self, like: Params) -> Array:
        return jnp.diag(tree.ravel(self.values)[0])

    def trace_solve(self, other: Operator, like: Params) -> Array:
        """Returns the sum of the other's diagonal over s."""
        return tree.dot(other.diagonal(like), self.variance(like))

    def sandwich(self, delta: Diagonal) -> Diagonal:
        """Returns Δ S⁻¹ Δ, which is δ² / s coordinate by coordinate."""
        return Diagonal(jax.tree.map(lambda s, d: d * d / s, self.values, delta.values))

    def scale(self, factor: Number) -> Diagonal:
        return Diagonal(tree.scale(self.values, factor))

    def some_vector(self) -> Params:
        return self.values

    def spectrum(self) -> Params:
        return self.values

    def feature_covariance(self, features: Array, outputs: int, marginal: bool) -> Array:
        """Returns the variances of the outputs, between which there is no covariance."""
        variances = tree.ravel(self.variance(self.values))[0].reshape(features.shape[1], outputs)
        return jnp.matmul(features**2, variances, precision=jax.lax.Precision.HIGHEST)

    def layer_inverse(self, outputs: int, outputs_first: bool) -> tuple[None, None, Array]:
        """Returns 1 / s as a matrix, of a kernel or of a bias (one row)."""
        values = 1 / tree.ravel(self.values)[0]
        return None, None, values.reshape(outputs, -1).T if outputs_first else values.reshape(-1, outputs)

    def by_leaf(self, numbers: PyTree) -> list[tuple[Operator, list[int]]]:
        """Returns a diagonal a leaf."""
        pairs = zip(jax.tree.leaves(self.values), jax.tree.leaves(numbers), strict=True)
        return [(Diagonal([values]), [number]) for values, number in pairs]

    def is_positive(self, like: Params) -> Array:
        signs = [jnp.all(leaf > 0) for leaf in jax.tree.leaves(self.values)]
        return functools.reduce(jnp.logical_and, signs, jnp.asarray(True))
