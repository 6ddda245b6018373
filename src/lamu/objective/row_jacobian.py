"""The Jacobian of one row's outputs in the weights, by whichever mode of differentiation makes fewer passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from lamu import tree
from lamu.typing import Array, Params

__all__ = ["outputs_and_row_jacobian", "row_jacobian"]


def row_jacobian(function: Callable[[Params], Array], weights: Params) -> Params:
    """Returns ∂f/∂θ, leaves `[outputs, ...]`: one backward pass an output, or one forward pass a weight."""
    # A head of some dozens of weights with an output for every pixel is differentiated forwards.
    return outputs_and_row_jacobian(function, weights)[1]


def outputs_and_row_jacobian(function: Callable[[Params], Array], weights: Params) -> tuple[Array, Params]:
    """Returns f `[outputs]` and ∂f/∂θ, as `row_jacobian` has it, from one forward pass."""
    outputs = jax.eval_shape(function, weights)
    twice = lambda weights: (function(weights),) * 2
    forwards = jax.jacfwd(twice, has_aux=True)
    if tree.dimension(weights) < outputs.size and _has_tangents(forwards, weights):
        jacobian, f = forwards(weights)
    else:
        jacobian, f = jax.jacrev(twice, has_aux=True)(weights)
    return f, jacobian


def _has_tangents(forwards: Callable[[Params], Any], weights: Params) -> bool:
    """Whether the function can be differentiated forwards, which a rule for the backward pass alone forbids."""
    try:
        jax.eval_shape(forwards, weights)
    except TypeError:
        return False
    return True
