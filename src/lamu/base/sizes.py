"""Checks of numbers that constructors and functions are given: whole sizes, and conditions on others."""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable
from numbers import Real
from typing import Any, TypeVar

import numpy as np
from jax.core import Tracer

__all__ = [
    "number",
    "require",
    "require_positive",
    "require_share",
    "require_whole_field",
    "sized",
    "whole",
    "whole_number",
]

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
