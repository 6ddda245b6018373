"""Copies the NumPy arrays that a program uses as globals or closes over."""

# JAX 0.10 caches the constant of a NumPy array by the array's identity while a compiled function uses it, regardless
# of whether float64 was enabled. A program that is traced in both precisions would then get constants of the other
# one: "lax.mul requires arguments to have the same dtypes, got float64, float32". A copy has another identity.

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import CellType, FunctionType
from typing import Any

import numpy as np

__all__ = ["with_own_arrays"]


def with_own_arrays(program: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function with copies of its global and closed-over arrays; other objects unchanged."""
    return _copied(program, {})


def _copied(value: Any, copies: dict[int, Any]) -> Any:
    if type(value) is np.ndarray:
        return value.copy()
    if isinstance(value, partial):
        keywords = {name: _copied(part, copies) for name, part in value.keywords.items()}
        return partial(_copied(value.func, copies), *(_copied(part, copies) for part in value.args), **keywords)
    if not isinstance(value, FunctionType):
        return value
    if id(value) in copies:
        return copies[id(value)]
    cells = tuple(CellType() for _ in value.__closure__ or ())
    module = _of_module(value.__globals__, copies)
    copy = FunctionType(value.__code__, module, value.__name__, value.__defaults__, cells or None)
    copy.__kwdefaults__, copy.__dict__ = value.__kwdefaults__, dict(value.__dict__)
    copies[id(value)] = copy  # before its closure, which may contain the function itself
    for cell, old in zip(cells, value.__closure__ or (), strict=True):
        try:
            cell.cell_contents = _copied(old.cell_contents, copies)
        except ValueError:
            continue  # a variable without a value yet
    return copy


def _of_module(names: dict[str, Any], copies: dict[int, Any]) -> dict[str, Any]:
    if id(names) in copies:
        return copies[id(names)]
    copy = copies[id(names)] = dict(names)
    for name, value in names.items():
        if type(value) is np.ndarray or (isinstance(value, FunctionType) and value.__globals__ is names):
            copy[name] = _copied(value, copies)
    return copy
