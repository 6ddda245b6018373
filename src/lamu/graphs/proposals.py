"""Beliefs about the latents of a row that are drawn from, with the density of a draw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lamu.record import record, static
from lamu.typing import Array, RandomKey

__all__ = ["Independent", "Proposal", "Reshaped"]


class Proposal(ABC):
    r"""A belief \(q(z \mid y)\) about one or more latents of a row, as a chain of rows uses it."""

    # `names`: of the latents.

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The latents that it is about."""

    @abstractmethod
    def draw(self, key: RandomKey) -> tuple[dict[str, Any], Array]:
        """Returns values of the latents by name, and the log density of all of them in nats."""

    @abstractmethod
    def log_prob(self, values: Mapping[str, Any]) -> Array:
        """Returns the log density of given values in nats, a scalar."""


@record
class Independent(Proposal):
    r"""\(\prod_k q_k(z_k \mid y)\), a belief by the name of each latent."""

    beliefs: Any  # with `sample`, or `draw`, and `log_prob`

    @property
    def names(self) -> tuple[str, ...]:
        # The names of the beliefs.
        return tuple(self.beliefs)

    def draw(self, key: RandomKey) -> tuple[dict[str, Any], Array]:
        # Returns a draw of each, and the sum of the log densities.
        drawn = {
            name: _draw(belief, jax.random.fold_in(key, number))
            for number, (name, belief) in enumerate(self.beliefs.items())
        }
        return {name: value for name, (value, _) in drawn.items()}, _sum([log_q for _, log_q in drawn.values()])

    def log_prob(self, values: Mapping[str, Any]) -> Array:
        # Returns the sum of the log densities.
        return _sum([belief.log_prob(values[name]) for name, belief in self.beliefs.items()])


@record
class Reshaped:
    """A belief about a vector as one about an array with the same entries."""

    belief: Any  # about the vector
    shape: tuple[int, ...] = static()  # of the array

    def draw(self, key: RandomKey) -> tuple[Array, Array]:
        """Returns an array and its log density in nats."""
        vector, log_q = _draw(self.belief, key)
        return jnp.reshape(vector, self.shape), log_q

    def log_prob(self, value: Array) -> Array:
        """Returns the log density of an array in nats."""
        return self.belief.log_prob(jnp.reshape(value, -1))


def _draw(belief: Any, key: RandomKey) -> tuple[Any, Array]:
    """Returns a draw and its log density, which a flow has on the way."""
    if hasattr(belief, "draw"):
        return belief.draw(key)
    value = belief.sample(key)
    return value, belief.log_prob(value)


def _sum(terms: list[Array]) -> Array:
    return sum(terms[1:], terms[0]) if terms else jnp.zeros(())
