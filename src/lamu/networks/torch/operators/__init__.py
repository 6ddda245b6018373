"""PyTorch's operators in JAX, by the names that an exported graph has for them, without `aten.` and overloads."""

# An overload that takes other arguments (`max.dim` beside `max`) has an entry of its own. Arguments are PyTorch's, in
# PyTorch's order; arrays stand in the places of tensors, JAX's dtypes in the places of PyTorch's.

from __future__ import annotations

from collections.abc import Callable

from lamu.networks.torch.operators.arrays import CREATION, ELEMENTWISE, PRODUCTS, REDUCTIONS, SHAPES
from lamu.networks.torch.operators.layers import (
    ATTENTION_WITH_MODE,
    CELLS,
    CONVOLUTIONS,
    NOISE,
    NORMALISATION,
    NORMALISATION_WITH_MODE,
    POOLING,
    RECURRENT,
)
from lamu.typing import PyTree

__all__ = ["OPERATORS", "OPERATORS_WITH_MODE"]

OPERATORS: dict[str, Callable[..., PyTree]] = {
    **CELLS,
    **CONVOLUTIONS,
    **CREATION,
    **ELEMENTWISE,
    **NORMALISATION,
    **POOLING,
    **PRODUCTS,
    **REDUCTIONS,
    **SHAPES,
}
# What depends on whether the pass trains or has a key: these take a `lamu.networks.torch.eager.Mode` first.
OPERATORS_WITH_MODE: dict[str, Callable[..., PyTree]] = {
    **ATTENTION_WITH_MODE,
    **NOISE,
    **NORMALISATION_WITH_MODE,
    **RECURRENT,
}
