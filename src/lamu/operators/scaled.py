"""A multiple of an operator that is expensive to copy: the factor stands beside it, and meets the results."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.operators.interface import Operator
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Scaled"]


@record
class Scaled(Operator):
    r"""The operator \(c\,S\).

    A belief's precision is κ P, at every step. Of a diagonal P that is one vector; of an operator with L columns it
    would be L, written and read again for the sake of a number.

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
    factor: Any

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
        known = self.operator.logdet(like)
        return known + tree.dimension(like) * jnp.log(tree.cast(self.factor, known))

    def diagonal(self, like: Params) -> Params:
        """Returns c times the diagonal of S."""
        return tree.scale(self.operator.diagonal(like), self.factor)

    def variance(self, like: Params) -> Params:
        """Returns the diagonal of S⁻¹, divided by c."""
        return self._divided(self.operator.variance(like))

    def dense(self, like: Params) -> Array:
        return tree.scale(self.operator.dense(like), self.factor)

    def trace_solve(self, other: Operator, like: Params) -> Array:
        """Returns tr(S⁻¹ other) / c."""
        return self._divided(self.operator.trace_solve(other, like))

    def sandwich(self, delta: Operator) -> Operator:
        """Returns Δ S⁻¹ Δ / c, for a Δ of the structure of S, or a multiple of one."""
        if isinstance(delta, Scaled):
            return self.sandwich(delta.operator).scale(delta.factor**2)
        inner = self.operator.sandwich(delta)
        return inner.scale(1 / tree.cast(self.factor, jax.tree.leaves(inner)[0]))

    def scale(self, factor: Number) -> Scaled:
        return Scaled.of(self, factor)

    def is_positive(self, like: Params) -> Array:
        return self.operator.is_positive(like) & (self.factor > 0)

    def _divided(self, a: Params) -> Params:
        return jax.tree.map(lambda x: x / tree.cast(self.factor, x), a)
