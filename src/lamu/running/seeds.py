"""The seed of a run, checked before anything is drawn from it."""

from __future__ import annotations

import operator
from typing import Any

__all__ = ["whole_seed"]

_LIMIT = 2**32  # without 64 bits JAX drops the higher ones, so that two seeds would be one


def whole_seed(seed: Any) -> int:
    """Returns a seed that JAX takes as it is.

    Args:
        seed: a whole number from 0 to 2**32 − 1, of Python or of NumPy.

    Raises:
        TypeError: for something else than a whole number.
        ValueError: for a number that is negative or too large.

    Examples:
        >>> import numpy as np
        >>> from lamu.running.seeds import whole_seed
        >>> whole_seed(np.int64(3))
        3
    """
    try:
        number = operator.index(seed)
    except TypeError as error:
        raise TypeError(f"seed={seed!r} is no whole number; give one from 0 to {_LIMIT - 1}, for instance 0") from error
    if not 0 <= number < _LIMIT:
        raise ValueError(f"seed={number} is outside 0 to {_LIMIT - 1}; give a number in this range")
    return number
