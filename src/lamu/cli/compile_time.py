"""How much of a command's time was tracing and compilation, and of how many programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jax import monitoring

__all__ = ["CompileTime", "compile_time"]


class CompileTime:
    """Seconds of tracing and compilation so far; a program that is read from the cache takes only its reading.

    Attributes:
        seconds: the sum.
        programs: how many were compiled, or read from the cache.
    """

    def __init__(self) -> None:
        self.seconds, self.programs = 0.0, 0

    def add(self, event: str, duration_secs: float, **_: Any) -> None:
        """Adds an event of JAX's, where it is one of compilation."""
        if event.startswith("/jax/core/compile/"):
            self.seconds += duration_secs
            self.programs += event.endswith("backend_compile_duration")


@contextmanager
def compile_time() -> Iterator[CompileTime]:
    """Counts the seconds of compilation inside a `with` block.

    Examples:
        >>> import jax
        >>> from lamu.cli.compile_time import compile_time
        >>> with compile_time() as spent:
        ...     three = jax.jit(lambda x: x + 1)(2)
        >>> spent.seconds > 0, spent.programs
        (True, 1)
    """
    spent = CompileTime()
    listener = spent.add
    monitoring.register_event_duration_secs_listener(listener)
    try:
        yield spent
    finally:
        monitoring.unregister_event_duration_listener(listener)
