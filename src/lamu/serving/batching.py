"""Micro-batching: waiting requests share one compiled call of padded rows; limits, refusals and counts."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["Batcher", "Metrics", "Question"]

_UNREAD = 65_536  # bytes, the limit of h11


@dataclass(frozen=True)
class Limits:
    """The limits of a server."""

    body: int = 1_000_000  # bytes of a request
    rows: int = 1024  # of a request, and of a batch
    waiting: int = 64  # the largest number of open requests; further ones get status 503
    seconds: float = 10.0  # the time-out of a request, including its body and waiting

    def __post_init__(self) -> None:
        for limit in fields(self):
            if not getattr(self, limit.name) > 0:
                raise ValueError(f"the limit of {limit.name} is {getattr(self, limit.name)}; give a positive number")


class HttpProtocol(HttpToolsProtocol):
    """The HTTP protocol of httptools with a limit on the size of heads and trailers, which its parser lacks."""

    # Processor time of the server a request: with httptools .55 to .66 ms alone and .30 in batches of 16, with h11 .73
    # to .86 and .41 to .45 (November 2026).
    unread = 0  # bytes since the last complete head or part of a body

    def data_received(self, data: bytes) -> None:
        """Reads bytes, and closes the connection after too many without a complete head or body part."""
        self.unread += len(data)
        super().data_received(data)
        if self.unread > _UNREAD and not self.transport.is_closing():
            self.send_400_response(f"The head of the request has more than {_UNREAD:,} bytes.")

    def on_headers_complete(self) -> None:
        """Handles the head of a request."""
        self.unread = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Handles a part of a body."""
        self.unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Handles the end of a request."""
        self.unread = 0
        super().on_message_complete()


class Refused(Exception):
    """The error for a refused request, with a status and a message."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


_LOG = logging.getLogger("lamu.serving")
# A request takes half a millisecond of Python in the event loop and a third in a prediction. Two threads share Python's
# lock. At half of the maximal load they waited for each other: the latency was 3.0 ms at the median and 6 to 8 at the
# 99th percentile, but 0.8 and 2.4 to 3.8 with predictions in the loop, where the maximal load was a fifth higher.
_AT_ONCE = 0.005  # the longest batch in the event loop in seconds: Python's switch interval
# A request that arrived during a batch is read in the first turn of the event loop, and in the queue after the second.
# Batches of what the queue held at once had one request each: at half of the maximal load, 0.8 ms of prediction and 0.5
# of reading for each left no idle time.
_TURNS = 3
_PROGRAMS = 1024  # the number of programs with recorded times


@dataclass(frozen=True)
class Question:
    """The rows of a request as arrays, and the level of its intervals."""

    rows: Any
    count: int
    level: float


@dataclass(frozen=True)
class _Waiting:
    question: Question
    answer: asyncio.Future[Any]


