"""Streams of batches, which need not fit in memory, and columns by name."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.wording import listed, plural, quoted
from lamu.typing import Data, Inputs

__all__ = ["Stream", "aligned", "by_name", "column_names", "inputs_of", "parts_of", "read"]


def column_names(x: Inputs) -> tuple[str, ...] | None:
    """Returns the column names of a pandas or polars frame; None for other data."""
    names = getattr(x, "columns", None)
    if names is None:
        return None
    columns = tuple(names)
    if not columns or not all(isinstance(name, str) for name in columns):
        return None  # pandas' own numbers, which are positions
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise ValueError(f"x has more than one column {twice[0]!r}; give every column its own name")
    return columns


def by_name(x: Inputs, columns: tuple[str, ...] | None) -> Any:
    """Returns a frame with a model's columns, in their order; anything else unchanged."""
    names = column_names(x)
    if columns is None or names is None or names == columns:
        return x
    lacking = [name for name in columns if name not in names]
    if lacking:
        raise ValueError(
            f"x lacks the {plural('column', lacking)} {listed(lacking)} that the model was fitted on, and has "
            f"{listed(names)}; name them as they were, or pass an array in the order of the fit"
        )
    return x[list(columns)]


def parts_of(data: Data) -> Mapping[str, Any] | None:
    """Returns `(x, y)` or a mapping as a mapping; None for anything else."""
    if isinstance(data, tuple) and len(data) == 2:
        return dict(zip(("x", "y"), data, strict=True))
    return data if isinstance(data, Mapping) else None


def inputs_of(data: Data) -> Inputs | None:
    """Returns the inputs of `(x, y)` or of a mapping with `x`; None for anything else."""
    return (parts_of(data) or {}).get("x")


def aligned(data: Data, columns: tuple[str, ...] | None) -> Data:
    """Returns `(x, y)` or a mapping with a frame's columns in a model's order; anything else unchanged."""
    parts = parts_of(data)
    return data if parts is None or "x" not in parts else {**parts, "x": by_name(parts["x"], columns)}


