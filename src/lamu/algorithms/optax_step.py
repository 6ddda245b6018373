"""One update of an optax optimiser, in the dtype of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lamu import tree
from lamu.dtype_policy import lenient
from lamu.typing import Array, Number, Params

__all__ = ["optax_step"]


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
