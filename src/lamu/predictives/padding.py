"""Predictions of padded rows, with few compiled programs for any number of rows."""

# A prediction is a program of the preparation and of padded rows (`lamu.base.compile_once`).

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_context

from lamu import memory, tree
from lamu.base.compile_once import block, filled, is_spread, is_traced, joined_blocks, ladder, padded_blocks
from lamu.data.arrays import array_of, readable
from lamu.predictives.interface import Predictive
from lamu.supports import Counts, Support, value_of
from lamu.typing import Array, Number, PyTree, RandomKey, Rows, Targets

__all__ = [
    "MOST",
    "Opened",
    "RowWise",
    "compiled_answers",
    "drawn",
    "padded",
    "preparation",
    "require_one_per_row",
    "with_padded_programs",
]

MOST = 4096  # rows at once: more are no faster
_KNOWN = 256  # number of cached sizes

_Class = TypeVar("_Class", bound=type[Predictive])


class RowWise:
    """Base class of preparations whose `at` can be traced by JAX, with independent rows."""

    def at(self, x: Rows, offset: Rows | None) -> Predictive:
        """Returns the predictive of these rows, in memory."""
        raise NotImplementedError

    def room(self, x: PyTree, offset: PyTree, rows: int) -> int:
        """Returns the number of rows at once that fit in memory, by shapes alone."""
        return rows


class _Layout:
    """The static structure of a preparation; preparations of equal structure share programs."""

    def __init__(self, structure: Any) -> None:
        self.structure, self._hash = structure, hash(structure)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Layout) and self.structure == other.structure)


class Opened(NamedTuple):
    """A preparation as its arrays and its structure, with cached sizes by shape of rows."""

    prepared: RowWise
    leaves: list[Array]
    form: _Layout
    sizes: dict[Hashable, _Size | None]


class _Size(NamedTuple):
    """Cached sizes for a number of rows: rows at once, bytes of a row, and rows in memory."""

    room: int
    bytes_of_a_row: int
    most: int


def preparation(prepared: object) -> Opened | None:
    """Returns a preparation for programs of padded rows; None where it does not support them."""
    if not isinstance(prepared, RowWise) or is_traced():
        return None
    leaves, structure = jax.tree.flatten(prepared)
    if not all(hasattr(leaf, "dtype") or isinstance(leaf, bool | int | float) for leaf in leaves):
        return None
    leaves = [jax.device_put(leaf) if isinstance(leaf, np.ndarray) else jnp.asarray(leaf) for leaf in leaves]
    try:
        form = _Layout(structure)
        return Opened(prepared, leaves, form, _sizes(form, tuple((leaf.shape, leaf.dtype) for leaf in leaves)))
    except TypeError:  # an unhashable object
        return None


@functools.lru_cache(maxsize=_KNOWN)
def _sizes(form: _Layout, kinds: tuple[Hashable, ...]) -> dict[Hashable, _Size | None]:
    """Returns the cached sizes shared by all preparations of a structure, such as those of different keys."""
    return {}


def padded(ready: Opened, x: Rows, offset: Rows | None) -> Predictive | int | None:
    """Returns the predictive of rows; the bytes of a row where all do not fit in memory; None without a program."""
    count, room = x.shape[0], _size(ready, x, offset)
    if room is None:
        return None
    if count > room.most:
        return room.bytes_of_a_row
    size = count if is_spread(x) else block(count, min(room.room, MOST))
    parts, means = [], []
    for rows in padded_blocks((x, offset), count, size):
        part, mean = _predicted(ready.leaves, *rows, ready.form)
        parts.append(part)
        means.append(mean)
    return _of_original_rows(_Padded(parts, count, size, {"mean": means}, {}))


# Compiled as usual: with fewer passes it takes .6 instead of some 2 s to compile, and then a twentieth (`laplace`) to a
# third (`ivon`) longer at every call.
@functools.partial(jax.jit, static_argnums=3)
def _predicted(leaves: list[Array], x: Array, offset: Array | None, form: _Layout) -> tuple[Predictive, Array]:
    """Returns the predictive and its mean, the most common member."""
    pred = form.structure.unflatten(leaves).at(x, offset)
    return pred, pred.mean


def _size(ready: Opened, x: Rows, offset: Rows | None) -> _Size | None:
    kind = lambda leaf: (leaf.shape[1:], leaf.dtype)
    rows = x.shape[0] if is_spread(x) else block(x.shape[0], MOST)
    kinds = map(kind, (x,) if offset is None else (x, offset))
    question = rows, *kinds, memory.budget(), jax.dtypes.canonicalize_dtype(float)
    if question not in ready.sizes:
        if len(ready.sizes) >= _KNOWN:
            ready.sizes.clear()
        ready.sizes[question] = _found_size(ready, x, offset, rows)
    return ready.sizes[question]


