"""Names for the kinds of values that travel through every floor."""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, Scalar

__all__ = [
    "Array",
    "Bool",
    "Float",
    "Int",
    "Key",
    "Number",
    "Params",
    "PyTree",
    "RandomKey",
    "Rows",
    "Scalar",
]

Params: TypeAlias = PyTree[Any]
"""A point θ of parameter space: nested dictionaries, lists or tuples of floating arrays."""

RandomKey: TypeAlias = Key[jax.Array, ""]
"""One typed JAX random key (`jax.random.key(0)`)."""

Number: TypeAlias = float | int | jax.Array
"""A real hyperparameter: a Python number, or a zero-dimensional array where it is traced."""

Rows: TypeAlias = jax.Array | np.ndarray
"""Inputs `[N, ...]` for prediction: on the device, or in the host's memory until their chunk's turn comes."""