class Batcher:
    """A queue of requests: all waiting requests are predicted in one batch."""

    # Requests do not wait for a batch to fill: without load they are answered at once, and batches grow with the load.
    # The queue is bounded by the caller (`lamu.serving.app`), which counts a request before its body is read. A batch
    # is predicted in the event loop if its programs have been fast before, else in a thread.

    def __init__(
        self,
        predict: Callable[[Sequence[Question]], list[Any]],
        programs: Callable[[Sequence[Question]], Hashable],
        most_rows: int,
        metrics: Metrics,
    ) -> None:
        self._predict, self._programs, self._most, self._metrics = predict, programs, most_rows, metrics
        self._seconds: dict[Hashable, float] = {}  # the shortest duration of each program
        self._queue: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "lamu-predict")

    async def ask(self, question: Question) -> Any:
        """Returns the predictions of a request."""
        waiting = _Waiting(question, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._arrived.set()
        return await waiting.answer  # a time-out cancels it and removes it from its batch

    async def run(self) -> None:
        """Predicts until it is cancelled."""
        try:
            while True:
                await self._arrived.wait()
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
                batch = self._next()
                if batch:
                    await self._answer(batch)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def predicted(self, questions: Sequence[Question]) -> list[Any]:
        """Predicts a batch, and records its duration."""
        begun, programs = time.perf_counter(), self._programs(questions)
        answers = self._predict(questions)
        if len(self._seconds) >= _PROGRAMS:
            self._seconds.clear()
        # The shortest: by the last one, a single pause of the machine would send all later batches to the thread, where
        # each waits for Python's lock and so is measured as slow again.
        self._seconds[programs] = min(time.perf_counter() - begun, self._seconds.get(programs, math.inf))
        return answers

    def _next(self) -> list[_Waiting]:
        batch, rows = [], 0
        while self._queue and (not batch or rows + self._queue[0].question.count <= self._most):
            waiting = self._queue.popleft()
            if not waiting.answer.done():
                batch.append(waiting)
                rows += waiting.question.count
        if not self._queue:
            self._arrived.clear()
        return batch

    async def _answer(self, batch: list[_Waiting]) -> None:
        questions = [waiting.question for waiting in batch]
        self._metrics.predicted(sum(question.count for question in questions))
        try:
            if self._seconds.get(self._programs(questions), math.inf) <= _AT_ONCE:
                answers = self.predicted(questions)
            else:
                answers = await asyncio.get_running_loop().run_in_executor(self._thread, self.predicted, questions)
        except Exception as error:
            if len(batch) > 1:  # predict them one by one, so that an error concerns its request only
                for waiting in batch:
                    await asyncio.sleep(0)  # let other tasks run first
                    await self._answer([waiting])
                return
            answers = [_refused(error)]
        for waiting, answer in zip(batch, answers, strict=True):
            with contextlib.suppress(asyncio.InvalidStateError):  # it was cancelled in the meantime
                refused = isinstance(answer, Refused)
                waiting.answer.set_exception(answer) if refused else waiting.answer.set_result(answer)


def _refused(error: Exception) -> Refused:
    """Returns the answer to rows without a prediction: the refusal's message, or a server error."""
    if isinstance(error, ValueError):
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        return Refused(422, f"these rows cannot be predicted: {reason}")
    _LOG.error("a prediction failed", exc_info=error)
    return Refused(500, "the server failed to predict these rows; its log says why")


_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds


class Metrics:
    """The metrics of a server; only the event loop accesses them."""

    def __init__(self) -> None:
        self.requests: collections.Counter[int] = collections.Counter()  # number of POST /predict by status
        self.buckets = [0] * (len(_BOUNDS) + 1)
        self.seconds = 0.0
        self.rows = self.batches = self.waiting = 0

    def answered(self, status: int, seconds: float) -> None:
        """Counts an answer."""
        self.requests[status] += 1
        self.seconds += seconds
        self.buckets[sum(seconds > bound for bound in _BOUNDS)] += 1

    def predicted(self, rows: int) -> None:
        """Counts a batch."""
        self.batches += 1
        self.rows += rows

    def text(self) -> str:
        """Returns the response of `/metrics`."""
        lines = ["# HELP lamu_requests_total Answers to POST /predict.", "# TYPE lamu_requests_total counter"]
        lines += [f'lamu_requests_total{{status="{status}"}} {n}' for status, n in sorted(self.requests.items())]
        name, below = "lamu_request_seconds", 0
        lines += [f"# HELP {name} Time from a request's first byte to its answer.", f"# TYPE {name} histogram"]
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), self.buckets, strict=True):
            below += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {below}')
        lines += [f"{name}_sum {self.seconds:.6f}", f"{name}_count {below}"]
        for name, kind, about, value in (
            ("lamu_rows_total", "counter", "Rows that were predicted.", self.rows),
            ("lamu_batches_total", "counter", "Compiled calls, each of the requests that waited.", self.batches),
            ("lamu_waiting", "gauge", "Requests that are read, wait or are predicted.", self.waiting),
        ):
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", f"{name} {value}"]
        return "\n".join(lines) + "\n"
