"""Parameters as vectors, and how far apart two arrays are: what every check compares."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu import tree

__all__ = ["distance", "flat"]


def flat(params: Any) -> np.ndarray:
    """Returns the leaves of a tree one after the other, as one vector."""
    return np.asarray(tree.ravel(params)[0])


def distance(a: Any, b: Any) -> float:
    """Returns the largest difference between the entries of two arrays."""
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))
