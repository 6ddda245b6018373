"""Progress bar on standard error, and reliable handling of Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import timedelta
from time import monotonic
from types import FrameType, TracebackType
from typing import TypeVar

__all__ = ["Interruption", "Progress", "SeveralRuns", "interruptible"]

# In JAX's callback at garbage collections, and in finalisers, Python prints raised exceptions and drops them.
_DROPPED_IN = ("_xla_gc_callback", "__del__")
_AGAIN = 0.05  # seconds, after which these are over


class _Handler:
    """Signal handler that raises `KeyboardInterrupt`, a moment later where Python would drop it."""

    def __init__(self) -> None:
        self._again: threading.Timer | None = None

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal."""
        self.clear()
        if not _is_dropped(frame):
            raise KeyboardInterrupt
        self._again = threading.Timer(_AGAIN, signal.raise_signal, (signal.SIGINT,))
        self._again.daemon = True
        self._again.start()

    def clear(self) -> None:
        """Cancels pending signals."""
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
def interruptible() -> Iterator[None]:
    """Context manager in which no Ctrl-C is lost: it raises `KeyboardInterrupt`, at once or a moment later."""
    # A handler set by others stays, and only the main thread receives signals.
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _HANDLER.on_signal)
    try:
        yield
    finally:
        _HANDLER.clear()
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Interruption:
    """Context manager that ends without an error at a keyboard interrupt."""

    # Inside of it, where Ctrl-C raises `KeyboardInterrupt` in this thread, it handles the signal itself: one that comes
    # where Python would drop the error is raised at the next `raise_pending`, or a moment later where that comes first.
    #
    # `came`: whether there was an interrupt.

    def __init__(self) -> None:
        self.came = False
        self._before = None

    def __enter__(self) -> Interruption:
        # Only the main thread receives signals, and a handler set by others stays.
        here = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGINT)
        if here and before in (signal.default_int_handler, _HANDLER.on_signal):
            self._before = before
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        _HANDLER.on_signal(number, frame)

    def raise_pending(self) -> None:
        """Raises a pending or dropped interrupt."""
        if self.came:
            raise KeyboardInterrupt

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._before is not None:
            _HANDLER.clear()
            signal.signal(signal.SIGINT, self._before)
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.came = True
            return True
        return False


Bar = TypeVar("Bar", bound="Progress")
_AROUND: ContextVar[Progress | None] = ContextVar("around", default=None)


class Progress:
    """Shows the progress and remaining time of a run, if requested or if standard error is a terminal."""

    # Inside of another one it has no bar, and reports its progress to the outer one.
    #
    # The remaining time is estimated from the work since the first update, after the compilation of the first program.
    # Skipped work does not enter the estimate.

    def __init__(
        self,
        total: int | float | None,
        show: bool | None,
        what: str = "fitting",
        unit: str = "steps",
        at_most: bool = False,
    ) -> None:
        self.done = 0.0
        self._total, self._what, self._unit, self._at_most = total, what, unit, at_most
        self._show = sys.stderr.isatty() if show is None else show
        self._end, self._worked, self._first = total, 0.0, None
        self._around, self._token, self._bar, self._task = None, None, None, None

    def __enter__(self: Bar) -> Bar:
        """Starts the bar."""
        self._around = _AROUND.get()
        self._token = _AROUND.set(self)
        if self._show and self._around is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
            from rich.progress import Progress as Bars

            columns = (
                TextColumn(self._what),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(self._unit + "  {task.fields[loss]}{task.fields[speed]}{task.fields[left]}"),
            )
            self._bar = Bars(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("fit", total=self._total, loss="", speed="", left="")
        return self

    @property
    def fraction(self) -> int | float | None:
        """The share that is done; None where the total is not known."""
        return self.done / self._total if self._total else None

    @property
    def left(self) -> float | None:
        """The remaining seconds at the current speed; None before two updates."""
        if self._first is None or not self._total or self._worked <= self._first[1]:
            return None
        since, before = self._first
        return (self._total - self.done) * (monotonic() - since) / (self._worked - before)

    def update(self, done: int | float, loss: float | None = None) -> None:
        """Moves the bar to `done` steps and shows the loss."""
        done = max(done if self._total is None else min(done, self._total), self.done)
        self._worked += done - self.done
        self._first = self._first or (monotonic(), self._worked)
        self._reach(done, loss)

    def part(self, fraction: int | float, loss: float | None = None) -> None:
        """Receives the progress of an inner run; a single run has none."""

    def part_ended(self) -> None:
        """Receives the end of an inner run."""

    def _reach(self, done: int | float, loss: float | None = None) -> None:
        self.done = done
        if self._around is None:
            self._draw(loss)
        elif self._total:
            self._around.part(done / self._total, loss)

    def _draw(self, loss: float | None) -> None:
        if self._bar is not None and self._task is not None:
            speed, left = self._bar.tasks[0].speed, self.left
            words = f"{speed:,.{0 if speed >= 1 else 2}f} {self._unit}/s" if speed else ""
            shown = "" if loss is None else f"loss {loss:.4f}  "
            most = "at most " if self._at_most else ""
            time_left = "" if left is None else f"  {most}{timedelta(seconds=round(left))} left"
            self._bar.update(self._task, completed=self.done, loss=shown, speed=words, left=time_left)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Removes the bar; a run that ends before its last step is complete."""
        if self._token is not None:
            _AROUND.reset(self._token)
        if kind is None and self._end:
            self._reach(self._end)
        if self._around is not None:
            self._around.part_ended()
        if self._bar is not None:
            self._bar.stop()


class SeveralRuns(Progress):
    """Shows the progress of several runs, from the reports of inner runs."""

    # A run counts one, and a longer last one `last`; `at_most` where fewer runs may suffice. `done`: the number of the
    # `of` runs that other processes have finished, and their seconds.

    def __init__(
        self,
        runs: int,
        show: bool | None,
        what: str,
        *,
        last: int | float = 1.0,
        at_most: bool = False,
        done: int = 0,
        of: int | None = None,
        seconds: int | float = 0.0,
    ) -> None:
        super().__init__(runs - 1 + last if of is None else of, show, what, "runs", at_most)
        self.done = self._before = self._worked = float(done)
        self._end, self._last, self._weight = done + runs - 1 + last, last, 1.0
        if done:
            self._first = (monotonic() - seconds, 0.0)

    def part(self, fraction: int | float, loss: float | None = None) -> None:
        self.update(self._before + self._weight * fraction, loss)

    def part_ended(self) -> None:
        """Begins the next run."""
        self._before = self.done

    def begin_last(self) -> None:
        """Skips the runs that are not needed before the last one."""
        self.pass_over(self._end - self._last)
        self._weight = self._last

    def pass_over(self, until: int | float) -> None:
        """Skips runs, up to a number of them."""
        if until > self.done:
            self._reach(until)
        self._before = self.done
