"""Operators that are diagonal in the coordinates, or in a basis of eigenvectors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.operators.interface import Operator, Structure
from lamu.record import record
from lamu.typing import Array, Number, Params, PyTree, RandomKey

__all__ = ["Diagonal", "Eigenbasis", "Scalar", "Scaled", "inverse_square_root"]


@record
class Scalar(Structure):
    r"""The operator \(S = s I\).

    Its constructors keep the mean of the diagonal: the projection that preserves the trace.

    Attributes:
        value: s, a number.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import Scalar
        >>> float(Scalar(2.0).logdet(jnp.zeros(3)))  # 3 log 2
        2.0794415...
    """

    value: Number | Array

    is_diagonal = True

    @classmethod
    def from_diagonal(cls, diagonal: Params) -> Scalar:
        """Returns the multiple of the identity with the same trace."""
        total = sum((jnp.sum(leaf) for leaf in jax.tree.leaves(diagonal)), jnp.zeros((), _dtype(diagonal)))
        return cls(total / max(tree.dimension(diagonal), 1))

    @classmethod
    def from_jacobian(cls, jacobian: Params, weight: Array) -> Scalar:
        """Returns the mean of the diagonal of the sum over the batch of Jᵀ W J."""
        return cls.from_diagonal(_weighted_squares(jacobian, weight))

    @classmethod
    def from_hessian(cls, product: Callable[[Params], Params], like: Params) -> Scalar:
        """Returns the mean of the diagonal, one product a coordinate."""
        return cls(jnp.mean(_entries(product, like)))

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

    def logdet(self, like: Params) -> Array:
        return tree.dimension(like) * jnp.log(self.value)

    def diagonal(self, like: Params) -> Params:
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, self.value), like)

    def variance(self, like: Params) -> Params:
        """Returns the vector with every coordinate 1 / s."""
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, 1.0 / self.value), like)

    def sandwich(self, delta: Scalar) -> Scalar:
        """Returns Δ S⁻¹ Δ, which is δ² / s."""
        return Scalar(delta.value**2 / self.value)

    def scale(self, factor: Number) -> Scalar:
        return Scalar(self.value * tree.cast(factor, self.value))

    def some_vector(self) -> Params:
        return jnp.asarray(self.value)

    def is_positive(self, like: Params) -> Array:
        return jnp.asarray(self.value > 0)


def inverse_square_root(values: Array) -> Array:
    """Returns 1 / √s, NaN below zero."""
    # XLA for CPUs does not vectorise a loop of a root and products alone, which takes six times as long. With a
    # constant in the loop, here that of the comparison, it does.
    return jnp.where(values >= 0, jax.lax.rsqrt(values), jnp.nan)


def _weighted_squares(jacobian: Params, weight: Array) -> Params:
    """Returns the diagonal of the sum over the batch of Jᵀ W J."""
    of_leaf = lambda leaf: jnp.einsum("bk...,bkl,bl...->...", leaf, weight.astype(leaf.dtype), leaf)
    return jax.tree.map(of_leaf, jacobian)


def _entries(product: Callable[[Params], Params], like: Params) -> Array:
    """Returns the diagonal of a matrix, by one product a coordinate."""
    vector, unravel = tree.ravel(like)
    return jax.lax.map(lambda e: tree.dot(unravel(e), product(unravel(e))), jnp.eye(vector.size, dtype=vector.dtype))


def _dtype(a: Params) -> jnp.dtype:
    return jnp.result_type(*jax.tree.leaves(a)) if jax.tree.leaves(a) else jnp.result_type(float)


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

    layered = is_diagonal = True

    @classmethod
    def from_diagonal(cls, diagonal: Params) -> Diagonal:
        """Returns diag(diagonal)."""
        return cls(diagonal)

    @classmethod
    def from_jacobian(cls, jacobian: Params, weight: Array) -> Diagonal:
        """Returns the diagonal of the sum over the batch of Jᵀ W J."""
        return cls(_weighted_squares(jacobian, weight))

    @classmethod
    def from_hessian(cls, product: Callable[[Params], Params], like: Params) -> Diagonal:
        """Returns the exact diagonal, one product a coordinate: for small problems."""
        return cls(tree.ravel(like)[1](_entries(product, like)))

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
        return jax.tree.map(lambda s, leaf: leaf * inverse_square_root(s), self.values, z)

    def factored(self) -> Diagonal:
        """Returns itself: there is nothing to factor."""
        return self

    def logdet(self, like: Params) -> Array:
        return tree.dot(jax.tree.map(jnp.log, self.values), jax.tree.map(jnp.ones_like, like))

    def diagonal(self, like: Params) -> Params:
        return self.values

    def variance(self, like: Params) -> Params:
        """Returns 1 / s."""
        return jax.tree.map(jnp.reciprocal, self.values)

    def dense(self, like: Params) -> Array:
        return jnp.diag(tree.ravel(self.values)[0])

    def sandwich(self, delta: Diagonal) -> Diagonal:
        """Returns Δ S⁻¹ Δ, which is δ² / s coordinate by coordinate."""
        return Diagonal(jax.tree.map(lambda s, d: d * d / s, self.values, delta.values))

    def add(self, other: Operator) -> Operator:
        """Returns S + other, exactly, for a Diagonal or a Scalar."""
        if not other.is_diagonal:
            return super().add(other)
        return Diagonal(tree.add(self.values, other.diagonal(self.values)))

    def scale(self, factor: Number) -> Diagonal:
        return Diagonal(tree.scale(self.values, factor))

    def some_vector(self) -> Params:
        return self.values

    def spectrum(self) -> Params:
        return self.values

    def feature_covariance(self, features: Array, outputs: int, marginal: bool) -> Array:
        """Returns the variances of the outputs, which are uncorrelated."""
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


@record
class Scaled(Operator):
    r"""The operator \(c\,S\).

    A belief's precision is κ P at every step. Multiplying a diagonal P by κ writes one vector; multiplying an operator
    with L columns would write and read L of them.

    Attributes:
        operator: S.
        factor: c, positive.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import LowRank, Scaled
        >>> S = LowRank(root=jnp.array([[1.0, 0.0]]), values=jnp.ones(2)).factored()
        >>> isinstance(S.scale(4.0), Scaled), S.scale(4.0).matvec(jnp.ones(2)).tolist()
        (True, [8.0, 4.0])
    """

    operator: Operator
    factor: Number

    @classmethod
    def of(cls, operator: Operator, factor: Number) -> Scaled:
        """Returns factor · operator, the factor in the operator's own dtype.

        Args:
            operator: S.
            factor: c.
        """
        return cls(operator, jnp.asarray(factor, jnp.result_type(*jax.tree.leaves(operator))))

    def matvec(self, v: Params) -> Params:
        return tree.scale(self.operator.matvec(v), self.factor)

    def solve(self, v: Params) -> Params:
        """Returns S⁻¹ v / c."""
        return self._divided(self.operator.solve(v))

    def inverse_root(self, z: Params) -> Params:
        """Returns R z / √c with R Rᵀ = S⁻¹."""
        return jax.tree.map(lambda x: x / jnp.sqrt(tree.cast(self.factor, x)), self.operator.inverse_root(z))

    def factored(self) -> Scaled:
        """Returns an equal operator, S factored."""
        return Scaled(self.operator.factored(), self.factor)

    def sample(self, key: RandomKey, like: Params) -> Params:
        """Returns a draw from N(0, S⁻¹ / c)."""
        return jax.tree.map(lambda x: x / jnp.sqrt(tree.cast(self.factor, x)), self.operator.sample(key, like))

    def logdet(self, like: Params) -> Array:
        """Returns log det S + D log c."""
        unscaled = self.operator.logdet(like)
        return unscaled + tree.dimension(like) * jnp.log(tree.cast(self.factor, unscaled))

    def diagonal(self, like: Params) -> Params:
        """Returns c times the diagonal of S."""
        return tree.scale(self.operator.diagonal(like), self.factor)

    def variance(self, like: Params) -> Params:
        """Returns the diagonal of S⁻¹, divided by c."""
        return self._divided(self.operator.variance(like))

    def trace_solve(self, other: Operator, like: Params) -> Array:
        """Returns tr(S⁻¹ other) / c."""
        return self._divided(self.operator.trace_solve(other, like))

    def scale(self, factor: Number) -> Scaled:
        return Scaled.of(self, factor)

    def is_positive(self, like: Params) -> Array:
        return self.operator.is_positive(like) & (self.factor > 0)

    def _divided(self, a: Params) -> Params:
        return jax.tree.map(lambda x: x / tree.cast(self.factor, x), a)


class Eigenbasis(Operator):
    """Base of operators with an array `eigenvalues`, given `apply` and `diagonal_of`; not linear in its leaves."""

    # The root that makes draws is the symmetric one, which does not depend on the signs and the order of eigenvectors.

    eigenvalues: Array

    def apply(self, function: Callable[[Array], Array], v: Params) -> Params:
        """Returns f(S) v, for a function of the eigenvalues."""
        raise NotImplementedError

    def diagonal_of(self, function: Callable[[Array], Array], like: Params) -> Params:
        """Returns the diagonal of f(S), a vector of the space."""
        raise NotImplementedError

    def mapped(self, function: Callable[[Array], Array]) -> Eigenbasis:
        """Returns f(S)."""
        me: Any = self  # a record
        return replace(me, eigenvalues=function(self.eigenvalues))

    def matvec(self, v: Params) -> Params:
        return self.apply(_same, v)

    def solve(self, v: Params) -> Params:
        return self.apply(_inverse, v)

    def inverse_root(self, z: Params) -> Params:
        return self.apply(jax.lax.rsqrt, z)

    def factored(self) -> Eigenbasis:
        return self

    def logdet(self, like: Params) -> Array:
        return jnp.sum(jnp.log(self.eigenvalues))

    def diagonal(self, like: Params) -> Params:
        return self.diagonal_of(_same, like)

    def variance(self, like: Params) -> Params:
        """Returns the diagonal of S⁻¹: a sum of positive terms."""
        return self.diagonal_of(_inverse, like)

    def scale(self, factor: Number) -> Eigenbasis:
        return self.mapped(lambda values: values * tree.cast(factor, values))

    def add(self, other: Operator) -> Eigenbasis:
        """Returns S plus a multiple of the identity (a `Scalar`), exactly, without another decomposition."""
        if not isinstance(other, Scalar):
            raise TypeError(
                f"a {type(self).__name__} plus a {type(other).__name__} has other eigenvectors; add a Scalar, or add "
                "them as Dense"
            )
        return self.mapped(lambda values: values + tree.cast(other.value, values))

    def add_diagonal(self, values: Params) -> Eigenbasis:
        """Returns S plus the mean of a diagonal times the identity; exact for a prior with one scale."""
        return self.add(Scalar(jnp.mean(tree.ravel(values)[0])))

    def spectrum(self) -> PyTree:
        return self.eigenvalues

    def is_positive(self, like: Params) -> Array:
        """Returns whether every eigenvalue is positive, and no eigenvector a NaN."""
        finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(self)]
        return jnp.all(self.eigenvalues > 0) & jnp.all(jnp.stack(finite))


def _same(values: Array) -> Array:
    return values


def _inverse(values: Array) -> Array:
    return 1 / values
