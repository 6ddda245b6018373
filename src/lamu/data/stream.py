"""Data that comes batch by batch and need not fit in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import jax

from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.naming import aligned

__all__ = ["Stream"]


class Stream:
    """A re-iterable of batches: `Batch`, `(x, y)`, or a mapping with `x`, `y` and, optionally, what `Arrays.of` takes.

    Every pass begins again at the front. Rows whose mask is zero are no data, and not among the N of `data_size`.
    Batches may differ in size; each is padded to the largest seen so far, so that few shapes are compiled.

    Args:
        source: an object that can be iterated over more than once (a list, a class with `__iter__`; no generator).
        columns: the names of the inputs, to which batches that are frames are matched; None where there are none.

    Raises:
        TypeError: for an iterator, which would be empty at the second pass.

    Examples:
        >>> import numpy as np
        >>> from lamu.data import Stream
        >>> stream = Stream([(np.ones((4, 2)), np.zeros(4)), (np.ones((3, 2)), np.zeros(3))])
        >>> [float(batch.count) for batch in stream]
        [4.0, 3.0]
    """

    def __init__(self, source: Iterable[Any], columns: tuple[str, ...] | None = None) -> None:
        if isinstance(source, Iterator):
            raise TypeError(
                f"a {type(source).__name__} can be read once only; give an object that can be iterated again"
            )
        self._source, self._columns = source, columns
        self._rows = 0

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches of one pass."""
        for item in self._source:
            batch = item if isinstance(item, Batch) else Arrays.of(aligned(item, self._columns)).full()
            self._rows = max(self._rows, batch.mask.shape[0])
            yield batch.padded(self._rows)

    def batches(self, size: int) -> Iterator[Batch]:
        """Yields the batches of one pass, cut into pieces of `size` rows."""
        for batch in self:
            rows = batch.mask.shape[0]
            for start in range(0, rows, size):
                end = min(start + size, rows)
                piece: Batch = jax.tree.map(lambda leaf, a=start, b=end: leaf[a:b], batch)
                yield piece.padded(size)

    def example(self, size: int) -> Batch:
        """Returns the first rows as one batch of at least `size` rows."""
        for batch in self:
            return batch.padded(max(size, batch.mask.shape[0]))
        raise ValueError("the data holds no batch; give at least one")
