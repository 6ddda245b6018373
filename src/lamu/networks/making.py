"""Functions that make modules of other libraries, looked at before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["apart", "require_make"]

T = TypeVar("T")


def require_make(make: Any, module: type, adapter: str, argument: str) -> None:
    """Raises a TypeError for what cannot make modules."""
    if isinstance(make, module):
        name = type(make).__name__
        raise TypeError(
            f"the module {name} is made already, and every run wants weights of its own; give what makes it, for "
            f"instance {adapter}(lambda {argument}: {name}(..., {argument}={argument})), or {adapter}.of(module) for "
            "one that is trained"
        )
    if not callable(make):
        raise TypeError(
            f"make={make!r} cannot be called; give for instance {adapter}(lambda {argument}: "
            f"Net({argument}={argument}))"
        )


def apart(make: Callable[[], T]) -> T:
    """Returns what a function makes in a thread of its own, which shares no trace with who asks inside of one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()
