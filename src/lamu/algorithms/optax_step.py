"""One update of an optax optimiser, in the dtype of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from lamu import tree
from lamu.dtype_policy import lenient
from lamu.typing import Array, Number, Params

__all__ = ["default_optimiser", "optax_step", "optimiser_or"]


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


def optax_step(
    optimizer: Any,
    gradient: Params,
    memory: Any,
    params: Params,
    value: Any,
    value_fn: Callable[[Params], Any],
    factor: Number | Array = 1.0,
) -> tuple[Params, Any]:
    """Returns parameters and memory after one update."""
    import optax

    extra = {}
    if isinstance(optimizer, optax.GradientTransformationExtraArgs):
        extra = {"value": value, "grad": gradient, "value_fn": value_fn}
    with lenient():
        updates, memory = optimizer.update(gradient, memory, params, **extra)
        updates = updates if isinstance(factor, float) and factor == 1.0 else tree.scale(updates, factor)
        return optax.apply_updates(params, updates), memory
