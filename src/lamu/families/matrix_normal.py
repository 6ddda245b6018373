"""Beliefs about a matrix whose rows and whose columns have a precision each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu.families.domains import Domain, PositiveDefinite, Real
from lamu.families.exponential import ExponentialFamily, sample_leaves, symmetric, total
from lamu.families.wishart import logdet
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["MatrixNormal"]


@record
class MatrixNormal(ExponentialFamily):
    r"""A matrix X, r by c, of precision \(U \otimes V\), that is \(\operatorname{cov}(X) = U^{-1} \otimes V^{-1}\).

    \[ \log q = \tfrac c2\log\det U + \tfrac r2\log\det V - \tfrac{rc}2\log 2\pi
       - \tfrac12\operatorname{tr}\big(U (X - M) V (X - M)^\top\big) \]

    Over M, U and V together it is curved: products of U and V fill no straight space. Given V it is a minimal
    exponential family in (M, U), and so are its λ and μ here:

    \[ T = (X,\; X V X^\top), \qquad \lambda = (U M V,\; -\tfrac12 U), \qquad \mu = (M,\; M V M^\top + c\,U^{-1}) \]

    To move V, transpose: `belief.transposed` is the belief about Xᵀ, given U.

    Attributes:
        mean: M `[..., r, c]`.
        row_precision: U `[..., r, r]`, symmetric positive definite.
        column_precision: V `[..., c, c]`, symmetric positive definite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import MatrixNormal
        >>> belief = MatrixNormal(jnp.zeros((2, 3)), jnp.eye(2), jnp.eye(3))
        >>> round(float(belief.entropy()), 4)  # six standard normal numbers
        8.5136
    """

    mean: Params
    row_precision: Params
    column_precision: Params

    kind = "curved"
    domains: ClassVar[Mapping[str, Domain]] = {
        "mean": Real(event=2),
        "row_precision": PositiveDefinite(),
        "column_precision": PositiveDefinite(),
    }
    events: ClassVar[tuple[int, ...]] = (2, 2)

    @property
    def given(self) -> Any:
        """V, which λ and μ take as known."""
        return self.column_precision

    @property
    def transposed(self) -> MatrixNormal:
        """The belief about the transposed matrix."""
        return MatrixNormal(jax.tree.map(_transpose, self.mean), self.column_precision, self.row_precision)

    def to_natural(self) -> Any:
        """Returns (U M V, −U/2)."""
        first = jax.tree.map(lambda M, U, V: U @ M @ V, self.mean, self.row_precision, self.column_precision)
        return first, jax.tree.map(lambda U: -U / 2.0, self.row_precision)

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> MatrixNormal:
        """Returns the belief with these parameters, given V."""
        mean = jax.tree.map(lambda first, second, V: _mean(first, -2.0 * second, V), *values, given)
        return cls(mean, jax.tree.map(lambda second: -2.0 * second, values[1]), given)

    @classmethod
    def from_expectation(cls, values: Any, given: Any) -> MatrixNormal:
        """Returns the belief with these expectations, given V."""

        def row_precision(M: Array, second: Array, V: Array) -> Array:
            return M.shape[-1] * jnp.linalg.inv(symmetric(second - M @ V @ _transpose(M)))

        return cls(values[0], jax.tree.map(row_precision, *values, given), given)

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        r"""Returns ½ tr(U M V Mᵀ) − c/2 log det U − r/2 log det V + rc/2 log 2π."""

        def leaf(first: Array, second: Array, V: Array) -> Array:
            U, (r, c) = -2.0 * symmetric(second), first.shape[-2:]
            quadratic = jnp.sum(first * _mean(first, U, V), axis=(-2, -1))
            return (quadratic - c * logdet(U) - r * logdet(V) + r * c * jnp.log(2.0 * jnp.pi)) / 2.0

        return total(leaf, *values, given)

    def statistics(self, theta: Params) -> Any:
        """Returns (X, X V Xᵀ)."""
        return theta, jax.tree.map(lambda X, V: X @ V @ _transpose(X), theta, self.column_precision)

    def kl(self, other: MatrixNormal) -> Array:
        r"""Returns \(KL(q \,\|\, p)\) in nats; both precisions of p may differ from q's."""

        def leaf(M: Array, U: Array, V: Array, M2: Array, U2: Array, V2: Array) -> Array:
            away, (r, c) = M - M2, M.shape[-2:]
            traces = jnp.trace(jnp.linalg.solve(U, U2), axis1=-2, axis2=-1) * jnp.trace(
                jnp.linalg.solve(V, V2), axis1=-2, axis2=-1
            )
            quadratic = jnp.sum(away * (U2 @ away @ V2), axis=(-2, -1))
            determinants = c * (logdet(U) - logdet(U2)) + r * (logdet(V) - logdet(V2))
            return (traces + quadratic - r * c + determinants) / 2.0

        ours = (self.mean, self.row_precision, self.column_precision)
        return total(leaf, *ours, other.mean, other.row_precision, other.column_precision)

    def sample(self, key: RandomKey) -> Params:

        def draw(k: RandomKey, M: Array, U: Array, V: Array) -> Array:
            left, right = jnp.linalg.cholesky(U), jnp.linalg.cholesky(V)
            noise = jax.random.normal(k, M.shape, M.dtype)
            scaled = jnp.linalg.solve(_transpose(left), noise)
            return M + _transpose(jnp.linalg.solve(_transpose(right), _transpose(scaled)))

        return sample_leaves(key, draw, self.mean, self.row_precision, self.column_precision)


def _transpose(matrix: Array) -> Array:
    return jnp.swapaxes(matrix, -1, -2)


def _mean(first: Array, U: Array, V: Array) -> Array:
    """Returns M = U⁻¹ (U M V) V⁻¹."""
    return _transpose(jnp.linalg.solve(V, _transpose(jnp.linalg.solve(U, first))))
