"""A belief before any data, as the factor of a variable that has no arguments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.graphs.expressions import Environment, Expression
from lamu.graphs.factor import Factor
from lamu.graphs.statistics import Statistics, kind_of
from lamu.record import record
from lamu.typing import Array

__all__ = ["Known"]


@record
class Known(Factor):
    r"""\(\log p(x) = \langle\lambda_0, T(x)\rangle - A(\lambda_0)\) of a belief of `lamu.families`."""

    belief: Any  # the prior, with the axes of its plate

    @property
    def kind(self) -> type[Statistics]:
        """The statistics of the family."""
        return kind_of(self.belief)

    @property
    def arguments(self) -> dict[str, Expression]:
        # None.
        return {}

    @property
    def shape(self) -> tuple[int, ...]:
        # The shape of a draw; of the mean's, where there is a mean beside a precision.
        drawn = jax.eval_shape(self.belief.sample, jax.random.key(0))
        return (drawn["mean"] if isinstance(drawn, dict) else drawn).shape

    def log_density(self, x: Any, at: Environment, observed: Any = None) -> Array:
        # Returns ⟨λ₀, T⟩ − A(λ₀), with the logarithm of a constant base measure.
        natural = self.kind(*jax.tree.leaves(self.belief.to_natural()))
        constant = self.belief.expected_log_base_measure() - self.belief.log_partition()
        return tree.dot(natural, x) + constant

    def repeated(self, plate: tuple[int, ...]) -> Known:
        """Returns the prior of a plate of independent members."""
        return Known(jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*plate, *jnp.shape(leaf))), self.belief))
