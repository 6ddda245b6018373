r"""What a program computes of its variables before they are arguments of a factor.

An expression is written once, when the program runs, and evaluated at any statistics of the variables: it answers with
the statistics of its own value that a factor asks for. It stays affine in those of each variable, because a product
takes two independent variables at most, and a category picks by averaging, \(T(x_z) = \sum_k z_k T(x_k)\).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from lamu.graphs.statistics import (
    KINDS,
    Categories,
    Numbers,
    Positive,
    Reciprocal,
    Series,
    States,
    Statistics,
    Vectors,
)
from lamu.record import record, static
from lamu.typing import Array

__all__ = ["Constant", "Environment", "Expression", "Indexed", "Input", "Scale", "Sliced", "Sum", "Times", "Variable"]

S = TypeVar("S", bound=Statistics)


@record
class Environment:
    """Where expressions are evaluated: the statistics of variables, and the inputs of one row.

    Attributes:
        statistics: T of every variable by name.
        inputs: the row's inputs by name.
        temperature: T, which a factor with a latent of its own needs.

    Examples:
        >>> from lamu.graphs.expressions import Environment
        >>> Environment({}).temperature
        1.0
    """

    statistics: Any
    inputs: Any = None
    temperature: Any = 1.0


class Expression(ABC):
    """A value that depends on variables, inputs and constants.

    Attributes:
        names: the variables that it depends on.
        shape: the shape of its value in one row, without what an unobserved input would tell; None where unknown.
    """

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
        """Returns its statistics.

        Args:
            kind: which; one of `kinds()`.
            at: where.
        """

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

    def __matmul__(self, other: Any) -> Expression:
        return Times(self, lifted(other))

    def __rmatmul__(self, other: Any) -> Expression:
        return Times(lifted(other), self)

    def __add__(self, other: Any) -> Expression:
        return Sum(self, lifted(other))

    def __radd__(self, other: Any) -> Expression:
        return Sum(lifted(other), self)

    def __getitem__(self, index: Any) -> Expression:
        return Indexed(self, index) if isinstance(index, Expression) else Sliced(self, index)


def lifted(value: Any) -> Expression:
    """Returns an expression as it is, and anything else as a constant.

    Args:
        value: an expression, a number or an array.

    Examples:
        >>> from lamu.graphs.expressions import lifted
        >>> lifted(2.0).shape
        ()
    """
    return value if isinstance(value, Expression) else Constant(jnp.asarray(value, jnp.result_type(float)))


@record
class Variable(Expression):
    """A variable of the program.

    Attributes:
        name: its name.
        sort: the name of the class of its statistics.
        size: the shape of its value; None where the data decide.

    Examples:
        >>> from lamu.graphs.expressions import Variable
        >>> (Variable("w", "Numbers", (3,)) + 1.0).names
        frozenset({'w'})
    """

    name: str = static()
    sort: str = static()
    size: tuple[int, ...] | None = static()

    @property
    def kind(self) -> type[Statistics]:
        """The class of its statistics."""
        return KINDS[self.sort]

    @property
    def names(self) -> frozenset[str]:
        """Its name."""
        return frozenset({self.name})

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Its shape."""
        return self.size

    def kinds(self) -> tuple[type[Statistics], ...]:
        """Returns its own; numbers are kept as vectors where they meet in a product."""
        return (Numbers, Vectors) if self.kind in (Numbers, Vectors, Series) else (self.kind,)

    def of_kind(self, kind: type[S], at: Environment) -> Any:
        """Returns the statistics from the environment."""
        return at.statistics[self.name]

    def first(self, at: Environment) -> Array:
        """Returns E x."""
        return at.statistics[self.name].first

    def quadratic(self, weight: Array, at: Environment) -> Array:
        r"""Returns \(\sum_j c_j E[x_j^2]\)."""
        return jnp.sum(weight * at.statistics[self.name].second)


