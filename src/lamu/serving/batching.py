"""Micro-batching: requests that wait are predicted together, by one compiled call of padded rows."""

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
# A request costs half a millisecond of Python in the loop and a third in a prediction. Two threads share Python's lock,
# and at half of the load that a server sustained each waited for the other: 3.0 ms at the median and 6 to 8 at the 99th
# percentile, where predictions in the loop had 0.8 and 2.4 to 3.8, and the server sustained a fifth more.
_AT_ONCE = 0.005  # seconds that a batch may take in the loop: as long as another thread may hold Python's lock
_PROGRAMS = 1024  # whose times are remembered


@dataclass(frozen=True)
class Question:
    """The rows of one request as arrays, and the level of its intervals."""

    rows: Any
    count: int
    level: float


@dataclass(frozen=True)
class _Waiting:
    question: Question
    answer: asyncio.Future[Any]


class Batcher:
    """A queue of requests: all waiting ones are predicted in one batch."""

    # Nothing waits for a batch to fill: an unloaded server answers at once, and batches grow with the load. The queue
    # is bounded by who asks (`lamu.serving.app`), which counts a request from before its body is read. A batch is
    # predicted in the loop where its programs were quick the last time, else in a thread, with the loop free.

    def __init__(
        self,
        predict: Callable[[Sequence[Question]], list[Any]],
        programs: Callable[[Sequence[Question]], Hashable],
        most_rows: int,
        metrics: Metrics,
    ) -> None:
        self._predict, self._programs, self._most, self._metrics = predict, programs, most_rows, metrics
        self._seconds: dict[Hashable, float] = {}  # that the programs took
        self._queue: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "lamu-predict")

    async def ask(self, question: Question) -> Any:
        """Returns the predictions of a request."""
        waiting = _Waiting(question, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._arrived.set()
        return await waiting.answer  # cancelled by a time-out, after which it is left out of its batch

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
                await asyncio.sleep(0)  # others first
                answers = self.predicted(questions)
            else:
                answers = await asyncio.get_running_loop().run_in_executor(self._thread, self.predicted, questions)
        except Exception as error:
            if len(batch) > 1:  # one request must not be another one's error
                for waiting in batch:
                    await self._answer([waiting])
                return
            answers = [_refused(error)]
        for waiting, answer in zip(batch, answers, strict=True):
            with contextlib.suppress(asyncio.InvalidStateError):  # it was given up in the meantime
                refused = isinstance(answer, Refused)
                waiting.answer.set_exception(answer) if refused else waiting.answer.set_result(answer)


def _refused(error: Exception) -> Refused:
    """Returns the answer to rows that are not predicted: a refusal's sentence, or that the fault is the server's."""
    if isinstance(error, ValueError):
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        return Refused(422, f"these rows cannot be predicted: {reason}")
    _LOG.error("a prediction failed", exc_info=error)
    return Refused(500, "the server failed to predict these rows; its log says why")
