"""Statistics of series: a chain of vectors, and a chain of categories."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from lamu.families import GaussianChain, MarkovChain, ParallelGaussianChain, ParallelMarkovChain
from lamu.graphs.statistics.interface import Statistics
from lamu.record import record
from lamu.typing import Array

__all__ = ["ParallelSeries", "ParallelStates", "Series", "States"]


@record
class Series(Statistics):
    """A series of T vectors, each with the one before."""

    first: Any  # x `[T, d]`
    outer: Any  # x_t x_tᵀ `[T, d, d]`
    cross: Any  # x_t x_{t+1}ᵀ `[T − 1, d, d]`

    words = "a series of vectors"
    events = 2
    family: ClassVar[type[GaussianChain]] = GaussianChain

    @classmethod
    def of(cls, value: Any) -> Series:
        """Returns (x, x xᵀ, x_t x_{t+1}ᵀ)."""
        outer = value[..., :, None] * value[..., None, :]
        return cls(value, outer, value[..., :-1, :, None] * value[..., 1:, None, :])

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> Series:
        """Returns zeros."""
        *batch, T, d = shape
        matrices = lambda count: jnp.zeros((*batch, count, d, d), dtype)
        return cls(jnp.zeros(shape, dtype), matrices(T), matrices(T - 1))

    @property
    def second(self) -> Array:
        """The squares of the entries, x²."""
        return jnp.diagonal(self.outer, axis1=-2, axis2=-1)

    def belief(self) -> GaussianChain:
        # Returns the chain, whose expectations are those of a smoother.
        return self.family.from_natural((self.first, self.outer, self.cross), None)

    def log_partition(self) -> Array:
        # Returns the log-partition by the recursion of the filter.
        return self.family.partition((self.first, self.outer, self.cross), None)

    def mode(self) -> Array:
        return self.belief().mean


@record
class States(Statistics):
    """A series of T categories of K, each with the one before."""

    probabilities: Any  # one-hot vectors `[T, K]`
    pairs: Any  # `[T − 1, K, K]`

    words = "a series of categories"
    events = 2
    family: ClassVar[type[MarkovChain]] = MarkovChain

    @classmethod
    def of(cls, value: Any) -> States:
        """Returns one-hot vectors and their pairs."""
        return cls(value, value[..., :-1, :, None] * value[..., 1:, None, :])

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any) -> States:
        """Returns zeros."""
        *batch, T, K = shape
        return cls(jnp.zeros(shape, dtype), jnp.zeros((*batch, T - 1, K, K), dtype))

    @classmethod
    def under(cls, belief: Any) -> States:
        """Returns the probabilities of all K categories and all pairs, of which the family leaves the last one out."""
        single, pair = belief.expectation().values
        whole = jnp.concatenate([single, 1.0 - jnp.sum(single, axis=-1, keepdims=True)], axis=-1)
        last = whole[..., :-1, :-1] - jnp.sum(pair, axis=-1)
        rows = jnp.concatenate([pair, last[..., None]], axis=-1)
        column = whole[..., 1:, :] - jnp.sum(rows, axis=-2)
        return cls(whole, jnp.concatenate([rows, column[..., None, :]], axis=-2))

    def belief(self) -> MarkovChain:
        return self.family.from_natural(self._minimal()[0], None)

    def log_partition(self) -> Array:
        # Returns the log of the sum over all series, by the forward recursion.
        values, constant = self._minimal()
        return self.family.partition(values, None) + constant

    def mode(self) -> Any:
        # Raises a TypeError: no factor makes a point of a series of categories.
        raise TypeError("a series of categories is summed out, and is no point")

    def _minimal(self) -> tuple[tuple[Array, Array], Array]:
        """Returns λ without the last category, and what that leaves out."""
        single, pair = self.probabilities, self.pairs
        before, after = pair[..., -1], pair[..., -1, :]
        single = single.at[..., :-1, :].add(before).at[..., 1:, :].add(after)
        corner = pair[..., -1:, -1:]
        rest = pair - before[..., :, None] - after[..., None, :] + corner
        constant = jnp.sum(single[..., -1]) - jnp.sum(corner)
        return ((single - single[..., -1:])[..., :-1], rest[..., :-1, :-1]), constant


@record
class ParallelSeries(Series):
    """A series of vectors whose recursions are associative scans."""

    family = ParallelGaussianChain


@record
class ParallelStates(States):
    """A series of categories whose recursions are associative scans."""

    family = ParallelMarkovChain
