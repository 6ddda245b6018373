"""A progress bar on standard error, and Ctrl-C in a process, also where Python would drop it."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interruption", "Progress", "heard"]

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


_HANDLER = _Handler()


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """A context in which no Ctrl-C is lost: it raises `KeyboardInterrupt`, at once or a moment after where it may."""
    # A handler that somebody else has set stays, and other threads than the main one hear no signals.
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _HANDLER.hear)
    try:
        yield
    finally:
        _HANDLER.forget()
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
        if here and before in (signal.default_int_handler, _HANDLER.hear):
            self._before = before
            signal.signal(signal.SIGINT, self._hear)
        return self

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        _HANDLER.hear(number, frame)

    def heed(self) -> None:
        """Raises the interrupt that has come and was not raised, or was dropped."""
        if self.came:
            raise KeyboardInterrupt

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._before is not None:
            _HANDLER.forget()
            signal.signal(signal.SIGINT, self._before)
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.came = True
            return True
        return False


class Progress:
    """Shows how far a run is, if asked or if standard error is a terminal."""

    def __init__(self, total: int | None, show: bool | None, what: str = "fitting", unit: str = "steps") -> None:
        self._total, self._what, self._unit = total, what, unit
        self._show = sys.stderr.isatty() if show is None else show
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        """Starts the bar."""
        if self._show:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn(self._what),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(self._unit + "  {task.fields[loss]}{task.fields[speed]}"),
                TimeRemainingColumn(),
            )
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("fit", total=self._total, loss="", speed="")
        return self

    def update(self, done: int, loss: float | None = None) -> None:
        """Moves the bar to `done` steps, of the loss that is given."""
        if self._bar is not None:
            speed = self._bar.tasks[0].speed
            words = f"{speed:,.0f} {self._unit}/s" if speed else ""
            shown = "" if loss is None else f"loss {loss:.4f}  "
            self._bar.update(self._task, completed=done, loss=shown, speed=words)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