def _found_size(ready: Opened, x: Rows, offset: Rows | None, rows: int) -> _Size | None:
    room = ready.prepared.room(*_shapes((x, offset), rows), rows=rows)
    rows = rows if is_spread(x) else block(rows, min(room, rows))
    part, _ = _predicted.eval_shape(ready.leaves, *_shapes((x, offset), rows), ready.form)
    if type(part) not in _ROW_FIELDS:
        return None
    of_rows = [getattr(part, name) for name in _ROW_FIELDS[type(part)]]
    size = max(memory.bytes_of(of_rows) // rows, 1)
    return _Size(room, size, memory.budget() // size)


def _shapes(rows: PyTree, count: int) -> PyTree:
    kind = lambda leaf: jax.dtypes.canonicalize_dtype(leaf.dtype)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), kind(leaf)), rows)


class _Padded(NamedTuple):
    """The blocks of padded rows of a predictive, evaluated by programs with cached results."""

    parts: list[Predictive]
    total: int
    size: int
    found: dict[str, list[PyTree]]  # answers of blocks
    answers: dict[str, PyTree]  # put together

    def joined(self, blocks: list[PyTree], axis: int) -> PyTree:
        """Joins the results of the blocks, without padded rows."""
        if self.total == self.size:
            return blocks[0]
        return jax.tree.map(lambda *leaves: joined_blocks(leaves, self.total, axis), *blocks)

    def ask(self, question: str, arguments: tuple[object, ...], axis: int, columns: PyTree = None) -> PyTree:
        """Returns a member of the blocks by name; columns are split like the rows."""
        cut = [()] * len(self.parts) if columns is None else list(padded_blocks((columns,), self.total, self.size))
        blocks = [_answer(part, question, *rows, *arguments) for part, rows in zip(self.parts, cut, strict=True)]
        return self.joined(blocks, axis)


@functools.partial(jax.jit, static_argnums=1)
def _answer(part: Predictive, question: str, *arguments: object) -> PyTree:
    if question == "moments":
        return {name: getattr(part, name) for name in _MOMENTS}
    member = getattr(part, question)
    return member(*arguments) if callable(member) else member


def _of_original_rows(rows: _Padded) -> Predictive:
    """Returns the predictive of the original rows; its arrays are created when they are read."""
    first = rows.parts[0]
    pred = object.__new__(type(first))
    fields = _ROW_FIELDS[type(first)]
    vars(pred).update({name: value for name, value in vars(first).items() if name not in fields})
    vars(pred)["_padded"] = rows
    return pred


def with_padded_programs(pred: Any) -> Any:
    """Returns a predictive in memory as one evaluated by programs of padded rows."""
    fields = _ROW_FIELDS[type(pred)]
    arrays = {name: getattr(pred, name) for name in fields}
    leaves = jax.tree.leaves(arrays)
    if is_traced() or tree.has_tracers(leaves) or any(map(is_spread, leaves)):
        return pred
    axis, first = next((fields[name], leaf) for name in fields for leaf in jax.tree.leaves(arrays[name]))
    count = first.shape[axis]
    size = ladder(count)
    to_size = lambda axis: lambda leaf: filled(np.asarray(leaf), size - count, axis) if size > count else leaf
    part = replace(pred, **{name: jax.tree.map(to_size(axis), arrays[name]) for name, axis in fields.items()})
    return _of_original_rows(_Padded([part], count, size, {}, {}))


def drawn(pred: Predictive, key: RandomKey, n: int, first: Number) -> PyTree | None:
    """Returns draws by a program of padded rows, `[n, N, ...]`; None for a predictive without one."""
    rows = _rows_behind(pred)
    if rows is None or len(rows.parts) > 1:
        return None
    return rows.joined([_drawn(rows.parts[0], key, n, first)], 1)


@functools.partial(jax.jit, static_argnames="n")
def _drawn(part: Predictive, key: RandomKey, n: int, first: Number) -> PyTree:
    return part.sample(key, n, first)


_MOMENTS = ("variance", "std", "aleatoric", "epistemic", "total")  # of one program
_PROPERTIES = ("mean", "probabilities", *_MOMENTS)
_OF_TARGETS = {
    "log_prob": 0,
    "averaged": 0,
    "cdf": 0,
    "left_out": 1,
    "by_draw": 1,
}  # the axis of the rows in the result
_OF_NUMBERS = ("_quantile", "_central", "_set")


_ROW_FIELDS: dict[type, dict[str, int]] = {}  # the axis of the rows in each array that has one


def compiled_answers(**row_fields: int) -> Callable[[_Class], _Class]:
    """Decorates a predictive so that its methods run as programs of padded rows; given the row axis of its arrays."""

    def decorated(cls: _Class) -> _Class:
        _ROW_FIELDS[cls] = row_fields
        for name in _PROPERTIES:
            plain: Any = inspect.getattr_static(cls, name)
            setattr(cls, name, property(_answered(plain.fget, name)))
        for name, axis in _OF_TARGETS.items():
            if not hasattr(cls, name) or (name == "log_prob" and "averaged" in dir(cls)):
                continue  # `log_prob` checks the result of the program
            setattr(cls, name, _of_targets(getattr(cls, name), name, axis))
        for name in _OF_NUMBERS:
            setattr(cls, name, _of_numbers(getattr(cls, name), name))
        cls.__getattr__ = _row_field  # pyright: ignore[reportAttributeAccessIssue]
        return cls

    return decorated