@record
class Constant(Expression):
    """Known numbers.

    Attributes:
        value: an array.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.graphs.expressions import Constant
        >>> Constant(jnp.ones(3)).shape
        (3,)
    """

    value: Any

    @property
    def names(self) -> frozenset[str]:
        """None."""
        return frozenset()

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return jnp.shape(self.value)

    def kinds(self) -> tuple[type[Statistics], ...]:
        """Returns all: any T of a known value is known."""
        return (Statistics,)

    def of_kind(self, kind: type[S], at: Environment) -> S:
        """Returns T of the value."""
        return kind.of(self.value)

    def first(self, at: Environment) -> Array:
        """Returns the value."""
        return self.value

    def quadratic(self, weight: Array, at: Environment) -> Array:
        """Returns the weighted sum of the squares."""
        return jnp.sum(weight * self.value**2)


@record
class Input(Expression):
    """An input of a row, `m.data(name)`.

    Attributes:
        name: its name in the data.

    Examples:
        >>> from lamu.graphs.expressions import Input
        >>> Input("x").shape is None
        True
    """

    name: str = static()

    @property
    def names(self) -> frozenset[str]:
        """None."""
        return frozenset()

    @property
    def shape(self) -> None:
        """Known when there are data."""

    def kinds(self) -> tuple[type[Statistics], ...]:
        """Returns all: any T of a known value is known."""
        return (Statistics,)

    def of_kind(self, kind: type[S], at: Environment) -> S:
        """Returns T of the row's value."""
        return kind.of(at.inputs[self.name])

    def first(self, at: Environment) -> Array:
        """Returns the row's value."""
        return at.inputs[self.name]

    def quadratic(self, weight: Array, at: Environment) -> Array:
        """Returns the weighted sum of the squares."""
        return jnp.sum(weight * at.inputs[self.name] ** 2)


@record
class Indexed(Expression):
    r"""The member of a plate that a category picks, \(x_z\).

    Attributes:
        of: the plate, a variable (or what is picked of it).
        by: the category: a variable, or an input of whole numbers.

    Examples:
        >>> from lamu.graphs.expressions import Indexed, Variable
        >>> Indexed(Variable("level", "Numbers", (5,)), Variable("z", "Categories", (5,))).shape
        ()
    """

    of: Any
    by: Any

    def __post_init__(self) -> None:
        if isinstance(self.by, Variable) and self.by.kind not in (Categories, States):
            raise TypeError(f"{self.by.name!r} is {self.by.kind.words} and picks no member; index by a Categorical")
        if isinstance(self.by, Variable) and self.of.shape and self.by.size and self.of.shape[0] != self.by.size[-1]:
            raise ValueError(
                f"{self.by.name!r} has {self.by.size[-1]} categories and the plate {sorted(self.of.names)} has "
                f"{self.of.shape[0]} members; give plate={self.by.size[-1]}"
            )

    @property
    def names(self) -> frozenset[str]:
        """Those of the plate and of the category."""
        return self.of.names | self.by.names

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a member; of a series of categories that of one at every time."""
        if self.of.shape is None or self.by.shape is None:
            return None if self.of.shape is None or isinstance(self.by, Variable) else self.of.shape[1:]
        return (*self.by.shape[:-1], *self.of.shape[1:])

    def kinds(self) -> tuple[type[Statistics], ...]:
        """Returns those of the plate."""
        return self.of.kinds()

    def of_kind(self, kind: type[S], at: Environment) -> S:
        """Returns the average of the members' statistics, or the member's own."""
        plate = self.of.of_kind(kind, at)
        if isinstance(self.by, Variable):
            weights = at.statistics[self.by.name].probabilities
            return jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, 1), plate)
        index = jnp.asarray(self.by.first(at)).astype(jnp.int32)
        return jax.tree.map(lambda leaf: leaf[index], plate)

    def first(self, at: Environment) -> Array:
        """Returns the expectation of the member."""
        return self.of_kind(Numbers, at).first

    def quadratic(self, weight: Array, at: Environment) -> Array:
        """Returns the weighted sum of the member's squares."""
        return jnp.sum(weight * self.of_kind(Numbers, at).second)


