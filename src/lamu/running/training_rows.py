"""The rows to learn from, as a fit or several fits read them: once, and with a word about weights of another scale."""

from __future__ import annotations

from typing import Any

from lamu.data.arrays import Arrays
from lamu.data.row_weights import warn_of_scale
from lamu.data.stream import Stream
from lamu.target import Target

__all__ = ["training_rows"]


def training_rows(model: Target, data: Any) -> Arrays | Stream:
    """Returns data as rows to learn from; warns of weights whose sum is far from the number of rows.

    Args:
        model: what reads them.
        data: as `lamu.fit` takes it; rows that were read before are returned as they are.

    Examples:
        >>> import lamu
        >>> from lamu.running.training_rows import training_rows
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
        >>> training_rows(model, ([[1.0], [2.0]], [0.5, 1.5])).count
        2
    """
    rows = model.read(data)
    if isinstance(rows, Arrays) and rows is not data:
        warn_of_scale(rows.weight, stacklevel=4)
    return rows
