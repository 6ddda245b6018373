"""Data as people have them, as rows in memory or as a stream of batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lamu.data.arrays import Arrays
from lamu.data.naming import aligned
from lamu.data.stream import Stream
from lamu.data.wording import quoted

__all__ = ["read"]


def read(data: Any, columns: tuple[str, ...] | None = None) -> Arrays | Stream:
    """Returns data as rows."""
    if isinstance(data, Arrays | Stream):
        return data
    if isinstance(data, str | bytes):
        raise TypeError(
            f"the data are the text {quoted(data)}; give arrays, for instance lamu.data.load('iris'), or the columns "
            "of pandas.read_csv(path)"
        )
    if isinstance(data, Mapping) or (isinstance(data, tuple) and len(data) == 2):
        return Arrays.to_fit(aligned(data, columns))
    if isinstance(data, Iterable) and not _is_array(data):
        return Stream(data, columns)
    raise TypeError(
        f"data of type {type(data).__name__} cannot be read; give (x, y), a mapping, or an iterable of batches"
    )


def _is_array(data: Any) -> bool:
    """Whether this is an array or a frame; a data set of Hugging Face has a shape too, and yields rows or batches."""
    return hasattr(data, "shape") and (hasattr(data, "dtype") or hasattr(data, "columns"))