@record
class Sliced(Expression):
    """Some members of a plate, by whole numbers or slices of its leading axes.

    Attributes:
        of: the plate.
        index: a whole number, a slice, or several.

    Examples:
        >>> from lamu.graphs.expressions import Variable
        >>> Variable("rate", "Positive", (5,))[2].shape
        ()
    """

    of: Any
    index: Any = static()

    def __post_init__(self) -> None:
        parts = self.index if isinstance(self.index, tuple) else (self.index,)
        ranges = tuple((p.start, p.stop, p.step) if isinstance(p, slice) else p for p in parts)
        object.__setattr__(self, "index", ranges)

    @property
    def _at(self) -> tuple[Any, ...]:
        return tuple(slice(*part) if isinstance(part, tuple) else part for part in self.index)

    @property
    def names(self) -> frozenset[str]:
        """Those of the plate."""
        return self.of.names

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of what is taken."""
        if self.of.shape is None:
            return None
        return jax.eval_shape(lambda x: x[self._at], jax.ShapeDtypeStruct(self.of.shape, jnp.float32)).shape

    def kinds(self) -> tuple[type[Statistics], ...]:
        """Returns those of the plate."""
        return self.of.kinds()

    def of_kind(self, kind: type[S], at: Environment) -> S:
        """Returns the statistics of the members taken."""
        return jax.tree.map(lambda leaf: leaf[self._at], self.of.of_kind(kind, at))

    def first(self, at: Environment) -> Array:
        """Returns the expectations of the members."""
        return self.of_kind(Numbers, at).first

    def quadratic(self, weight: Array, at: Environment) -> Array:
        """Returns the weighted sum of the members' squares."""
        return jnp.sum(weight * self.of_kind(Numbers, at).second)


