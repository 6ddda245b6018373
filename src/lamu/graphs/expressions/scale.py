"""Scales, and products of independent scales."""

from __future__ import annotations

from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from lamu.graphs.expressions.interface import Environment, Expression
from lamu.graphs.statistics import Positive, Reciprocal, Statistics
from lamu.record import record

__all__ = ["Scale"]

S = TypeVar("S", bound=Statistics)


@record
class Scale(Expression):
    r"""A scale s, by its square, or a product of independent scales: \(E[s^{-2}]\) and \(E \log s^{-2}\)."""

    squares: Any  # variables of variances
    by: Any = 1.0  # a known factor

    @property
    def names(self) -> frozenset[str]:
        # Those of all factors.
        return frozenset().union(*(square.names for square in self.squares))

    @property
    def shape(self) -> tuple[int, ...]:
        # The shape that all factors are broadcast to.
        return np.broadcast_shapes(jnp.shape(self.by), *(square.shape for square in self.squares))

    def kinds(self) -> tuple[type[Statistics], ...]:
        return (Positive,)

    def of_kind(self, kind: type[S], at: Environment) -> Any:
        # Returns the statistics of the precision.
        log, value = -2.0 * jnp.log(self.by), 1.0 / jnp.asarray(self.by) ** 2
        for square in self.squares:
            one = square.of_kind(Reciprocal, at)
            log, value = log - one.log, value * one.inverse
        return Positive(log, value)

    def __mul__(self, other: Any) -> Scale:
        if isinstance(other, Scale):
            both = self.names & other.names
            if both:
                raise ValueError(
                    f"both scales depend on {', '.join(sorted(both))}; multiply independent ones, each of them once"
                )
            return Scale((*self.squares, *other.squares), self.by * other.by)
        return Scale(self.squares, self.by * jnp.asarray(other, jnp.result_type(float)))

    __rmul__ = __mul__

    def __neg__(self) -> Scale:
        raise TypeError(f"the scale {', '.join(sorted(self.names))} is positive, and has no minus; leave it out")

    def __getitem__(self, index: Any) -> Scale:
        mixed = any(square.shape not in ((), self.shape) for square in self.squares)
        if mixed or (isinstance(index, Expression) and jnp.ndim(self.by)):
            raise TypeError(
                f"the product of the scales {', '.join(sorted(self.names))} has factors of several shapes; index the "
                "HalfCauchy variables before they are multiplied"
            )
        by = jnp.broadcast_to(self.by, self.shape)[index] if jnp.ndim(self.by) else self.by
        return Scale(tuple(square[index] if square.shape else square for square in self.squares), by)
