"""Ctrl-C during a run, also where Python would drop it."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

__all__ = ["Interruption"]

# JAX's callback at garbage collections: Python prints what is raised in it, and drops it.
_DROPPED_IN = "_xla_gc_callback"


class Interruption:
    """A context that an interrupt from the keyboard leaves quietly.

    While it lasts, and where Ctrl-C raises `KeyboardInterrupt` in this thread, it hears the signal itself: one that
    comes where Python would drop the error is raised at the next `heed`.

    Attributes:
        came: whether there was an interrupt.

    Examples:
        >>> from lamu.running.interruption import Interruption
        >>> with Interruption() as interruption:
        ...     raise KeyboardInterrupt
        >>> interruption.came
        True
    """

    def __init__(self) -> None:
        self.came = False
        self._hears = False

    def __enter__(self) -> Interruption:
        # Signals reach the main thread alone, and a handler that somebody else has set is theirs.
        here = threading.current_thread() is threading.main_thread()
        self._hears = here and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._hears:
            signal.signal(signal.SIGINT, self._hear)
        return self

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        if frame is None or frame.f_code.co_name != _DROPPED_IN:
            raise KeyboardInterrupt

    def heed(self) -> None:
        """Raises the interrupt that has come and was not raised, or was dropped.

        Raises:
            KeyboardInterrupt: if there was an interrupt.
        """
        if self.came:
            raise KeyboardInterrupt

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._hears:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.came = True
            return True
        return False
