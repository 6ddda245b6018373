"""Members of a plate, selected by a category or by integers."""

from __future__ import annotations

import operator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from lamu.graphs.expressions.interface import Environment, Expression, Variable
from lamu.graphs.statistics import Categories, Numbers, Series, States, Statistics, Vectors
from lamu.record import record, static

__all__ = ["Indexed", "Sliced", "member"]

S = TypeVar("S", bound=Statistics)


@record
class Indexed(Expression):
    r"""The member of a plate selected by a category, \(x_z\)."""

    of: Expression  # the plate, a variable (or a member of one)
    by: Expression  # the category: a variable, or an input of integers
    alone: bool = static(default=False)  # whether one member of a row is required, as by `table[a, b]` after a

    def __post_init__(self) -> None:
        if self.alone and isinstance(self.by, Variable) and issubclass(self.by.kind, States):
            raise TypeError(_one_series_only(self.by.name))
        if isinstance(self.of, Indexed) and isinstance(self.of.by, Variable) and issubclass(self.of.by.kind, States):
            raise TypeError(_one_series_only(self.of.by.name))
        if not isinstance(self.by, Variable) and self.by.names:
            raise TypeError(
                f"the index depends on {', '.join(sorted(self.by.names))} by an expression; index by a Categorical "
                "variable itself, or by an input of whole numbers; a category that several rows share, as that of a "
                "node of a network, is not summed out"
            )
        if isinstance(self.by, Variable) and not issubclass(self.by.kind, Categories | States):
            raise TypeError(f"{self.by.name!r} is {self.by.kind.words} and picks no member; index by a Categorical")
        if _reaches_events(self.of, 1):
            raise TypeError(
                f"{', '.join(sorted(self.of.names))} is {self.of.kinds()[0].words} without a plate and has no members "
                "to pick; give it plate="
            )
        if isinstance(self.by, Variable) and self.of.shape and self.by.size and self.of.shape[0] != self.by.size[-1]:
            raise ValueError(
                f"{self.by.name!r} has {self.by.size[-1]} categories and the plate {sorted(self.of.names)} has "
                f"{self.of.shape[0]} members; give plate={self.by.size[-1]}"
            )

    @property
    def shape(self) -> tuple[int, ...] | None:
        # The shape of a member; for a series of categories that of one at every time.
        if self.of.shape is None or self.by.shape is None:
            return None if self.of.shape is None or isinstance(self.by, Variable) else self.of.shape[1:]
        return (*self.by.shape[:-1], *self.of.shape[1:])

    @property
    def picks(self) -> dict[str, tuple[int, ...]]:
        by = {self.by.name: (self.by.size or ())[:-1]} if isinstance(self.by, Variable) else {}
        return {**self.of.picks, **by}

    @property
    def repeated(self) -> frozenset[str]:
        repeated_index = {self.by.name} & set(self.of.picks) if isinstance(self.by, Variable) else set()
        return self.of.repeated | repeated_index

    def kinds(self) -> tuple[type[Statistics], ...]:
        # Returns those of the plate; a member of one vector is a number.
        return _without_vectors(self.of.kinds()) if self.of.shape and len(self.of.shape) == 1 else self.of.kinds()

    def of_kind(self, kind: type[S], environment: Environment) -> Any:
        # Returns the average of the members' statistics, or the member's own.
        plate: Any = self.of.of_kind(kind, environment)
        if isinstance(plate, Numbers | Vectors | Series):
            plate = _entries(plate) if kind is Numbers or jnp.ndim(plate.first) == 1 else _vectors(plate)
        if isinstance(self.by, Variable):
            weights = environment.statistics[self.by.name].probabilities
            return jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, 1), plate)
        index = jnp.asarray(self.by.first(environment)).astype(jnp.int32)
        if self.alone and index.ndim:
            raise TypeError(self._several())
        return jax.tree.map(lambda leaf: leaf[index], plate)

    def _several(self) -> str:
        # The axes would be crossed, and not paired as in NumPy.
        name = getattr(self.by, "name", "an index")
        return (
            f"{name!r} picks several members of a row, and of several indices only the last may; give {name!r} and "
            "those after it as one index, of a table with a member for each of their combinations"
        )


