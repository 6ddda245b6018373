"""Type aliases used throughout the library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, Scalar

__all__ = [
    "Array",
    "Belief",
    "Bool",
    "DTypeLike",
    "Data",
    "Document",
    "Float",
    "Inputs",
    "Int",
    "Key",
    "Number",
    "Numeric",
    "OperatorTree",
    "Options",
    "Params",
    "Prediction",
    "PyTree",
    "RandomKey",
    "Rows",
    "Scalar",
    "State",
    "Statistics",
    "Targets",
    "Trace",
]

Params: TypeAlias = PyTree
"""A point θ of parameter space: nested dictionaries, lists or tuples of floating arrays."""

RandomKey: TypeAlias = Key[jax.Array, ""]
"""One typed JAX random key (`jax.random.key(0)`)."""

Number: TypeAlias = float | int | jax.Array
"""A real hyperparameter: a Python number, or a zero-dimensional array where it is traced."""

if TYPE_CHECKING:
    Numeric: TypeAlias = float | int | jax.Array
else:
    Numeric: TypeAlias = float | int | np.number | np.ndarray | jax.Array
"""A number on the way through a step, traced or not: a rate, a count, a temperature; NumPy's pass too."""

Rows: TypeAlias = jax.Array | np.ndarray
"""Inputs `[N, ...]` for prediction: on the device, or in the host's memory until their chunk's turn comes."""

Inputs: TypeAlias = PyTree
"""Inputs x of the rows, or of one row: an array, or a tree of arrays whose leading axis is the rows."""

Targets: TypeAlias = PyTree
"""Targets y of the rows: an array, or a tree of arrays whose leading axis is the rows."""

Data: TypeAlias = Any
"""What `lamu.fit` reads: a pair of inputs and targets, arrays by name, a source of `lamu.data`, a stream of batches."""

Belief: TypeAlias = PyTree
"""A belief q(θ): a record of `lamu.families`, or a tree of such records."""

Statistics: TypeAlias = PyTree
"""Sufficient statistics T(θ), their expectations, or natural parameters: a tree that a family reads."""

State: TypeAlias = PyTree
"""A tree of arrays carried from call to call: of an algorithm, a chain, or a network (batch statistics)."""

Prediction: TypeAlias = Any
"""What `predict` returns (`lamu.predictives.Predictive`), or an object with those of its members that are asked for."""

Document: TypeAlias = dict[str, Any]
"""An object of JSON, or what becomes one."""

Options: TypeAlias = dict[str, Any]
"""The arguments of a function by name, or the fields of an object."""
OperatorTree: TypeAlias = PyTree
"""A precision, a curvature, or their factor: an operator of `lamu.operators`, or a tree of them."""

Trace: TypeAlias = PyTree
"""The draws that a run collected, leaves `[draws, ...]`; None where it collected none."""
