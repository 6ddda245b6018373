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
    """Returns parameters and memory after one update.

    Args:
        optimizer: the optimiser.
        gradient: the gradient at the parameters.
        memory: the optimiser's state.
        params: the parameters.
        value: the loss at the parameters, for line searches.
        value_fn: the loss as a function of the parameters, for line searches, which evaluate it themselves; every other
            transformation ignores it.
        factor: what the update is multiplied by.

    Examples:
        >>> import jax.numpy as jnp, optax
        >>> from lamu.algorithms.optax_step import optax_step
        >>> loss, sgd, at = lambda w: 0.5 * w**2, optax.sgd(0.1), jnp.array(1.0)
        >>> float(optax_step(sgd, at, sgd.init(at), at, loss(at), loss)[0])
        0.9
    """
    import optax

    extra = {}
    if isinstance(optimizer, optax.GradientTransformationExtraArgs):
        extra = {"value": value, "grad": gradient, "value_fn": value_fn}
    with lenient():
        updates, memory = optimizer.update(gradient, memory, params, **extra)
        updates = updates if isinstance(factor, float) and factor == 1.0 else tree.scale(updates, factor)
        return optax.apply_updates(params, updates), memory
