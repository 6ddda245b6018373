"""Checks of values against the annotations of a dataclass."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

__all__ = ["hints_of", "is_instance", "written"]


@functools.cache
def hints_of(cls: type) -> Mapping[str, Any]:
    """Returns the evaluated annotations of a dataclass's fields; empty where one cannot be evaluated."""
    try:
        hints = typing.get_type_hints(cls)
    except Exception:  # annotations of a user's class may be anything
        return {}
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.name in hints}


def is_instance(value: object, hint: object) -> bool:
    """Whether a value is an instance of an annotation; True where that cannot be checked."""
    # A number may be an array without dimensions, and an integer is accepted for a float, as in Python's own rules. A
    # Boolean is not accepted for a number.
    if hint is Any:
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(is_instance(value, each) for each in arguments)
    if origin is typing.Literal:
        return any(type(value) is type(each) and value == each for each in arguments)
    if origin is tuple or hint is tuple:
        return isinstance(value, tuple) and _items_suit(value, arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            is_instance(key, arguments[0]) and is_instance(item, arguments[1]) for key, item in value.items()
        )
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return isinstance(value, Sequence) and all(is_instance(item, arguments[0]) for item in value)
    if hint is None or hint is type(None):
        return value is None
    if hint in _NUMBERS:
        return _is_number(value, hint)
    if hint is jax.Array:
        return isinstance(value, jax.Array | np.ndarray) or _is_number(value, float)
    if isinstance(hint, type) and not getattr(hint, "_is_protocol", False) and hint.__module__ != "jaxtyping":
        return isinstance(value, hint)
    if isinstance(hint, type) and getattr(hint, "_is_protocol", False):
        return not isinstance(value, bool | int | float | str | tuple | list | dict | None | jax.Array | np.ndarray)
    return True


_NUMBERS: Mapping[Any, tuple[str, type | tuple[type, ...]]] = {
    bool: ("b", bool),
    int: ("iu", int),
    float: ("iuf", (int, float)),
}


def _is_number(value: object, hint: object) -> bool:
    kinds, types_ = _NUMBERS[hint]
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key) or value.ndim:
            return False
        return value.dtype.kind in kinds or ("f" in kinds and jax.numpy.issubdtype(value.dtype, np.floating))
    return isinstance(value, types_) and (hint is bool or not isinstance(value, bool))


def _items_suit(value: tuple[object, ...], arguments: tuple[object, ...]) -> bool:
    if not arguments:
        return True
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return all(is_instance(item, arguments[0]) for item in value)
    return len(value) == len(arguments) and all(map(is_instance, value, arguments))


def written(hint: Any) -> str:
    """Returns an annotation as text, without the modules."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(written(each) for each in arguments)
    if hint is type(None):
        return "None"
    if arguments and isinstance(typing.get_origin(hint), type):
        inside = ", ".join("..." if each is Ellipsis else written(each) for each in arguments)
        return f"{typing.get_origin(hint).__name__}[{inside}]"
    return getattr(hint, "__name__", str(hint))
