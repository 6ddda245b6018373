"""What every expression of a program answers: statistics of its value, at statistics of its variables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

import jax.numpy as jnp

from lamu.graphs.statistics import KINDS, Numbers, Series, Statistics, Vectors
from lamu.record import record, static
from lamu.typing import Array

__all__ = ["Constant", "Environment", "Expression", "Input", "Variable", "lifted"]


S = TypeVar("S", bound=Statistics)


@record
class Environment:
    """Where expressions are evaluated: the statistics of variables, and the inputs of one row."""

    statistics: Any  # T of every variable by name
    inputs: Any = None  # the row's inputs by name
    temperature: Any = 1.0  # T, which a factor with a latent of its own needs
    step: Any = None  # how many training steps there have been, for locals that warm up; None outside of training
    # Whether a row's bound alone is asked for, so that locals need not follow the other latents a second time for their
    # λ.
    values_only: bool = static(default=False)


class Expression(ABC):
    """A value that depends on variables, inputs and constants."""

    # `names`: the variables that it depends on.
    #
    # `shape`: the shape of its value in one row, without what an unobserved input would tell; None where unknown.

    __array_ufunc__ = None  # so that NumPy leaves `array @ variable` to the variable

    @property
    @abstractmethod
    def names(self) -> frozenset[str]:
        """The variables that it depends on."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...] | None:
        """The shape of its value in one row; None where an input decides it."""

    @abstractmethod
    def kinds(self) -> tuple[type[Statistics], ...]:
        """Returns the statistics that `of_kind` can give."""

    @abstractmethod
    def of_kind(self, kind: type[S], at: Environment) -> S:
        """Returns its statistics."""

    def first(self, at: Environment) -> Array:
        """Returns the expectation of the value, numbers or vectors."""
        kind = Vectors if Vectors in self.kinds() else Numbers
        return self.of_kind(kind, at).first

    def quadratic(self, weight: Array, at: Environment) -> Array:
        r"""Returns \(\sum_j c_j E[f_j^2]\) of a value f, numbers or vectors.

        Args:
            weight: c, of the shape of f, or of one that f is broadcast to.
            at: where.
        """
        kind = Vectors if Vectors in self.kinds() else Numbers
        return jnp.sum(weight * self.of_kind(kind, at).second)

    # The operators make expressions of other files, which are subclasses of this one.

    def __matmul__(self, other: Any) -> Expression:
        from lamu.graphs.expressions.products import product

        return product(self, other)

    def __rmatmul__(self, other: Any) -> Expression:
        from lamu.graphs.expressions.products import product

        return product(other, self)

    def __add__(self, other: Any) -> Expression:
        from lamu.graphs.expressions.products import total

        return total(self, other)

    def __radd__(self, other: Any) -> Expression:
        from lamu.graphs.expressions.products import total

        return total(other, self)

    def __mul__(self, other: Any) -> Expression:
        from lamu.graphs.expressions.products import scaled

        return scaled(self, other)

    def __rmul__(self, other: Any) -> Expression:
        from lamu.graphs.expressions.products import scaled

        return scaled(other, self)

    def __neg__(self) -> Expression:
        return -1.0 * self

    def __sub__(self, other: Any) -> Expression:
        return self + -other if isinstance(other, Expression) else self + -jnp.asarray(other)

    def __rsub__(self, other: Any) -> Expression:
        return other + -self

    def __getitem__(self, index: Any) -> Expression:
        from lamu.graphs.expressions.members import member

        return member(self, index)


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
