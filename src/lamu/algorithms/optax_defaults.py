"""The optax optimisers that recipes take where none is given, each made once."""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["default_optimiser"]


@cache
def default_optimiser(name: str, *settings: float) -> Any:
    """Returns an optax optimiser, the same object for the same arguments.

    An optimiser is a pair of functions, and a new pair is to JAX a new program, though it does the same: a recipe that
    made its own at every call would compile every run anew.

    Args:
        name: its name in optax.
        *settings: what it is made with.

    Examples:
        >>> from lamu.algorithms.optax_defaults import default_optimiser
        >>> default_optimiser("adam", 1e-3) is default_optimiser("adam", 1e-3)
        True
    """
    import optax

    return getattr(optax, name)(*settings)
