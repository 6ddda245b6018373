"""The optax optimisers that recipes take where none is given, each made once."""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["default_optimiser", "optimiser_or"]


@cache
def default_optimiser(name: str, *settings: float) -> Any:
    """Returns an optax optimiser, the same object for the same arguments."""
    # An optimiser is a pair of functions, and a new pair is to JAX a new program, though it does the same: a recipe
    # that made its own at every call would compile every run anew.
    import optax

    return getattr(optax, name)(*settings)


def optimiser_or(optimizer: Any, name: str, *settings: float) -> Any:
    """Returns an optax optimiser as it is, and the default where it is None."""
    if optimizer is None:
        return default_optimiser(name, *settings)
    import optax

    if not isinstance(optimizer, optax.GradientTransformation):
        example = ", ".join(f"{value:g}" for value in settings)
        raise TypeError(f"{optimizer!r} is no optax optimiser; give for instance optax.{name}({example})")
    return optimizer
