"""A progress bar on standard error, and Ctrl-C in a process, also where Python would drop it."""

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

__all__ = ["Interruption", "Progress", "SeveralRuns", "heard"]

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


Bar = TypeVar("Bar", bound="Progress")
_AROUND: ContextVar[Progress | None] = ContextVar("around", default=None)


class Progress:
    """Shows how far a run is and how long it goes on, if asked or if standard error is a terminal."""

    # Inside of another one it has no bar: it tells the one around how far it is.
    #
    # The time left is that of the work done since the first news, which comes after the first program was compiled.
    # Work that is passed over (a run that needs not be made) tells nothing of it.

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
        """The share that is done; None where nobody knows the whole."""
        return self.done / self._total if self._total else None

    @property
    def left(self) -> float | None:
        """The seconds that are left at the speed so far; None where there are no two times to compare."""
        if self._first is None or not self._total or self._worked <= self._first[1]:
            return None
        since, before = self._first
        return (self._total - self.done) * (monotonic() - since) / (self._worked - before)

    def update(self, done: int | float, loss: float | None = None) -> None:
        """Moves the bar to `done` steps, of the loss that is given."""
        done = max(done if self._total is None else min(done, self._total), self.done)
        self._worked += done - self.done
        self._first = self._first or (monotonic(), self._worked)
        self._reach(done, loss)

    def part(self, fraction: int | float, loss: float | None = None) -> None:
        """Hears how far a run is that goes on inside; one run has no others."""

    def part_ended(self) -> None:
        """Hears that a run has ended that went on inside."""

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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Takes the bar away; a run that ends before its last step has reached its end."""
        if self._token is not None:
            _AROUND.reset(self._token)
        if kind is None and self._end:
            self._reach(self._end)
        if self._around is not None:
            self._around.part_ended()
        if self._bar is not None:
            self._bar.stop()


class SeveralRuns(Progress):
    """Shows how far several runs are, by what each of them tells when it goes on inside."""

    # A run counts one, and the last one `last` where it is longer; `at_most` where fewer may do. `done`: the runs, of
    # all `of` them, that other processes have made in so many seconds.

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
        """Moves on by a part of a run."""
        self.update(self._before + self._weight * fraction, loss)

    def part_ended(self) -> None:
        """Begins the next run."""
        self._before = self.done

    def begin_last(self) -> None:
        """Passes over the runs that are not needed: what follows is the last one."""
        self.pass_over(self._end - self._last)
        self._weight = self._last

    def pass_over(self, until: int | float) -> None:
        """Passes over runs that are not made, up to a number of them."""
        if until > self.done:
            self._reach(until)
        self._before = self.done
