"""Micro-batching: waiting requests are predicted together by one compiled call on padded rows."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from lamu.serving.limits import Refused
from lamu.serving.metrics import Metrics

__all__ = ["Batcher", "Question"]

_LOG = logging.getLogger("lamu.serving")
# A request takes half a millisecond of Python in the event loop and a third in a prediction. Two threads share Python's
# lock. At half of the maximal load they waited for each other: the latency was 3.0 ms at the median and 6 to 8 at the
# 99th percentile, but 0.8 and 2.4 to 3.8 with predictions in the loop, where the maximal load was a fifth higher.
_AT_ONCE = 0.005  # the longest batch in the event loop in seconds: Python's switch interval
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
    # is predicted in the event loop if its programs were fast the last time, else in a thread.

    def __init__(
        self,
        predict: Callable[[Sequence[Question]], list[Any]],
        programs: Callable[[Sequence[Question]], Hashable],
        most_rows: int,
        metrics: Metrics,
    ) -> None:
        self._predict, self._programs, self._most, self._metrics = predict, programs, most_rows, metrics
        self._seconds: dict[Hashable, float] = {}  # the last duration of each program
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
        self._seconds[programs] = time.perf_counter() - begun
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
                await asyncio.sleep(0)  # let other tasks run first
                answers = self.predicted(questions)
            else:
                answers = await asyncio.get_running_loop().run_in_executor(self._thread, self.predicted, questions)
        except Exception as error:
            if len(batch) > 1:  # predict them one by one, so that an error concerns its request only
                for waiting in batch:
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