@record
class Times(Expression):
    r"""The product of a vector, or of a plate of vectors, with a vector that is independent of it, \(W z\).

    \[ E[(Wz)_d] = E[w_d]^\top E[z], \qquad E[(Wz)_d^2] = \mathrm{tr}\, E[w_d w_d^\top] E[z z^\top] \]

    Attributes:
        left: W `[..., K]`.
        right: z `[K]`.

    Raises:
        ValueError: where both sides depend on one variable: the moments of such a product are no longer affine.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.graphs.expressions import Variable
        >>> (jnp.ones((4, 3)) @ Variable("z", "Vectors", (3,))).shape
        (4,)
    """

    left: Any
    right: Any

    def __post_init__(self) -> None:
        both = self.left.names & self.right.names
        if both:
            raise ValueError(
                f"both sides of @ depend on {', '.join(sorted(both))}, whose product with itself has no closed form; "
                "multiply variables that are independent of each other"
            )
        for side in (self.left, self.right):
            if not isinstance(side, Constant | Input) and Vectors not in side.kinds():
                raise TypeError(
                    f"@ multiplies vectors of numbers, and {', '.join(sorted(side.names))} is "
                    f"{side.kinds()[0].words if side.kinds() else 'a product itself'}; moments of products of three "
                    "variables have no closed form here"
                )
        left, right = self.left.shape, self.right.shape
        if left and right and left[-1] != right[-1]:
            raise ValueError(f"@ meets {left[-1]} and {right[-1]} numbers; give both sides the same last axis")

    @property
    def names(self) -> frozenset[str]:
        """Those of both sides."""
        return self.left.names | self.right.names

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The leading axes of W."""
        if self.left.shape is None:
            return () if isinstance(self.left, Input) and self.right.shape is not None else None
        return self.left.shape[:-1]

    def kinds(self) -> tuple[type[Statistics], ...]:
        """Returns none: a product is the mean of a Normal, and no argument of another kind."""
        return ()

    def of_kind(self, kind: type[S], at: Environment) -> S:
        """Raises a TypeError: the caller asks for `first` and `quadratic`."""
        raise TypeError(f"a product has no {kind.words}")

    def first(self, at: Environment) -> Array:
        """Returns E[W] E[z]."""
        return self.left.first(at) @ self.right.first(at)

    def quadratic(self, weight: Array, at: Environment) -> Array:
        r"""Returns \(\mathrm{tr}\,(\sum_d c_d E[w_d w_d^\top])\, E[z z^\top]\), or its known form."""
        if isinstance(self.right, Constant | Input):
            return self._of_known(self.left, self.right.first(at), weight, at)
        if isinstance(self.left, Constant | Input):
            W = self.left.first(at)
            weighted = jnp.tensordot(weight, W[..., :, None] * W[..., None, :], jnp.ndim(weight))
        else:
            outer = self.left.of_kind(Vectors, at).outer
            weight = jnp.broadcast_to(weight, outer.shape[:-2])
            weighted = jnp.tensordot(weight, outer, jnp.ndim(weight))
        return jnp.sum(weighted * self.right.of_kind(Vectors, at).outer)

    @staticmethod
    def _of_known(of: Expression, x: Array, weight: Array, at: Environment) -> Array:
        outer = of.of_kind(Vectors, at).outer
        return jnp.sum(weight * ((outer @ x) @ x))


@record
class Sum(Expression):
    r"""The sum of two independent numbers or vectors, \(E[(a+b)^2] = E[a^2] + 2 E[a] E[b] + E[b^2]\).

    Attributes:
        left: a.
        right: b.

    Raises:
        ValueError: where both depend on one variable.

    Examples:
        >>> from lamu.graphs.expressions import Variable
        >>> (Variable("a", "Numbers", (3,)) + Variable("b", "Numbers", ())).shape
        (3,)
    """

    left: Any
    right: Any

    def __post_init__(self) -> None:
        both = self.left.names & self.right.names
        if both:
            raise ValueError(
                f"both sides of + depend on {', '.join(sorted(both))}, so that they are not independent; write the "
                "variable once, for instance in one product"
            )

    @property
    def names(self) -> frozenset[str]:
        """Those of both sides."""
        return self.left.names | self.right.names

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape that both are broadcast to."""
        if self.left.shape is None or self.right.shape is None:
            return None
        return np.broadcast_shapes(self.left.shape, self.right.shape)

    def kinds(self) -> tuple[type[Statistics], ...]:
        """Returns none: a sum is the mean of a Normal, and no argument of another kind."""
        return ()

    def of_kind(self, kind: type[S], at: Environment) -> S:
        """Raises a TypeError: the caller asks for `first` and `quadratic`."""
        raise TypeError(f"a sum has no {kind.words}")

    def first(self, at: Environment) -> Array:
        """Returns E a + E b."""
        return self.left.first(at) + self.right.first(at)

    def quadratic(self, weight: Array, at: Environment) -> Array:
        """Returns the weighted sum of the squares."""
        a, b = self.left.first(at), self.right.first(at)
        weight = jnp.broadcast_to(weight, jnp.broadcast_shapes(jnp.shape(weight), jnp.shape(a), jnp.shape(b)))
        both = jnp.sum(weight * 2.0 * a * b)
        return self.left.quadratic(weight, at) + self.right.quadratic(weight, at) + both


@record
class Scale(Expression):
    r"""A scale s, by its square, or a product of independent scales: \(E[s^{-2}]\) and \(E \log s^{-2}\).

    Attributes:
        squares: variables of variances.
        by: a known factor.

    Examples:
        >>> from lamu.graphs.expressions import Scale, Variable
        >>> whole, each = Variable("whole", "Reciprocal", ()), Variable("each", "Reciprocal", (4,))
        >>> (Scale((whole,)) * Scale((each,))).shape
        (4,)
    """

    squares: Any
    by: Any = 1.0

    @property
    def names(self) -> frozenset[str]:
        """Those of all factors."""
        return frozenset().union(*(square.names for square in self.squares))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that all factors are broadcast to."""
        return np.broadcast_shapes(jnp.shape(self.by), *(square.shape for square in self.squares))

    def kinds(self) -> tuple[type[Statistics], ...]:
        """Returns the precision's."""
        return (Positive,)

    def of_kind(self, kind: type[S], at: Environment) -> Any:
        """Returns the statistics of the precision."""
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

    def __getitem__(self, index: Any) -> Scale:
        return Scale(tuple(square[index] for square in self.squares), self.by)