class Stream:
    """A re-iterable of batches: `Batch`, `(x, y)`, or a mapping with `x`, `y` and the optional keys of `Arrays.of`.

    PyTorch's DataLoader, a loader of grain and a list are such objects, and PyTorch's tensors on the CPU are read
    like arrays. Every pass starts at the beginning. Rows of mask zero are not data, and do not count in the N of
    `data_size`. Batches may differ in their number of rows; each is padded to the largest so far, so that few
    shapes are compiled.

    Args:
        source: an object that can be iterated over repeatedly (a list, a class with `__iter__`, but not a generator).
        columns: the names of the inputs, for matching batches that are frames; None if there are none.
        prepare: returns a batch as a model reads it, or raises a ValueError, for instance for targets that its
            likelihood does not take; None for batches as they are.

    Raises:
        TypeError: for an iterator, which would be empty at the second pass.
        ValueError: (when it is read) for a batch with another row shape than those before it, one that `prepare`
            refuses, and for a pass that ends earlier than the first one.

    Examples:
        >>> import numpy as np
        >>> from lamu.data import Stream
        >>> stream = Stream([(np.ones((4, 2)), np.zeros(4)), (np.ones((3, 2)), np.zeros(3))])
        >>> [float(batch.count) for batch in stream]
        [4.0, 3.0]
    """

    def __init__(
        self,
        source: Iterable[object],
        columns: tuple[str, ...] | None = None,
        prepare: Callable[[Batch], Batch] | None = None,
    ) -> None:
        if isinstance(source, Iterator):
            raise TypeError(
                f"a {type(source).__name__} can be read once only; give an object that can be iterated again"
            )
        self._source, self._columns, self._prepare = source, columns, prepare
        self._rows = 0
        self._shape: tuple[int, ...] | None = None
        self._batches = 0  # of the first complete pass

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches of one pass."""
        number = 0
        for item in self._source:
            if not isinstance(item, Batch):
                self._require_rows(item)
            batch = item if isinstance(item, Batch) else Arrays.of(aligned(item, self._columns)).full()
            self._require_shape(number, batch.x.shape[1:])
            batch = self._prepared(number, batch)
            self._rows = max(self._rows, batch.mask.shape[0])
            number += 1
            yield batch.padded(self._rows)
        if number < self._batches:
            raise ValueError(
                f"this pass over the data ended after {number} batches, and the first one had {self._batches}; give an "
                "object that begins again at its front whenever it is iterated over"
            )
        self._batches = self._batches or number

    def _prepared(self, number: int, batch: Batch) -> Batch:
        try:
            return batch if self._prepare is None else self._prepare(batch)
        except ValueError as error:
            raise ValueError(f"batch {number}: {error}") from error

    def _require_rows(self, item: object) -> None:
        y = (parts_of(item) or {}).get("y")
        if isinstance(y, np.number | int | float) or getattr(y, "ndim", None) == 0:
            raise ValueError(
                f"the {type(self._source).__name__} yields single rows; give one that yields batches of them, for "
                "instance by its method batch(64)"
            )

    def _require_shape(self, number: int, shape: tuple[int, ...]) -> None:
        if self._shape is None:
            self._shape = shape
        if shape != self._shape:
            raise ValueError(
                f"batch {number} has rows of the shape {shape}, and those before it {self._shape}; give all rows one "
                "shape"
            )

    def batches(self, size: int) -> Iterator[Batch]:
        """Yields the batches of one pass, split into batches of `size` rows."""
        for batch in self:
            rows = batch.mask.shape[0]
            for start in range(0, rows, size):
                end = min(start + size, rows)
                piece: Batch = jax.tree.map(lambda leaf, a=start, b=end: leaf[a:b], batch)
                yield piece.padded(size)

    def pass_length(self, counted: bool) -> int | None:
        """Returns the number of batches of a pass: its length, else counted where that is asked for, else None."""
        if isinstance(self._source, Stream):
            return self._source.pass_length(counted)
        return operator.length_hint(self._source) or (sum(1 for _ in self._source) if counted else None)

    def example(self, size: int) -> Batch:
        """Returns the first rows as one batch of at least `size` rows."""
        for batch in self:
            return batch.padded(max(size, batch.mask.shape[0]))
        raise ValueError("the data holds no batch; give at least one")


def read(data: Data, columns: tuple[str, ...] | None = None) -> Arrays | Stream:
    """Returns data as `Arrays` or a `Stream`."""
    if isinstance(data, Arrays | Stream):
        return data
    if isinstance(data, str | bytes):
        raise TypeError(
            f"the data are the text {quoted(data)}; give arrays, for instance lamu.data.load('iris'), or the columns "
            "of pandas.read_csv(path)"
        )
    if parts_of(data) is not None:
        return Arrays.to_fit(aligned(data, columns))
    if isinstance(data, tuple) and data and all(map(_is_array, data)):  # otherwise each would be read as a batch
        raise TypeError(
            f"data is a tuple of {len(data)} arrays; give (x, y), and what else a row brings by name, for instance "
            '{"x": x, "y": y, "weight": weight}'
        )
    if isinstance(data, Iterable) and not _is_array(data):
        return Stream(data, columns)
    of_torch = "give its arrays, data.tensors, or " if hasattr(data, "tensors") else ""
    of_torch = of_torch or ("give torch.utils.data.DataLoader(data, 64), or " if hasattr(data, "__getitem__") else "")
    raise TypeError(
        f"data of type {type(data).__name__} cannot be read; {of_torch}give (x, y), a mapping, or an iterable of "
        "batches"
    )


def _is_array(data: Data) -> bool:
    """Returns whether this is an array or a frame; a data set of Hugging Face has a shape too, and yields batches."""
    return hasattr(data, "shape") and (hasattr(data, "dtype") or hasattr(data, "columns"))
