"""Ctrl-C during a run, also where Python would drop it."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

from lamu.interrupts import HANDLER

__all__ = ["Interruption"]


class Interruption:
    """A context that an interrupt from the keyboard leaves quietly."""

    # While it lasts, and where Ctrl-C raises `KeyboardInterrupt` in this thread, it hears the signal itself: one that
    # comes where Python would drop the error is raised at the next `heed`, or a moment after where that comes first.
    #
    # `came`: whether there was an interrupt.

    def __init__(self) -> None:
        self.came = False
        self._before = None

    def __enter__(self) -> Interruption:
        # Signals reach the main thread alone, and a handler that somebody else has set is theirs.
        here = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGINT)
        if here and before in (signal.default_int_handler, HANDLER.hear):
            self._before = before
            signal.signal(signal.SIGINT, self._hear)
        return self

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        HANDLER.hear(number, frame)

    def heed(self) -> None:
        """Raises the interrupt that has come and was not raised, or was dropped."""
        if self.came:
            raise KeyboardInterrupt

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._before is not None:
            HANDLER.forget()
            signal.signal(signal.SIGINT, self._before)
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.came = True
            return True
        return False
