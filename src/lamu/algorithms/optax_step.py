"""One update of an optax optimiser, in the dtype of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from lamu import tree
from lamu.dtype_policy import lenient
from lamu.typing import Array, Number, Params, State

__all__ = ["Optimizer", "default_optimiser", "optax_step", "optimiser_or"]

# `optimiser_or` refuses other types in its own sentence: type checkers see the type, and at run time it is Any.
if TYPE_CHECKING:
    from optax import GradientTransformation as Optimizer
else:
    Optimizer = Any


@cache
def default_optimiser(name: str, *settings: float) -> Optimizer:
    """Returns an optax optimiser, the same object for the same arguments."""
    # An optimiser is a pair of functions, and to JAX a new pair is a new program: a recipe
    # that made a new one at every call would compile every run again.
    import optax

    return getattr(optax, name)(*settings)


def optimiser_or(optimizer: Optimizer | None, name: str, *settings: float) -> Optimizer:
    """Returns an optax optimiser unchanged, or the default where it is None."""
    if optimizer is None:
        return default_optimiser(name, *settings)
    import optax

    if not isinstance(optimizer, optax.GradientTransformation):
        example = ", ".join(f"{value:g}" for value in settings)
        raise TypeError(f"{optimizer!r} is not an optax optimiser; give for instance optax.{name}({example})")
    return optimizer


def optax_step(
    optimizer: Optimizer,
    gradient: Params,
    memory: State,
    params: Params,
    value: Array | None,
    value_fn: Callable[[Params], Array],
    factor: Number | Array = 1.0,
) -> tuple[Params, State]:
    """Returns parameters and optimiser state after one update."""
    import optax

    extra = {}
    if isinstance(optimizer, optax.GradientTransformationExtraArgs):
        extra = {"value": value, "grad": gradient, "value_fn": value_fn}
    with lenient():
        updates, memory = optimizer.update(gradient, memory, params, **extra)
        updates = updates if isinstance(factor, float) and factor == 1.0 else tree.scale(updates, factor)
        return optax.apply_updates(params, updates), memory
