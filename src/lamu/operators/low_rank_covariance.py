r"""A precision whose inverse is a few directions and a diagonal: what a belief is that was counted from deviations."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.operators.dense import Dense
from lamu.operators.interface import Operator
from lamu.operators.low_rank import LowRank, LowRankEigen
from lamu.operators.scaled import Scaled
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["LowRankCovariance"]


@record
class LowRankCovariance(Operator):
    r"""The operator \(S = C^{-1}\) for a covariance \(C = U U^\top + \mathrm{diag}(d)\).

    `LowRank` holds a precision of this form; here it is the covariance, whose precision has a minus sign in it
    (Woodbury) and is none of that form. Solving is a product with C, \(O(D L)\); products with S, determinants and
    draws cost \(O(D L^2)\) once and \(O(D L)\) after `factored()`.

    Attributes:
        covariance: C, a `LowRank`, every d positive; `factored()` keeps its eigenvalues too.

    Source: Maddox, Garipov, Izmailov, Vetrov & Wilson (2019), equation 1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import LowRank, LowRankCovariance
        >>> S = LowRankCovariance(LowRank(root=jnp.array([[1.0, 0.0]]), values=jnp.ones(2)))
        >>> S.variance(jnp.ones(2)).tolist(), [round(x, 6) for x in S.matvec(jnp.ones(2)).tolist()]
        ([2.0, 1.0], [0.5, 1.0])
    """

    covariance: LowRank | LowRankEigen

    def matvec(self, v: Params) -> Params:
        """Returns S v, by the identity of Woodbury."""
        return self.covariance.solve(v)

    def solve(self, v: Params) -> Params:
        """Returns S⁻¹ v, a product with the covariance."""
        return self.covariance.matvec(v)

    def inverse_root(self, z: Params) -> Params:
        r"""Returns R z with R Rᵀ = C, \(R = D^{1/2} (I + W W^\top)^{1/2}\) for \(W = D^{-1/2} U\).

        It is \(C\) times the root of \(C^{-1}\) that `LowRank` takes: \(C\, D^{-1/2} (I + W W^\top)^{-1/2}\).
        """
        factored = self.covariance.factored()
        return factored.matvec(factored.inverse_root(z))

    def factored(self) -> LowRankCovariance:
        """Returns an equal operator whose covariance knows its eigenvalues."""
        return LowRankCovariance(self.covariance.factored())

    def sample(self, key: RandomKey, like: Params) -> Params:
        """Returns an exact draw from N(0, C)."""
        return self.inverse_root(tree.normal(key, like))

    def logdet(self, like: Params) -> Array:
        """Returns log det S = −log det C."""
        return -self.covariance.logdet(like)

    def diagonal(self, like: Params) -> Params:
        return self.covariance.variance(like)

    def variance(self, like: Params) -> Params:
        return self.covariance.diagonal(like)

    def dense(self, like: Params) -> Array:
        """Returns S as a matrix, for small spaces."""
        inverse = jnp.linalg.inv(self.covariance.dense(like))
        return (inverse + inverse.T) / 2

    def trace_solve(self, other: Operator, like: Params) -> Array:
        """Returns tr(C other), by one product with the other a column."""
        forms = jax.vmap(lambda u: tree.dot(u, other.matvec(u)))(self.covariance.root)
        return tree.dot(self.covariance.values, other.diagonal(like)) + jnp.sum(forms)

    def sandwich(self, delta: Operator) -> Dense:
        """Returns Δ C Δ as a matrix, for small spaces."""
        values = self.covariance.values
        matrix, unravel = delta.dense(values), tree.ravel(values)[1]
        spread = jax.vmap(lambda row: tree.ravel(self.solve(unravel(row)))[0])(matrix)
        product = jnp.matmul(spread, matrix, precision=jax.lax.Precision.HIGHEST)
        return Dense((product + product.T) / 2)

    def scale(self, factor: Number) -> Scaled:
        return Scaled.of(self, factor)

    def is_positive(self, like: Params) -> Array:
        """Returns whether every d is positive and U finite."""
        return self.covariance.is_positive(like)
