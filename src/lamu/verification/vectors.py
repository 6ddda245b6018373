"""Parameters as vectors, and how far apart two arrays are: what every check compares."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu import tree

__all__ = ["distance", "flat"]


def flat(params: Any) -> np.ndarray:
    """Returns the leaves of a tree one after the other, as one vector.

    Args:
        params: a pytree of arrays.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.verification.vectors import flat
        >>> flat({"a": jnp.zeros(2), "b": jnp.ones((1, 1))}).tolist()
        [0.0, 0.0, 1.0]
    """
    return np.asarray(tree.ravel(params)[0])


def distance(a: Any, b: Any) -> float:
    """Returns the largest difference between the entries of two arrays.

    Args:
        a: an array.
        b: another one of its shape.

    Examples:
        >>> import numpy as np
        >>> from lamu.verification.vectors import distance
        >>> distance(np.zeros(2), np.array([1.0, -3.0]))
        3.0
    """
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))
