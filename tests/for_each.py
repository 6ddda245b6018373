"""Cheap checks of many values as one case that names every value which fails."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def for_each(names: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, in one case: runs the test on all values and lists those on which it fails.

    For checks without a state: the values share the fixtures.
    """
    split, values = [name.strip() for name in names.split(",")], list(values)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in split]

        @functools.wraps(test)
        def together(**fixtures: Any) -> None:
            failures = []
            for value in values:
                given = dict(zip(split, value if len(split) > 1 else (value,), strict=True))
                try:
                    test(**given, **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    shown = ", ".join(str(part) for part in given.values())
                    failures.append(f"{shown}: {type(error).__name__}: {error}")
            assert not failures, "\n".join([f"{len(failures)} of {len(values)} fail:", *failures])

        del together.__wrapped__  # pytest would ask for the fixtures of what it stands for
        together.__signature__ = signature.replace(parameters=others)
        assert values, "a check of no value checks nothing"
        return together

    return decorate
