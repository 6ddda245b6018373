"""Members of a plate: one that a category picks, or some by their numbers."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from lamu.graphs.expressions.interface import Environment, Expression
from lamu.graphs.expressions.leaves import Variable
from lamu.graphs.statistics import Categories, Numbers, States, Statistics
from lamu.record import record, static
from lamu.typing import Array

__all__ = ["Indexed", "Sliced", "member"]

S = TypeVar("S", bound=Statistics)


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


def member(of: Expression, index: Any) -> Expression:
    """Returns the member of a plate that an expression picks, or those that numbers and slices name.

    Args:
        of: the plate.
        index: an expression, a whole number, a slice, or several.

    Examples:
        >>> from lamu.graphs.expressions.leaves import Variable
        >>> from lamu.graphs.expressions.members import member
        >>> member(Variable("level", "Numbers", (5,)), slice(1, 3)).shape
        (2,)
    """
    return Indexed(of, index) if isinstance(index, Expression) else Sliced(of, index)
