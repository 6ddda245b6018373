"""A progress bar on standard error, with loss, speed and time left; silent where nobody looks."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

from lamu.interrupts import HANDLER

__all__ = ["Interruption", "Progress"]


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


class Progress:
    """Shows how far a run is, if asked or if standard error is a terminal."""

    def __init__(self, total: int | None, show: bool | None, what: str = "fitting") -> None:
        self._total, self._what = total, what
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
                TextColumn("steps  {task.fields[loss]}{task.fields[speed]}"),
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
            words = f"{speed:,.0f} steps/s" if speed else ""
            shown = "" if loss is None else f"loss {loss:.4f}  "
            self._bar.update(self._task, completed=done, loss=shown, speed=words)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
