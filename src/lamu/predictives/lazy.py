"""Predictive rules, and lazy predictives whose chunks of rows are computed on demand."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import memory, tree
from lamu.base.compile_once import once_a_shape
from lamu.convergence import is_sound
from lamu.predictives import padding
from lamu.predictives.interface import Predictive, Prepared, jackknife, mean_deviations, mean_over_draws
from lamu.record import record, static
from lamu.supports import Support
from lamu.target import Target
from lamu.typing import Array, Belief, Inputs, Number, PyTree, RandomKey, Rows, State, Targets

__all__ = [
    "ByChunks",
    "Deferred",
    "PredictiveRule",
    "answer",
    "draw_in_chunks",
    "equal_chunks",
    "in_chunks",
    "in_memory_chunks",
    "predictive",
    "require_room",
    "room_for",
]

_AT_ONCE = 2  # arrays of the largest size: the input and the result of an operation


def equal_chunks(x: Inputs, rows: int) -> Iterator[tuple[Inputs, int]]:
    """Yields chunks of rows of one size; the last one is padded by repeating its last row."""
    total = _count(x)
    for start in range(0, total, rows):
        kept = min(rows, total - start)
        part = jax.tree.map(lambda leaf: jnp.asarray(leaf[start : start + rows]), x)  # noqa: B023  (at once)
        if kept < min(rows, total):
            part = jax.tree.map(lambda leaf: _padded(leaf, rows), part)
        yield part, kept


def in_chunks(function: Callable[[Inputs], object], x: Inputs, rows: int, axis: int = 0) -> Any:
    """Returns `function(x)`, computed in chunks of rows."""
    if _count(x) <= rows:
        return function(jax.tree.map(jnp.asarray, x))
    parts = []
    for chunk, kept in equal_chunks(x, rows):
        result = function(chunk)
        parts.append(jax.tree.map(lambda leaf: jax.lax.slice_in_dim(leaf, 0, kept, axis=axis), result))  # noqa: B023  (at once)
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=axis), *parts)


def in_memory_chunks(
    function: Callable[..., object], parts: tuple[object, ...], x: tuple[object, ...], axis: int = 0
) -> Any:
    """Returns `function(*parts, *x)`, computed in chunks of rows that fit into `lamu.memory.budget()`."""
    # `function`: a compiled function of parts and rows, as for `in_chunks`; one object, so that its size is cached.
    return in_chunks(lambda rows: function(*parts, *rows), x, rows=room_for(function, parts, x), axis=axis)


def room_for(function: Callable[..., object], parts: tuple[object, ...], x: tuple[object, ...]) -> int:
    """Returns the number of rows at once that fit in memory for `function(*parts, *x)`, at least one."""
    count = _count(x)
    if tree.has_tracers((parts, x)):
        return count
    most = min(count, padding.MOST)
    taken = _taken(function, parts, _row_shapes(x, most))
    return most if taken <= memory.budget() else max(1, most * memory.budget() // taken)


def draw_in_chunks(draw: Callable[..., Array], *each: object) -> Array:
    """Maps `draw` over the leading axis of the arguments, as many at once as fit in memory."""
    count = jax.tree.leaves(each)[0].shape[0]
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), each)
    require_room(count, memory.bytes_of(jax.eval_shape(draw, *shapes)))
    at_once = max(1, memory.budget() // max(_AT_ONCE * memory.largest_array(draw, *shapes), 1))
    if at_once >= count:
        return jax.vmap(draw)(*each)
    return jnp.asarray(jax.lax.map(lambda entry: draw(*entry), each, batch_size=at_once))


def require_room(draws: int, size: int) -> None:
    """Raises a ValueError where draws of all targets do not fit in memory."""
    fewer = memory.limit() // max(size, 1)
    instead = f"ask for {fewer:,} at a time, or for fewer rows" if fewer else "ask for fewer rows at a time"
    memory.demand(draws * size, f"a sample of {draws:,} draws", instead)


@once_a_shape
def _taken(function: Callable[..., object], parts: tuple[object, ...], x: tuple[object, ...]) -> int:
    """Returns the bytes that rows take, beyond the parts."""
    return _AT_ONCE * memory.largest_array(function, *parts, *x)


def _row_shapes(x: Inputs, rows: int) -> Inputs:
    """Returns the shapes of a number of rows."""
    kind = lambda leaf: jax.dtypes.canonicalize_dtype(leaf.dtype)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), kind(leaf)), x)


def _count(x: Inputs) -> int:
    return jax.tree.leaves(x)[0].shape[0]


def _padded(leaf: Array, rows: int) -> Array:
    return jnp.concatenate([leaf, jnp.broadcast_to(leaf[-1:], (rows - leaf.shape[0], *leaf.shape[1:]))])


def predictive(prepared: Prepared | padding.Opened, x: Rows, offset: Rows | None) -> Predictive:
    """Returns the predictive of all rows: in memory where it fits into `lamu.memory.budget()`, else deferred."""
    ready = prepared if isinstance(prepared, padding.Opened) else None
    deferrable: Any = prepared if ready is None else ready.prepared
    if isinstance(x, Tracer):  # inside of a compiled function, whose caller chose the number of rows
        return deferrable.at(x, offset)
    ready = padding.preparation(deferrable) if ready is None else ready
    answer = None if ready is None else padding.padded(ready, x, offset)
    if isinstance(answer, Predictive):
        answer.warn()
        return answer
    row = answer or max(_bytes(deferrable, x, offset, 2) - _bytes(deferrable, x, offset, 1), 1)
    if row * x.shape[0] <= memory.budget():
        answer = deferrable.at(x, offset)
        answer.warn()
        return answer
    return Deferred(deferrable, x, offset, rows=max(1, min(memory.budget() // row, padding.MOST)))


class ByChunks(Predictive):
    """Base class of predictives computed in chunks of rows: every method is one pass over the rows."""

    deferred = True

    def ask(self, question: str, y: Targets = None, axis: int = 0, **options: Number) -> PyTree:
        """Returns the concatenated results of `answer` for every chunk; targets are split like the rows."""
        raise NotImplementedError

    @property
    def mean(self) -> Array:
        return self._moments["mean"]

    @property
    def variance(self) -> Array:
        return self._moments["variance"]

    @property
    def aleatoric(self) -> Array:
        return self._moments["aleatoric"]

    @property
    def epistemic(self) -> Array:
        return self._moments["epistemic"]

    def log_prob(self, y: Targets) -> Array:
        density = self.ask("log_prob", y)
        if is_sound(density):
            return density
        # Outside of a program each part warns of draws without a density.
        cut = lambda rows: jax.tree.map(lambda leaf: np.asarray(leaf)[rows], y)
        return jnp.concatenate([part.log_prob(cut(rows)) for rows, part in self.chunks()])

    def left_out(self, y: Targets) -> tuple[Array, ...]:
        """Returns `log_prob(y)` without each of the draws, for all rows at once."""
        return self.ask("left_out", y, axis=1)

    def cdf(self, y: Targets) -> Array:
        return self.ask("cdf", y)

    def quantile(self, probability: Number) -> Array:
        return self.ask("quantile", probability=probability)

    def interval(self, level: Number = 0.9) -> tuple[Array, Array]:
        """Returns the central predictive interval of a given probability, for regression."""
        return super().interval(level) if self.support.has_classes else self.ask("interval", level=level)

    @cached_property
    def _moments(self) -> dict[str, Array]:
        return self.ask("moments")


def answer(part: Predictive, question: str, *targets: Targets, **options: Number) -> PyTree:
    """Returns a member of a predictive by name; for "moments" mean, variance and both uncertainties."""
    if question == "moments":
        return {name: getattr(part, name) for name in ("mean", "variance", "aleatoric", "epistemic")}
    return getattr(part, question)(*targets, **options)


# Compiled once for each kind and shape of chunk, as many separate small operations would cost more than a pass.
_answer = partial(jax.jit, static_argnames=("question", "probability", "level"))(answer)


@record
class Deferred(ByChunks):
    """A predictive computed in chunks of rows.

    Every method is one pass over the rows; mean, variance and both kinds of uncertainty share one, and are cached. All
    results equal those of the predictive in memory: the draws of the parameters are the same for every chunk, and
    random numbers of a row depend on the row's number.

    Attributes:
        prepared: the prepared belief, for any number of rows.
        x: inputs `[N, ...]`, in the host's memory or on the device.
        offset: the offset added to f, or None.
        rows: the number of rows in memory at once.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> from lamu.families import Point
        >>> from lamu.predictives import Deferred, Sampled
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=1.0))
        >>> params, state = model.init(jax.random.key(0), lamu.data.Batch.of(jnp.ones((3, 1)), jnp.zeros(3)))
        >>> prepared = Sampled().prepare(model, Point(params), state, samples=1, key=jax.random.key(1))
        >>> pred = Deferred(prepared, jnp.ones((5, 1)), None, rows=2)
        >>> pred.mean.shape, [part.mean.shape[0] for _, part in pred.chunks()]
        ((5,), [2, 2, 1])
    """

    prepared: Prepared
    x: Inputs
    offset: Any
    rows: int = static()

    @property
    def chunk_size(self) -> int:
        return self.rows

    def chunks(self) -> Iterator[tuple[slice, Predictive]]:
        """Yields the predictive of some rows after the other, in memory, each with the slice of rows that it is of."""
        count = self.x.shape[0]
        for start in range(0, count, self.rows):
            here = slice(start, min(start + self.rows, count))
            yield here, self.prepared.at(self.x[here], None if self.offset is None else self.offset[here])

    @property
    def support(self) -> Support:
        return self.prepared.support

    def monte_carlo_error(self, y: Targets) -> float:
        """Returns the standard error of the mean log predictive density, from sums over the chunks."""
        sums: Any = None
        for (x, offset, targets), kept in equal_chunks((self.x, self.offset, self._column(y)), self.rows):
            part = _deviation_sums(self.prepared.at(x, offset), targets, jnp.arange(x.shape[0]) < kept)
            part = jax.tree.map(lambda leaf: np.asarray(leaf, float), part)
            sums = part if sums is None else jax.tree.map(np.add, sums, part)
        return jackknife([group / self.x.shape[0] for group in sums])

    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Array:
        """Returns n draws of all targets.

        Raises:
            ValueError: where they take more than `lamu.memory.limit()` together.
        """
        require_room(n, _bytes_of_targets(self.prepared, self.x, self.offset) * self.x.shape[0])
        draw = lambda part, numbers: _sample(part, jax.random.clone(key), n, numbers[0])
        return self._each(draw, self._numbers(first), axis=1)

    def decide(self, utility: object, key: RandomKey | None = None, samples: int = 256) -> Array:
        """Returns the action of greatest expected utility for each row.

        Args:
            utility: as for any predictive; for regression it gets chunks of rows and must treat all rows alike.
            key: for the draws (regression).
            samples: the number of draws.
        """
        if self.support.has_classes or not callable(utility):
            return super().decide(utility, key, samples)
        key = jax.random.key(0) if key is None else key

        def best(part: Predictive, numbers: Array) -> Array:
            targets = _sample(part, jax.random.clone(key), samples, numbers[0])
            return jnp.argmax(mean_over_draws(utility, targets), axis=0)

        return self._each(best, self._numbers(0))

    def ask(self, question: str, y: Targets = None, axis: int = 0, **options: Number) -> PyTree:
        targets = () if y is None else (self._column(y, question),)
        return self._each(lambda part, *y: _answer(part, question, *y, **options), *targets, axis=axis)

    def _each(self, question: Callable[..., Any], *columns: PyTree, axis: int = 0) -> Any:
        """Returns the concatenated results of every chunk's predictive; columns are split like the rows."""

        def answer(rows: tuple[PyTree, ...]) -> PyTree:
            x, offset, *others = rows
            return question(self.prepared.at(x, offset), *others)

        return in_chunks(answer, (self.x, self.offset, *columns), rows=self.rows, axis=axis)

    def _numbers(self, first: Number) -> Array:
        return first + jnp.arange(self.x.shape[0])

    def _column(self, y: Targets, question: str = "log_prob") -> Targets:
        if isinstance(y, Tracer):
            raise TypeError(
                "a deferred prediction cannot be asked inside a compiled function; ask its chunks(), one by one"
            )
        if not isinstance(y, Mapping):
            row = self.support.shape(_mean_shape(self.prepared, self.x, self.offset).shape)
            y = padding.require_one_per_row(self.support, (self.x.shape[0], *row[1:]), y, question)
        y = jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else np.asarray(leaf), y)
        for shape in map(jnp.shape, jax.tree.leaves(y)):
            if not shape or shape[0] != self.x.shape[0]:
                raise ValueError(
                    f"the targets have the shape {shape} and the prediction {self.x.shape[0]} rows; give one target a "
                    "row"
                )
        return y