@record
class Sliced(Expression):
    """Members of a plate, or entries of vectors, selected by integers, slices or one known array of integers."""

    # Entries of vectors and series may be selected too, `w[0]`, `w[1:3]`, `x[:, 0]`, with the vector's moments.
    # All other values cannot be split: a part of probabilities does not sum to one.

    of: Expression  # the plate
    index: Any = static()  # an integer, a slice, or several

    def __post_init__(self) -> None:
        parts = self.index if isinstance(self.index, tuple) else (self.index,)
        if any(part is Ellipsis for part in parts):
            if self.of.shape is None:
                raise TypeError(
                    "the index has ... for axes that only the data would tell; give whole numbers or slices"
                )
            parts = _expanded(parts, len(self.of.shape))
        object.__setattr__(self, "index", tuple(_stored(part) for part in parts))
        if any(isinstance(part, np.ndarray) for part in self._at) and any(isinstance(part, int) for part in self._at):
            raise TypeError("the index has an array and a whole number; index by one after the other")
        self._require_members()

    def _require_members(self) -> None:
        shape, name = self.of.shape, ", ".join(sorted(self.of.names))
        if shape is None:
            return
        index = _expanded(self._at, len(shape))
        if len(index) > len(shape):
            raise ValueError(f"{name} has the shape {shape}, and {len(index)} axes are indexed; index {len(shape)}")
        for axis, (part, size) in enumerate(zip(index, shape, strict=True)):
            beyond = [] if isinstance(part, slice) else [n for n in np.atleast_1d(part) if not -size <= n < size]
            if beyond:
                raise ValueError(
                    f"index {beyond[0]} is beyond the {size} members of axis {axis} of {name}; give 0 to {size - 1}"
                )
        every = [isinstance(part, slice) and part == slice(None) for part in index]
        used = max((axis + 1 for axis, whole in enumerate(every) if not whole), default=0)
        if _reaches_events(self.of, used):
            raise TypeError(
                f"{name} is {self.of.kinds()[0].words} of shape {shape}, and the index cuts into one of them, which "
                f"has no closed form; index the {len(shape) - self.of.kinds()[0].events} axes of its plate only"
            )

    @property
    def _at(self) -> tuple[Any, ...]:
        at = {1: np.asarray, 3: slice}
        return tuple(at[len(part)](*part) if isinstance(part, tuple) else part for part in self.index)

    @property
    def shape(self) -> tuple[int, ...] | None:
        if self.of.shape is None:
            return None
        return jax.eval_shape(lambda x: x[self._at], jax.ShapeDtypeStruct(self.of.shape, jnp.float32)).shape

    def kinds(self) -> tuple[type[Statistics], ...]:
        # Returns those of the plate; single entries are numbers.
        if not self.of.shape or not isinstance(_expanded(self._at, len(self.of.shape))[-1], int):
            return self.of.kinds()
        return _without_vectors(self.of.kinds())

    def of_kind(self, kind: type[S], environment: Environment) -> Any:
        # Returns the statistics of the selected members.
        if self.of.kinds() == (Statistics,):  # known: T of the selection
            return kind.of(self.of.first(environment)[self._at])
        plate: Any = self.of.of_kind(kind, environment)
        if isinstance(plate, Numbers | Vectors | Series):
            index = _expanded(self._at, jnp.ndim(plate.first))
            if kind is Numbers or isinstance(plate, Numbers):
                return jax.tree.map(lambda leaf: leaf[index], _entries(plate))
            *members, entries = index
            outer = plate.outer[(*members, slice(None), slice(None))][..., entries, :][..., :, entries]
            return Vectors(plate.first[index], outer)
        axes = len(self.of.shape or ())
        members = _expanded(self._at, axes)[: axes - type(plate).events]
        return jax.tree.map(lambda leaf: leaf[members], plate)


def _one_series_only(name: str) -> str:
    return (
        f"{name!r} is a series and picks a member at every time, so that no index may follow it; put the other indices "
        f"first, as in table[k, {name}], and give the categories of a mixture in each state to the series, "
        f"Markov(..., weights=w), with a member for each pair of state and component, mean[{name}]"
    )


def member(of: Expression, index: Any) -> Expression:
    """Returns the member of a plate selected by an expression, or those selected by integers and slices."""
    several = isinstance(index, tuple) and any(isinstance(part, Expression) for part in index)
    if several and all(isinstance(part, Expression | int) for part in index):
        *first, last = index
        for part in first:
            of = Indexed(of, part, alone=True) if isinstance(part, Expression) else Sliced(of, part)
        return member(of, last)
    if several:
        name = ", ".join(sorted(of.names))
        raise TypeError(
            f"the index of {name!r} mixes a slice with a variable or an input of the rows; put the axes that are kept "
            f"last, {name}[a] with plate=(3, 2) for {name}[:, a] with plate=(2, 3), or index every axis, {name}[z, a]"
        )
    return Indexed(of, index) if isinstance(index, Expression) else Sliced(of, index)


def _stored(part: Any) -> Any:
    """Returns a part of an index in a form that can be compared and hashed: three numbers of a slice, one array."""
    if isinstance(part, slice):
        return part.start, part.stop, part.step
    if isinstance(part, tuple):
        return part
    try:
        return operator.index(part)
    except TypeError:
        if np.ndim(part) == 1 and np.asarray(part).dtype.kind in "iu":
            return (tuple(np.asarray(part).tolist()),)
        raise TypeError(
            f"the index {part!r} is a {type(part).__name__}; give whole numbers or slices, a Categorical variable, or "
            "m.data(name) with whole numbers"
        ) from None


def _expanded(index: tuple[Any, ...], axes: int) -> tuple[Any, ...]:
    """Returns an index with one part for every axis of a value."""
    full_slices = lambda parts: (slice(None),) * (axes - parts)
    place = next((place for place, part in enumerate(index) if part is Ellipsis), None)
    if place is not None:
        return (*index[:place], *full_slices(len(index) - 1), *index[place + 1 :])
    return (*index, *full_slices(len(index)))


def _reaches_events(of: Expression, axes: int) -> bool:
    """Returns whether this many leading axes reach into a variable that is not a vector and cannot be split."""
    kinds, shape = of.kinds(), of.shape
    if shape is None or not kinds or {Numbers, Statistics} & set(kinds):
        return False
    return axes > len(shape) - kinds[0].events


def _without_vectors(kinds: tuple[type[Statistics], ...]) -> tuple[type[Statistics], ...]:
    return tuple(kind for kind in kinds if kind is not Vectors)


def _entries(of: Numbers | Vectors | Series) -> Numbers:
    """Returns the statistics of the entries, each separately."""
    return Numbers(of.first, of.second)


def _vectors(of: Numbers | Vectors | Series) -> Numbers | Vectors:
    """Returns the statistics of the vectors of a series, each separately."""
    return Vectors(of.first, of.outer) if isinstance(of, Series) else of
