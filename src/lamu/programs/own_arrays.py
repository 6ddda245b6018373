"""A program with copies of the NumPy arrays that it uses without being given them."""

# JAX 0.10 keeps what it makes of a NumPy array by the array's identity, for as long as a compiled function lives that
# has it as a constant, whether or not float64 was on: a program that is traced in both precisions then meets numbers of
# the other one, as "lax.mul requires arguments to have the same dtypes, got float64, float32". A copy is another array.

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import CellType, FunctionType
from typing import Any

import numpy as np

__all__ = ["with_own_arrays"]


def with_own_arrays(program: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a program with copies of the arrays of its module and of what it closes over; others as they are."""
    return _copied(program, {})


def _copied(value: Any, known: dict[int, Any]) -> Any:
    if type(value) is np.ndarray:
        return value.copy()
    if isinstance(value, partial):
        keywords = {name: _copied(part, known) for name, part in value.keywords.items()}
        return partial(_copied(value.func, known), *(_copied(part, known) for part in value.args), **keywords)
    if not isinstance(value, FunctionType):
        return value
    if id(value) in known:
        return known[id(value)]
    cells = tuple(CellType() for _ in value.__closure__ or ())
    module = _of_module(value.__globals__, known)
    copy = FunctionType(value.__code__, module, value.__name__, value.__defaults__, cells or None)
    copy.__kwdefaults__, copy.__dict__ = value.__kwdefaults__, dict(value.__dict__)
    known[id(value)] = copy  # before what it closes over, which may be itself
    for cell, old in zip(cells, value.__closure__ or (), strict=True):
        try:
            cell.cell_contents = _copied(old.cell_contents, known)
        except ValueError:
            continue  # a name that has no value yet
    return copy


def _of_module(names: dict[str, Any], known: dict[int, Any]) -> dict[str, Any]:
    if id(names) in known:
        return known[id(names)]
    copy = known[id(names)] = dict(names)
    for name, value in names.items():
        if type(value) is np.ndarray or (isinstance(value, FunctionType) and value.__globals__ is names):
            copy[name] = _copied(value, known)
    return copy