def _rows_behind(pred: Predictive) -> _Padded | None:
    rows = vars(pred).get("_padded")
    return None if rows is None or is_traced() else rows


def _answered(plain: Callable[[Predictive], PyTree], name: str) -> Callable[[Predictive], PyTree]:
    @functools.wraps(plain)
    def answer(self: Predictive) -> PyTree:
        rows = _rows_behind(self)
        if rows is None:
            return plain(self)
        if name not in rows.answers:
            if name in rows.found:
                rows.answers[name] = rows.joined(rows.found[name], 0)
            elif name in _MOMENTS and not getattr(rows.parts[0], "averaged_over_draws", None):
                rows.answers.update(rows.ask("moments", (), 0))
            else:
                rows.answers[name] = rows.ask(name, (), 0)
        return rows.answers[name]

    return answer


def _of_targets(plain: Callable[..., PyTree], name: str, axis: int) -> Callable[..., PyTree]:
    @functools.wraps(plain)
    def answer(self: Predictive, y: PyTree) -> PyTree:
        rows = _rows_behind(self)
        if tree.has_tracers(y):
            return plain(self, y)
        has_gaps = "observed" in _ROW_FIELDS.get(type(self), {})  # rows of a graph may lack values
        if not (is_traced() or has_gaps):
            y = require_one_per_row(self.support, self.support.shape(jnp.shape(self.mean)), y, name)
        outside = np.zeros(1, bool)
        if name in _DENSITIES and not is_traced():
            y, outside = _inside(self.support, y, np.asarray(getattr(self, "observed", False)))
        targets = jax.tree.map(np.asarray, y)
        if rows is None or any(leaf.shape[:1] != (rows.total,) for leaf in jax.tree.leaves(targets)):
            result = plain(self, y)  # broadcast, or refused
        else:
            result = rows.ask(name, (), axis, targets)
        return jnp.where(outside[None] if axis else outside, -jnp.inf, result) if outside.any() else result

    return answer


_DENSITIES = ("log_prob", "averaged", "by_draw")


def _inside(support: Support, y: Targets, observed: np.ndarray) -> tuple[PyTree, np.ndarray]:
    """Returns targets with a value of the support in the place of each outside, and the rows of these."""
    # Outside the density is zero, where its formula may give NaN, or a number for half a count.
    value, trials = np.asarray(value_of(y)), y.get("trials") if isinstance(y, Mapping) else None
    if (isinstance(y, Mapping) and (trials is None or len(y) > 2)) or value.dtype.kind not in "iuf":
        return y, np.zeros(1, bool)  # censored values need not be inside
    if observed.size > 1 and observed.size == value.size:
        value = value.reshape(observed.shape)
    support = support if trials is None else Counts()
    within = np.asarray(support.contains(value)) & (trials is None or value <= np.asarray(trials))
    outside = ~(within | np.isnan(value) | observed)
    if not outside.any():
        return y, np.zeros(1, bool)
    if support.has_classes:
        support.check(value[outside], "log_prob")
    value = np.where(outside, support.some(value) if trials is None else 0, value).astype(value.dtype)
    rows = np.asarray(outside.reshape(len(value), -1).any(axis=1))
    return {**y, "value": value} if isinstance(y, Mapping) else value, rows


def require_one_per_row(support: Support, shape: tuple[int, ...], y: Targets, question: str) -> PyTree:
    """Returns targets in the shape of a prediction; raises a ValueError for others, and for what is no class."""
    # A target `[N, 1]` of a mean `[N]` would broadcast to `[N, N]`, and a label that is no class picks another one.
    if isinstance(y, Mapping):
        return y
    y = np.asarray(readable(y))
    y = array_of("y", y) if y.dtype == object else y
    if y.shape == (*shape, 1):
        y = y[..., 0]
    if question == "cdf" and y.ndim > len(shape):  # many numbers for each prediction
        return y
    if y.shape != shape and y.size != 1:
        raise ValueError(f"the targets have the shape {y.shape}; give one for each prediction, the shape {shape}")
    if support.has_classes:
        support.check(y, "log_prob")
    return np.broadcast_to(y.reshape(y.shape if y.shape == shape else ()), shape)


def _of_numbers(plain: Callable[..., PyTree], name: str) -> Callable[..., PyTree]:
    @functools.wraps(plain)
    def answer(self: Predictive, *numbers: object) -> PyTree:
        rows = _rows_behind(self)
        if rows is None or tree.has_tracers(numbers):
            return plain(self, *numbers)
        return rows.ask(name, numbers, 0)

    return answer


def _row_field(self: Predictive, name: str) -> PyTree:
    """Returns an array of rows at its first access."""
    rows, fields = vars(self).get("_padded"), _ROW_FIELDS.get(type(self), {})
    if rows is None or name not in fields:
        return object.__getattribute__(self, name)  # raises the original error
    with eval_context():
        value = rows.joined([getattr(part, name) for part in rows.parts], fields[name])
    vars(self)[name] = value
    return value
