"""Checks of arguments: types as annotated, whole sizes, and conditions on numbers."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeVar

import jax
import numpy as np
from jax.core import Tracer

__all__ = [
    "checking_arguments",
    "hints_of",
    "is_instance",
    "number",
    "require",
    "require_positive",
    "require_share",
    "require_whole_field",
    "sized",
    "whole",
    "whole_number",
    "written",
]


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


_Of = TypeVar("_Of", bound=Any)
_SEVERAL = ("tuple[int, ...]", "tuple[int, int]")


def require(condition: Any, message: str) -> None:
    """Raises a ValueError where a condition on a number is false; one on a traced number is taken to hold."""
    if not isinstance(condition, Tracer) and not np.all(condition):
        raise ValueError(message)


def number(value: object) -> float | None:
    """Returns a real number, of Python or NumPy, as a float; None for anything else, and for truth values."""
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else None


def require_positive(name: str, value: Any, advice: str) -> None:
    """Raises a ValueError unless numbers are positive and finite; None and traced ones pass."""
    if value is not None and not isinstance(value, Tracer):
        is_positive = _holds(name, value, advice, lambda: np.greater(value, 0) & np.isfinite(value))
        require(is_positive, f"the {name} {value} is not positive and finite; {advice}")


def require_share(name: str, value: Any, advice: str) -> None:
    """Raises a ValueError unless a number is strictly between zero and one; a traced one passes."""
    is_inside = _holds(name, value, advice, lambda: (value > 0) & (value < 1))
    require(is_inside, f"the {name} {value} is not between 0 and 1; {advice}")


def _holds(name: str, value: Any, advice: str, condition: Callable[[], Any]) -> Any:
    try:
        return condition()
    except TypeError:
        raise TypeError(f"the {name} {value!r} is not a number; {advice}") from None


def whole(value: Any) -> int | None:
    """Returns an integer, of NumPy and JAX too, as an int; None for anything else, and for truth values."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def whole_number(name: str, value: object, least: int = 1, problem: str = "is not possible") -> int:
    """Returns an argument as an int; raises a ValueError where it is not a whole number, or is below `least`."""
    count = whole(value)
    if count is None or count < least:
        raise ValueError(f"{name}={value!r} {problem}; give a whole number of at least {least}")
    return count


def require_whole_field(record: object, name: str, least: int = 1, problem: str = "is not possible") -> None:
    """Sets a field of a record to `whole_number` of it."""
    object.__setattr__(record, name, whole_number(name, getattr(record, name), least, problem))


def sized(of: _Of) -> _Of:
    """Decorator that refuses arguments annotated as integers that are not integers, or are below one."""
    return _class(of) if isinstance(of, type) else _function(of)


def _function(of: Any) -> Any:
    signature = inspect.signature(of)
    names = {name: str(each.annotation) for name, each in signature.parameters.items() if _is_size(each.annotation)}

    @functools.wraps(of)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:  # the call's own error names the argument
            return of(*args, **kwargs)
        for name, annotation in names.items():
            if name in bound.arguments:
                bound.arguments[name] = _required(of.__name__, name, bound.arguments[name], annotation)
        return of(*bound.args, **bound.kwargs)

    return checked


def _class(of: Any) -> Any:
    annotations: dict[str, Any] = {}
    for base in reversed(of.__mro__):
        annotations |= inspect.get_annotations(base)
    names = {name: str(each) for name, each in annotations.items() if _is_size(each)}
    before = getattr(of, "__post_init__", None)

    def __post_init__(self: object) -> None:  # noqa: N807
        for name, annotation in names.items():
            value = _required(type(self).__name__, name, getattr(self, name), annotation, least=-sys.maxsize)
            object.__setattr__(self, name, value)
        if before is not None:
            before(self)
        for name, annotation in names.items():
            _required(type(self).__name__, name, getattr(self, name), annotation)

    of.__post_init__ = __post_init__
    return of


def _is_size(annotation: object) -> bool:
    return str(annotation) == "int" or annotation is int or str(annotation) in _SEVERAL


def _required(owner: str, name: str, value: Any, annotation: str, least: int = 1) -> Any:
    if annotation in _SEVERAL:
        numbers = tuple(map(whole, value)) if isinstance(value, tuple | list) else ()
        few = isinstance(value, tuple | list) and (annotation == _SEVERAL[0] or len(numbers) == 2)
        if few and all(each is not None and each >= least for each in numbers):
            return type(value)(numbers)
        example = "(64,)" if annotation == _SEVERAL[0] else "(28, 28)"
        raise ValueError(f"{owner} has {name}={value!r}; give whole numbers from 1, for instance {example}")
    number = whole(value)
    if number is None or number < least:
        raise ValueError(f"{owner} has {name}={value!r}; give a whole number from 1")
    return number
