"""Expressions without parts: a variable, known numbers, an input of a row."""

from __future__ import annotations

from typing import Any, TypeVar

import jax.numpy as jnp

from lamu.graphs.expressions.interface import Environment, Expression
from lamu.graphs.statistics import KINDS, Numbers, Series, Statistics, Vectors
from lamu.record import record, static
from lamu.typing import Array

__all__ = ["Constant", "Input", "Variable", "lifted"]

S = TypeVar("S", bound=Statistics)


@record
class Variable(Expression):
    """A variable of the program."""

    name: str = static()
    sort: str = static()  # the name of the class of its statistics
    size: tuple[int, ...] | None = static()  # the shape of its value; None where the data decide

    @property
    def kind(self) -> type[Statistics]:
        """The class of its statistics."""
        return KINDS[self.sort]

    @property
    def names(self) -> frozenset[str]:
        return frozenset({self.name})

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.size

    def kinds(self) -> tuple[type[Statistics], ...]:
        # Returns its own; numbers are kept as vectors where they meet in a product.
        return (Numbers, Vectors) if issubclass(self.kind, Numbers | Vectors | Series) else (self.kind,)

    def of_kind(self, kind: type[S], at: Environment) -> Any:
        # Returns the statistics from the environment.
        return at.statistics[self.name]

    def first(self, at: Environment) -> Array:
        # Returns E x.
        return at.statistics[self.name].first

    def quadratic(self, weight: Array, at: Environment) -> Array:
        # Returns \(\sum_j c_j E[x_j^2]\).
        return jnp.sum(weight * at.statistics[self.name].second)


@record
class Constant(Expression):
    """Known numbers."""

    value: Any  # an array

    @property
    def names(self) -> frozenset[str]:
        # None.
        return frozenset()

    @property
    def shape(self) -> tuple[int, ...]:
        return jnp.shape(self.value)

    def kinds(self) -> tuple[type[Statistics], ...]:
        # Returns all: any T of a known value is known.
        return (Statistics,)

    def of_kind(self, kind: type[S], at: Environment) -> S:
        # Returns T of the value.
        return kind.of(self.value)

    def first(self, at: Environment) -> Array:
        return self.value

    def quadratic(self, weight: Array, at: Environment) -> Array:
        # Returns the weighted sum of the squares.
        return jnp.sum(weight * self.value**2)


@record
class Input(Expression):
    """An input of a row, `m.data(name)`."""

    name: str = static()  # its name in the data

    @property
    def names(self) -> frozenset[str]:
        # None.
        return frozenset()

    @property
    def shape(self) -> None:
        """Known when there are data."""

    def kinds(self) -> tuple[type[Statistics], ...]:
        # Returns all: any T of a known value is known.
        return (Statistics,)

    def of_kind(self, kind: type[S], at: Environment) -> S:
        # Returns T of the row's value.
        return kind.of(at.inputs[self.name])

    def first(self, at: Environment) -> Array:
        return at.inputs[self.name]

    def quadratic(self, weight: Array, at: Environment) -> Array:
        # Returns the weighted sum of the squares.
        return jnp.sum(weight * at.inputs[self.name] ** 2)


def lifted(value: Any) -> Expression:
    """Returns an expression as it is, and anything else as a constant."""
    return value if isinstance(value, Expression) else Constant(jnp.asarray(value, jnp.result_type(float)))