@jax.jit
def _deviation_sums(part: Predictive, y: Targets, real: Array) -> tuple[Array, ...]:
    return tuple(mean_deviations(group, real) for group in part.left_out(y))


@partial(jax.jit, static_argnums=2)
def _sample(part: Predictive, key: RandomKey, n: int, first: Array) -> Array:
    return part.sample(key, n, first)


@once_a_shape
def _bytes(prepared: Prepared, x: Rows, offset: Rows | None, rows: int) -> int:
    """Returns the bytes of the predictive of a number of rows."""

    def arrays(x: Array, offset: Array | None) -> list[Array]:
        return [leaf for leaf in jax.tree.leaves(prepared.at(x, offset)) if isinstance(leaf, jax.Array)]

    return memory.bytes_of(jax.eval_shape(arrays, *_row_shapes((x, offset), rows)))


@once_a_shape
def _mean_shape(prepared: Prepared, x: Rows, offset: Rows | None) -> Any:
    """Returns the shape and dtype of one row's mean."""
    return jax.eval_shape(lambda x, offset: prepared.at(x, offset).mean, *_row_shapes((x, offset), 1))


def _bytes_of_targets(prepared: Prepared, x: Rows, offset: Rows | None) -> int:
    """Returns the bytes of one draw of one row's targets."""
    mean = _mean_shape(prepared, x, offset)
    return mean.dtype.itemsize * (math.prod(mean.shape) if not prepared.support.has_classes else 1)


class PredictiveRule(ABC):
    """Base class of predictive rules, which compute a predictive from a belief; a rule defines `prepare` alone."""

    @abstractmethod
    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        """Returns the preparation that does not depend on inputs (draws of the parameters, a factored precision).

        Args:
            model: network, likelihood and prior.
            belief: q on all parameters.
            network_state: the network's state.
            samples: the number of draws, where the rule needs draws.
            key: for the draws; draw i depends on the key and i alone, not on rows or chunks.
        """

    def joint(self) -> PredictiveRule:
        """Returns the rule of the same predictions by draws that all rows share; by default the rule itself."""
        return self

    def predict(
        self,
        model: Any,
        belief: Belief,
        network_state: State,
        x: Rows,
        samples: int,
        key: RandomKey,
        offset: Rows | None = None,
    ) -> Predictive:
        """Returns the predictive at the inputs, in memory or in chunks of rows.

        Args:
            model: network, likelihood and prior.
            belief: q on all parameters.
            network_state: the network's state.
            x: new inputs `[N, ...]`.
            samples: the number of draws, where the rule needs draws.
            key: for the draws.
            offset: the offset added to f, `[N]` or `[N, outputs]`.
        """
        return predictive(self.prepare(model, belief, network_state, samples, key), x, offset)
