"""The rows to learn from, as a fit or several fits read them: once, and with a word about weights of another scale."""

from __future__ import annotations

from typing import Any

from lamu.data.arrays import Arrays
from lamu.data.row_weights import warn_of_scale
from lamu.data.stream import Stream
from lamu.target import Target

__all__ = ["training_rows"]


def training_rows(model: Target, data: Any) -> Arrays | Stream:
    """Returns data as rows to learn from; warns of weights whose sum is far from the number of rows."""
    rows = model.read(data)
    if isinstance(rows, Arrays) and rows is not data:
        warn_of_scale(rows.weight, stacklevel=4)
    return rows
