"""Arrays with missing entries."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.record import record

__all__ = ["Incomplete"]


@record
class Incomplete:
    """An array of which some entries are missing.

    A target that can miss entries reads its data with `Arrays.named(data, names, missing=True)`, where NaN stands for a
    missing entry, and gets an `Incomplete` for each name.

    Attributes:
        value: the entries, `[N, ...]`, zero where one is missing.
        observed: whether each entry is there, of the same shape.

    Examples:
        >>> import numpy as np
        >>> from lamu.data import Incomplete
        >>> Incomplete.of(np.array([0.5, np.nan])).value.tolist()
        [0.5, 0.0]
    """

    value: Any
    observed: Any

    @classmethod
    def of(cls, array: Any) -> Incomplete:
        """Returns the array, of which NaN is missing.

        Args:
            array: numbers.
        """
        known = ~np.isnan(array) if np.issubdtype(np.asarray(array).dtype, np.floating) else np.ones(array.shape, bool)
        return cls(np.where(known, array, np.zeros((), array.dtype)), known)
