"""PyTorch's operators in JAX, by their names in an exported graph without `aten.` and overloads."""

# An overload with other arguments (`max.dim` of `max`) has its own entry. Arguments are PyTorch's, in PyTorch's order,
# with arrays instead of tensors and JAX's dtypes instead of PyTorch's.

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
# Operators that depend on whether the pass trains or has a key take a `lamu.networks.torch.eager.Mode` first.
OPERATORS_WITH_MODE: dict[str, Callable[..., PyTree]] = {
    **ATTENTION_WITH_MODE,
    **NOISE,
    **NORMALISATION_WITH_MODE,
    **RECURRENT,
}
