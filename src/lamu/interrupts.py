"""Ctrl-C in a process, also where Python would drop it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["HANDLER", "heard"]

# JAX's callback at garbage collections, and finalisers: Python prints what is raised in them, and drops it.
_DROPPED_IN = ("_xla_gc_callback", "__del__")
_AGAIN = 0.05  # seconds, after which they are over


class _Handler:
    """Raises `KeyboardInterrupt`, or, where Python would drop that, hears the signal again a moment later."""

    def __init__(self) -> None:
        self._again: threading.Timer | None = None

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Takes a signal, as Python calls a handler."""
        self.forget()
        if not _is_dropped(frame):
            raise KeyboardInterrupt
        self._again = threading.Timer(_AGAIN, signal.raise_signal, (signal.SIGINT,))
        self._again.daemon = True
        self._again.start()

    def forget(self) -> None:
        """Hears no signal again that was heard already."""
        if self._again is not None:
            self._again.cancel()
        self._again = None


def _is_dropped(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name in _DROPPED_IN:
            return True
        frame = frame.f_back
    return False


HANDLER = _Handler()


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """A context in which no Ctrl-C is lost: it raises `KeyboardInterrupt`, at once or a moment after where it may."""
    # A handler that somebody else has set stays, and other threads than the main one hear no signals.
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, HANDLER.hear)
    try:
        yield
    finally:
        HANDLER.forget()
        signal.signal(signal.SIGINT, signal.default_int_handler)
