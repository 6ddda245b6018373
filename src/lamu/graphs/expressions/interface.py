"""Interface of the expressions of a program: statistics of their value, at statistics of their variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from lamu.graphs.statistics import KINDS, Numbers, Series, Statistics, Vectors
from lamu.record import record, static
from lamu.typing import Array

__all__ = [
    "Environment",
    "Expression",
    "Input",
    "KnownValue",
    "Value",
    "Variable",
    "common_shape",
    "lifted",
    "repeated_picks",
    "without_value",
]


S = TypeVar("S", bound=Statistics)


@record
class Environment:
    """Values for evaluating expressions: the statistics of variables, and the inputs of one row."""

    statistics: Any  # T of every variable by name
    inputs: Any = None  # the row's inputs by name
    temperature: Any = 1.0  # T, for factors with latents of their own
    step: Any = None  # number of training steps so far, for locals that warm up; None outside of training
    # Whether only a row's bound is needed, so that locals need not eliminate the other latents a second time for their
    # λ.
    values_only: bool = static(default=False)

    def having(self, statistics: Mapping[str, Any]) -> Environment:
        """Returns the environment with statistics of further variables."""
        return replace(self, statistics={**self.statistics, **statistics})


class Expression:
    """A value that depends on variables, inputs and constants."""

    __array_ufunc__ = None  # so that NumPy leaves `array @ variable` to the variable

    @property
    def parts(self) -> tuple[Expression, ...]:
        """Its subexpressions, which are fields."""
        fields = (field if isinstance(field, tuple) else (field,) for field in vars(self).values())
        return tuple(part for field in fields for part in field if isinstance(part, Expression))

    @property
    def names(self) -> frozenset[str]:
        """The variables on which it depends."""
        return frozenset().union(*(part.names for part in self.parts))

    @property
    def picks(self) -> dict[str, tuple[int, ...]]:
        """The categories that index members, with the leading axes of each."""
        return {name: axes for part in self.parts for name, axes in part.picks.items()}

    @property
    def repeated(self) -> frozenset[str]:
        """The categories that index several of its parts; it has closed forms only given each of their values."""
        return repeated_picks(self.parts)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of its value in one row, to which its parts are broadcast; None if an input determines it."""
        return common_shape(self.parts)

    @property
    def is_vector(self) -> bool:
        """Whether its value is a vector whose entries have the cross moments of `Vectors`."""
        return bool({Vectors, Statistics} & set(self.kinds()))

    def kinds(self) -> tuple[type[Statistics], ...]:
        """Returns the statistics that `of_kind` supports; none for the mean of a Normal, which all support."""
        return ()

    def of_kind(self, kind: type[S], environment: Environment) -> S:
        """Returns the statistics of its value."""
        raise TypeError(f"what {', '.join(sorted(self.names))} make has no {kind.words}, only a mean and squares")

    def first(self, environment: Environment) -> Array:
        """Returns the expectation of the value, numbers or vectors."""
        return self.of_kind(Numbers, environment).first

    def quadratic(self, weight: Array, environment: Environment) -> Array:
        r"""Returns \(\sum_j c_j E[f_j^2]\) of a value f, numbers or vectors.

        Args:
            weight: c, of the shape of f, or of one that f is broadcast to.
            environment: the environment.
        """
        return jnp.sum(weight * self.of_kind(Numbers, environment).second)

    def __init_subclass__(cls) -> None:
        cls.__eq__ = Expression.__eq__  # and not that of records, which is False beside numbers
        cls.__hash__ = Expression.__hash__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int | float | np.ndarray | jax.Array):
            self._compared()
        return type(other) is type(self) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def _compared(self, *_: object) -> bool:
        """Raises a TypeError that names what takes the place of a comparison."""
        names = ", ".join(sorted(self.names)) or getattr(self, "name", "an input")
        raise TypeError(
            f"{names} has no value while a graph is written, and cannot be compared or decide; index a variable by a "
            f"category, effect[{names}], make the comparison a column of the data, or make a time of change a series "
            "that does not come back, graphs.Markov(T, [1.0, 0.0], [[1 - 1 / T, 1 / T], [0.0, 1.0]])"
        )

    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _compared

    def __array__(self, *_: Any, **__: Any) -> Any:  # NumPy asks for it where a variable indexes an array
        raise TypeError(without_value(sorted(self.names)))

    # The operators return subclasses of this class from other files.

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
    size: tuple[int, ...] | None = static()  # the shape of its value; None if the data determine it

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
        # Returns its own; numbers are stored as vectors if they enter a product.
        return (Numbers, Vectors) if issubclass(self.kind, Numbers | Vectors | Series) else (self.kind,)

    def of_kind(self, kind: type[S], environment: Environment) -> Any:
        # Returns the statistics from the environment.
        return environment.statistics[self.name]


class Value(Expression):
    """An expression with a known value in its environment, and thus any T; `first` returns the value."""

    def kinds(self) -> tuple[type[Statistics], ...]:
        # Returns all.
        return (Statistics,)

    def of_kind(self, kind: type[S], environment: Environment) -> S:
        # Returns T of the value.
        return kind.of(self.first(environment))

    def quadratic(self, weight: Array, environment: Environment) -> Array:
        # Returns the weighted sum of the squares.
        return jnp.sum(weight * self.first(environment) ** 2)


@record
class KnownValue(Value):
    """Known numbers."""

    value: Any  # an array

    @property
    def shape(self) -> tuple[int, ...]:
        return jnp.shape(self.value)

    def first(self, environment: Environment) -> Array:
        return self.value


@record
class Input(Value):
    """An input of a row, `m.data(name)`."""

    name: str = static()  # its name in the data

    @property
    def shape(self) -> None:
        """None: known only from the data."""

    def first(self, environment: Environment) -> Array:
        return environment.inputs[self.name]


def without_value(names: Iterable[str]) -> str:
    """Returns the sentence about an array that variables, or inputs where there are none, cannot index or become."""
    names = ", ".join(names)
    known = "numbers that are known of each value" + (f" of {names}" if names else "")
    way = (
        f'make {known} a variable of large precision, mean = m.sample("mean", graphs.Normal(known, precision=1e8), '
        f"plate=len(known)), and write mean[{names}]"
        if names
        else f"give {known} as a column of the data"
    )
    return (
        f"{names or 'an input'} has no value while a graph is written, and cannot index an array or become one; {way}"
    )


def repeated_picks(parts: Iterable[Expression]) -> frozenset[str]:
    """Returns the categories that index several of some expressions, or one several times."""
    parts = tuple(parts)
    counts = Counter(name for part in parts for name in part.picks)
    several = frozenset(name for name, count in counts.items() if count > 1)
    return several.union(*(part.repeated for part in parts))


def common_shape(parts: Iterable[Any]) -> tuple[int, ...] | None:
    """Returns the broadcast shape of arrays and expressions; None if that of one is unknown."""
    shapes = [part.shape for part in parts]
    return None if None in shapes else np.broadcast_shapes(*shapes)


def lifted(value: Any) -> Expression:
    """Returns an expression unchanged, and anything else as a constant."""
    return value if isinstance(value, Expression) else KnownValue(jnp.asarray(value, jnp.result_type(float)))
