"""The seconds of a command, divided completely among named parts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jax import monitoring

__all__ = ["CompileTime", "Stopwatch", "compile_time"]


class CompileTime:
    """Seconds of tracing and compilation so far; for a program from the cache, only those of reading it."""

    # `programs`: the number compiled or read from the cache.

    def __init__(self) -> None:
        self.programs = 0
        self._spans: list[tuple[float, float]] = []  # disjoint, in order
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """Seconds in which at least one thread traced or compiled."""
        return sum((end - start for start, end in self._spans), 0.0)

    def add(self, event: str, duration_secs: float, **_: object) -> None:
        """Adds an event of JAX, if it is one of compilation."""
        if not event.startswith("/jax/core/compile/"):
            return
        with self._lock:
            end = time.perf_counter()  # events are reported when they end
            start = end - duration_secs
            while self._spans and self._spans[-1][1] > start:
                start = min(start, self._spans.pop()[0])
            self._spans.append((start, end))
            self.programs += event.endswith("backend_compile_duration")


@contextmanager
def compile_time() -> Iterator[CompileTime]:
    """Counts the seconds of compilation inside a `with` block."""
    spent = CompileTime()
    listener = spent.add
    monitoring.register_event_duration_secs_listener(listener)
    try:
        yield spent
    finally:
        monitoring.unregister_event_duration_listener(listener)


class Stopwatch:
    """Divides the time since its start among parts."""

    def __init__(self, before: float = 0.0, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._last = clock() - before
        self.parts: dict[str, float] = {}

    def lap(self, part: str) -> None:
        """Adds the time since the last call to a part."""
        now = self._clock()
        self.parts[part] = self.parts.get(part, 0.0) + now - self._last
        self._last = now

    @property
    def total(self) -> float:
        """The seconds of all parts."""
        return sum(self.parts.values())
