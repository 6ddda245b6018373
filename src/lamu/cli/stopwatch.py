"""The seconds of a command, of which every one belongs to a named part."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Stopwatch"]


class Stopwatch:
    """Divides the time since it began among parts."""

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
