"""Checks of values against annotations: of a dataclass's fields, and of a function's arguments."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

__all__ = ["checking_arguments", "hints_of", "is_instance", "written"]

F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def hints_of(cls: type) -> Mapping[str, Any]:
    """Returns the evaluated annotations of a dataclass's fields; empty where one cannot be evaluated."""
    try:
        hints = typing.get_type_hints(cls)
    except Exception:  # annotations of a user's class may be anything
        return {}
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.name in hints}


def checking_arguments(function: F, cls: type | None = None) -> F:
    """Returns a function that refuses arguments of other types than annotated, in its own sentence if it has one."""
    # `cls`: the dataclass whose constructor it is; inherited fields have the annotations of other modules.

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        signature = _signature(function)
        hints = _hints_of_arguments(function) if cls is None else hints_of(cls)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:  # the call's own error names the argument
            return function(*args, **kwargs)
        unsuited = [name for name, value in given.items() if name in hints and not _suits(value, hints[name])]
        if not unsuited:
            return function(*args, **kwargs)
        name = unsuited[0]
        try:
            function(*args, **kwargs)
        except Exception as error:  # a value of another type fails in any way, for instance without an attribute
            sentence = isinstance(error, TypeError | ValueError)
            if sentence and re.search(rf"\b{name}\b.*;", str(error), re.DOTALL):  # with a remedy
                raise
        raise TypeError(_sentence(name, given[name], hints[name], signature.parameters[name].default)) from None

    return typing.cast("F", checked)


_signature = functools.cache(inspect.signature)


@functools.cache
def _hints_of_arguments(function: Callable[..., Any]) -> Mapping[str, Any]:
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # as in `hints_of`
        return {}
    return {
        name: hints[name]
        for name, each in _signature(function).parameters.items()
        if name in hints and each.kind not in several
    }


def _suits(value: object, hint: object) -> bool:
    """Whether an argument is what its annotation says; lists and vectors pass as tuples, and classes not as objects."""
    if isinstance(value, type):
        kinds = [typing.get_origin(each) or each for each in _alternatives(hint)]
        objects = lambda kind: isinstance(kind, type) and kind not in (Any, Callable) and kind.__module__ != "jaxtyping"
        return not all(map(objects, kinds))
    if isinstance(value, list | np.ndarray) and np.ndim(value) == 1 and is_instance(tuple(value), hint):
        return True
    return is_instance(value, hint)


def _alternatives(hint: object) -> tuple[object, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _sentence(name: str, value: object, hint: object, default: object) -> str:
    kinds = [each for each in _alternatives(hint) if each is not type(None)]
    if isinstance(value, type):
        return f"{name}={value.__name__} is a class; give an object, for instance {value.__name__}()"
    named = lambda kind: f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"
    known = {bool: "True or False", int: "a number", float: "a number", jax.Array: "a number"}
    words = dict.fromkeys(known.get(each) or named(written(each)) for each in kinds)
    if default is None or default is inspect.Parameter.empty:
        remedy = "give one" if default is not None else "give one, or leave it out"
    else:
        remedy = f"give for instance {default!r}" if len(repr(default)) < 30 else f"give {type(default).__name__}()"
    return f"{name}={value!r} is not {' or '.join(words)}; {remedy}"


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
