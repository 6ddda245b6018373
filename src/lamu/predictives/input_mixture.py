"""Predictives for partly missing inputs: mixtures over draws of the missing ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory
from lamu.base.bisection import Ends
from lamu.data.imputation import Completions
from lamu.predictives.interface import Predictive
from lamu.predictives.lazy import ByChunks, answer
from lamu.predictives.mixture import AveragedPredictive, Question
from lamu.predictives.wrapper import Moved
from lamu.record import record, static
from lamu.supports import PositiveReal, Support
from lamu.typing import Array, Number, PyTree, RandomKey, Targets

__all__ = ["CompletedRows", "InputMixture"]

_AT_ONCE = 16_384  # completions at once, which take a fraction of a second


@record
class InputMixture(AveragedPredictive):
    r"""\(p(y^* \mid x_{\text{obs}}) = \sum_m w_m\, p(y^* \mid x_{\text{obs}}, x_m)\), over draws of missing inputs.

    Attributes:
        base: the predictions of all completions of all rows.
        row: the row of each completion, in ascending order, `[completions]`.
        weights: w, which sum to one over the completions of a row.
        count: the number of rows.

    Examples:
        >>> import jax.numpy as jnp, numpy as np
        >>> from lamu.data.imputation import Completions
        >>> from lamu.predictives import GaussianPredictive, InputMixture
        >>> ones = lambda *shape: jnp.ones(shape)
        >>> predict = lambda x, row: GaussianPredictive(jnp.asarray(x[:, 0]), ones(len(x), 1, 1), ones(len(x)))
        >>> rows = Completions(np.array([[0.0], [1.0], [3.0]]), np.array([0, 1, 1]), np.zeros(3))
        >>> pred = InputMixture.of(predict, rows)
        >>> pred.mean.tolist(), pred.epistemic.tolist()
        ([0.0, 2.0], [0.0, 1.0])
    """

    base: Any
    row: Array
    weights: Array
    count: int = static()

    @classmethod
    def of(cls, predict: Callable[[Any, Any], Predictive], completions: Completions) -> Predictive:
        """Returns the prediction of rows; where all are complete, that of the model itself.

        A completion with a nonzero `spread` is shifted by that many standard deviations of the means of its row's
        completions: additively for real targets, in the logarithm for positive ones, and not for whole numbers and
        classes.

        Args:
            predict: returns the prediction of inputs, given these and the numbers of their rows.
            completions: the inputs.
        """
        if completions.complete:
            return predict(completions.x, completions.row)
        first = next(CompletedRows(predict, completions, _AT_ONCE).chunks())[1]
        if first.count == completions.rows and not first.deferred:
            return first
        at_once = first.base.chunk_size or _AT_ONCE if first.deferred else _AT_ONCE
        return CompletedRows(predict, completions, at_once, first.support)

    @classmethod
    def in_memory(cls, predict: Callable[[Any, Any], Predictive], completions: Completions) -> InputMixture:
        """Returns the prediction of rows, all at once.

        Args:
            predict: as for `of`.
            completions: likewise.
        """
        # Few lengths, so that blocks of a table share compiled programs.
        more = _rounded(len(completions.row)) - len(completions.row)
        padded = lambda values: np.concatenate([values, np.repeat(values[-1:], more, axis=0)])
        row = padded(completions.row)
        base = predict(padded(completions.x), row)
        counts = np.bincount(completions.row, minlength=completions.rows)
        weights = np.where(np.arange(len(row)) < len(completions.row), 1 / counts[row], 0.0)
        mixture = cls(base, jnp.asarray(row), jnp.asarray(weights, base.mean.dtype), count=completions.rows)
        spread = padded(completions.spread)
        return mixture._moved(spread) if spread.any() else mixture

    def _moved(self, spread: np.ndarray) -> InputMixture:
        """Returns the mixture with completions shifted by multiples of the standard deviation within their row."""
        support, positive = self.support, isinstance(self.support, PositiveReal)
        if not (support.affine or positive):
            return self
        means = self.base.mean
        level = jnp.log(jnp.maximum(means, jnp.finfo(means.dtype).tiny)) if positive else means
        between = self.repeated(self.average((level - self.repeated(self.average(level))) ** 2))
        step = jnp.asarray(spread, means.dtype).reshape(-1, *[1] * (means.ndim - 1)) * jnp.sqrt(between)
        zero, ones = jnp.zeros_like(step), jnp.ones_like(step)
        moved = Moved(self.base, zero, jnp.exp(step)) if positive else Moved(self.base, step, ones)
        return replace(self, base=moved)

    @property
    def support(self) -> Support:
        return self.base.support

    @property
    def deferred(self) -> bool:
        """Whether the base is computed in chunks of rows."""
        return bool(self.base.deferred)

    def each(self, question: Question, y: Targets = None) -> Array:
        """Returns the base's result for all completions."""
        return question(self.base, jax.tree.map(lambda leaf: jnp.asarray(leaf)[self.row], y))

    def average(self, values: Array) -> Array:
        """Returns the average over the completions of each row."""
        weights = self.weights.astype(values.dtype).reshape(-1, *[1] * (values.ndim - 1))
        return jax.ops.segment_sum(weights * values, self.row, self.count, indices_are_sorted=True)

    def log_average(self, values: Array) -> Array:
        largest = jax.ops.segment_max(values, self.row, self.count, indices_are_sorted=True)
        largest = jnp.where(jnp.isfinite(largest), largest, jnp.zeros_like(largest))
        return largest + jnp.log(self.average(jnp.exp(values - self.repeated(largest))))

    def repeated(self, averages: Array) -> Array:
        """Returns the average of its row for every completion."""
        return averages[self.row]

    def outermost(self, values: Array) -> Ends:
        return (
            jax.ops.segment_min(values, self.row, self.count),
            jax.ops.segment_max(values, self.row, self.count),
        )

    def left_out(self, y: Targets) -> tuple[Array, ...]:
        """Returns the log of the averaged density without each of the draws of the parameters."""
        targets = jax.tree.map(lambda leaf: jnp.asarray(leaf)[self.row], y)
        return tuple(jax.vmap(self.log_average)(group) for group in self.base.left_out(targets))

    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Array:
        """Returns n draws: of each row's completions one, then targets from it."""
        which, targets = jax.random.split(key)
        start = jnp.searchsorted(self.row, jnp.arange(self.count))
        sizes = jnp.round(1 / self.weights[start]).astype(start.dtype)
        chosen = start[None] + jax.random.randint(which, (n, self.count), 0, sizes[None], start.dtype)
        at_once, parts = max(1, memory.budget() // (8 * self.base.mean.size)), []
        for here in range(0, n, at_once):  # the memory is little more than that of the result
            index = chosen[here : here + at_once]
            draws = self.base.sample(jax.random.fold_in(targets, here), len(index), first)
            parts.append(jnp.take_along_axis(draws, index.reshape(*index.shape, *[1] * (draws.ndim - 2)), axis=1))
        return jnp.concatenate(parts)


class CompletedRows(ByChunks):
    """An `InputMixture` of many rows in chunks: every method is one pass over the rows."""

    def __init__(
        self,
        predict: Callable[[Any, Any], Predictive],
        completions: Completions,
        at_once: int,
        support: Support | None = None,
    ) -> None:
        self._support = support
        self._predict = predict
        self._completions = completions
        self._at_once = at_once

    def chunks(self) -> Iterator[tuple[slice, InputMixture]]:
        # Yields the prediction of some rows after the other, in memory, each with the slice of rows that it is of.
        row, start = self._completions.row, 0
        while start < len(row):
            end = min(start + self._at_once, len(row))
            if end < len(row) and row[end] == row[end - 1]:  # not a row in two parts
                row_start = int(np.searchsorted(row, row[end]))
                end = row_start if row_start > start else int(np.searchsorted(row, row[end], side="right"))
            part, first = slice(start, end), int(row[start])
            here = Completions(self._completions.x[part], row[part] - first, self._completions.spread[part])
            predict = lambda x, row, first=first: self._predict(x, row + first)
            yield slice(first, first + here.rows), InputMixture.in_memory(predict, here)
            start = end

    @property
    def support(self) -> Support:
        # The likelihood's support.
        return next(self.chunks())[1].support if self._support is None else self._support

    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Array:
        # Returns n draws: of each row's completions one, then targets from it.
        parts = [
            part.sample(jax.random.fold_in(key, rows.start), n, first + rows.start) for rows, part in self.chunks()
        ]
        return jnp.concatenate(parts, axis=1)

    def ask(self, question: str, y: Targets = None, axis: int = 0, **options: Number) -> PyTree:
        y = jax.tree.map(np.asarray, y)
        cut = lambda at: () if y is None else (jax.tree.map(lambda leaf: leaf[at], y),)
        parts = [answer(part, question, *cut(rows), **options) for rows, part in self.chunks()]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=axis), *parts)


def _rounded(count: int) -> int:
    """Returns the next of 2, 3, 4, 6, 8, 12, ..."""
    power = 1 << max(count - 1, 1).bit_length()
    return 3 * power // 4 if count <= 3 * power // 4 else power
