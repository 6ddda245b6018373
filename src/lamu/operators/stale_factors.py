"""An operator that is factored every few steps, and used with its latest factors in between."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lamu.operators.interface import Operator
from lamu.record import record, static
from lamu.typing import Array, Number, OperatorTree, Params, RandomKey

__all__ = ["StaleFactors"]

_WIDEST = 2048  # of a factor that is decomposed whole, once


@record
class StaleFactors(Operator):
    r"""An operator with stale factors: `used` was factored at an earlier step, `fresh` is up to date.

    Every method is that of `used`, so that solves and draws are cheap and consistent with each other. `fresh` moves at
    every step, and is factored every few steps, as in K-FAC.

    Attributes:
        used: an operator that is factored.
        fresh: the operator that moves.
        moves: how many times it has moved.
        rank: how many eigenvectors a factor keeps, where the operator offers the choice (`KroneckerBlocks`); None for
            all of them.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.operators import Kronecker
        >>> from lamu.operators.stale_factors import StaleFactors
        >>> old = StaleFactors.of(Kronecker(jnp.eye(1), jnp.eye(1)))
        >>> moved = old.moved(Kronecker(jnp.eye(1), 4.0 * jnp.eye(1)), every=2)
        >>> float(moved.solve(jnp.ones((1, 1)))[0, 0])  # the first step is always time
        0.25
    """

    used: OperatorTree
    fresh: OperatorTree
    moves: Array
    rank: int | None = static(default=None)

    @classmethod
    def of(cls, operator: OperatorTree, rank: int | None = None) -> StaleFactors:
        """Returns the operator, factored now, that has not moved."""
        # A block that is its own factor would be here twice, and who gives a state away gives each buffer once.
        used = jax.tree.map(jnp.copy, _factored(operator, rank))
        return cls(used, operator, jnp.zeros((), jnp.int32), rank)

    def moved(self, fresh: OperatorTree, every: int) -> StaleFactors:
        """Returns the operator after a move of the fresh one, factored where it is time.

        Args:
            fresh: where the fresh one moved to.
            every: it is time at every such move; before the first of them at moves 1, 2, 4, 8, ..., because a young
                operator changes fast.
        """
        moves = self.moves + 1
        young = (moves < every) & ((moves & (moves - 1)) == 0)
        due = young | (moves % every == 0)
        factor = lambda: _factored(fresh, self.rank)
        used = factor() if every == 1 else jax.lax.cond(due, factor, lambda: self.used)
        return StaleFactors(used, fresh, moves, self.rank)

    def renewed(self) -> StaleFactors:
        """Returns the operator with the fresh one in use, and all its eigenvectors where no factor is very wide.

        What is handed out at the end should be neither old nor cut: the mean of the eigenvalues left out would stand
        for directions of which the data say nothing, and narrow the prior there.
        """
        widest = max(max(jnp.shape(leaf), default=0) for leaf in jax.tree.leaves(self.fresh))
        rank = None if widest <= _WIDEST else self.rank
        return StaleFactors(_factored(self.fresh, rank), self.fresh, self.moves, self.rank)

    def matvec(self, v: Params) -> Params:
        return self.used.matvec(v)

    def factored(self) -> Operator:
        """Returns the operator in use alone."""
        return self.used

    def sample(self, key: RandomKey, like: Params) -> Params:
        return self.used.sample(key, like)

    def diagonal(self, like: Params) -> Params:
        return self.used.diagonal(like)

    def trace_solve(self, other: Operator, like: Params) -> Array:
        return self.used.trace_solve(other.used if isinstance(other, StaleFactors) else other, like)

    def scale(self, factor: Number) -> Operator:
        """Returns factor · S, of the operator in use alone: what is scaled is a belief and moves no more."""
        return self.used.scale(factor)

    def add(self, other: Operator) -> Operator:
        """Returns S + other, of the operator in use alone."""
        return self.used.add(other)

    def is_positive(self, like: Params) -> Array:
        """Returns whether the operator in use is positive definite, and the rest no NaN."""
        finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((self.fresh, self.moves))]
        return self.used.is_positive(like) & jnp.all(jnp.stack(finite))


def _factored(operator: OperatorTree, rank: int | None) -> OperatorTree:
    return operator.factored() if rank is None else operator.leading(rank)
