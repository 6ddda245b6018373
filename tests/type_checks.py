"""Types checked at run time, once a call."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype
from jaxtyping import _decorator, install_import_hook
from jaxtyping._storage import pop_shape_memo, push_shape_memo

# A function inside of another is made anew, and its checks with it, whenever the other runs: after some it is let be.
MOST_OF_AN_INNER_FUNCTION = 4
MADE: collections.Counter[types.CodeType] = collections.Counter()


def check_types_of(packages: list[str]) -> None:
    """Checks the annotations of functions and dataclasses of `packages`, which are not imported yet.

    jaxtyping checks the arguments of every call twice, the second time together with the result, and binds them to the
    signature beforehand: checks were an eighth of the time. Here arguments and result are checked once, and the sizes
    of the axes with them. Axes that are named after an argument's value, `"{n}"`, are what this cannot read.
    """
    of_classes_and_properties = _decorator.jaxtyped

    def jaxtyped(of: Any = None, *, typechecker: Callable) -> Any:
        if of is None:
            return functools.partial(jaxtyped, typechecker=typechecker)
        if not isinstance(of, types.FunctionType):
            return of_classes_and_properties(of, typechecker=typechecker)
        if of.__module__.startswith("lamu.sklearn") and of.__name__ == "__init__":
            return of  # an estimator takes anything, and `fit` says what is wrong: scikit-learn's convention
        MADE[of.__code__] += 1
        if "<locals>" in of.__qualname__ and MADE[of.__code__] > MOST_OF_AN_INNER_FUNCTION:
            return of
        return checked_once(of)

    _decorator.jaxtyped = jaxtyped  # what the original calls for methods of a class
    import jaxtyping

    jaxtyping.jaxtyped = jaxtyped  # what the hook writes above each function
    install_import_hook(packages, "beartype.beartype")


def checked_once(function: types.FunctionType) -> Callable:
    """`function` with its arguments and its result checked in one scope of axes."""
    read = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    functools.update_wrapper(read, function)
    del read.__wrapped__
    read.__kwdefaults__ = function.__kwdefaults__
    # What cannot be read, since it is imported for the checker of types alone, is anything.
    read.__annotations__ = {
        name: _decorator._destring_annotation(annotation, function.__globals__)
        for name, annotation in function.__annotations__.items()
    }
    inner = beartype(conf=BeartypeConf(violation_type=TypeError))(read)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        push_shape_memo({})
        try:
            return inner(*arguments, **named)
        finally:
            pop_shape_memo()

    return call
