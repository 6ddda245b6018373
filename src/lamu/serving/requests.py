"""Requests: waiting ones share one compiled call of padded rows; their rows are checked, and answered as JSON."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lamu.data import Encoding
from lamu.data.arrays import Arrays
from lamu.data.imputation import Completions
from lamu.data.table import match, with_beside
from lamu.data.wording import DataError, listed, plural, quoted
from lamu.posterior import Posterior
from lamu.predictives import InputMixture, Predictive
from lamu.typing import Document

__all__ = ["ArrayRows", "Batcher", "Metrics", "Question", "TableRows", "size_of"]


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


_TRUTH = {"True", "False"}


@dataclass(frozen=True)
class ArrayRows:
    """The rows for a posterior of `Posterior.save`: arrays of numbers."""

    posterior: Posterior
    shape: tuple[int, ...]  # of one row
    samples: int = 32  # of a prediction, where it needs draws

    @property
    def schema(self) -> Document:
        """The JSON schema of one row."""
        schema: Document = {"type": "number"}
        for size in reversed(self.shape):
            schema = {"type": "array", "items": schema, "minItems": size, "maxItems": size}
        return schema

    def example(self, count: int) -> list[object]:
        """Returns example rows."""
        return np.zeros((count, *self.shape)).tolist()

    def read(self, rows: list[Any]) -> Any:
        """Returns the rows of a request as arrays; raises a `Refused` with the reason for invalid ones."""
        for number, row in enumerate(rows):
            _require_shape(row, self.shape, number)
        try:
            return np.asarray(self.posterior.model.inputs(np.asarray(rows, float)))
        except (ValueError, OverflowError) as error:
            raise Refused(422, " ".join(str(error).split())) from error

    def programs(self, questions: Sequence[Question]) -> Hashable:
        """Returns a key that is equal for requests which share compiled programs."""
        return size_of(sum(question.count for question in questions))

    def answer(self, questions: Sequence[Question]) -> list[Any]:
        """Returns the predictions of requests, each a list of one document a row."""
        pred = self.posterior.predict(_padded(np.concatenate([question.rows for question in questions])), self.samples)
        labels = [str(index) for index in range(np.shape(pred.probabilities)[-1])] if pred.support.has_classes else []
        return _answers(pred, questions, labels, (0.0, 1.0))


@dataclass(frozen=True)
class TableRows:
    """The rows for a posterior of `lamu fit`: objects with named columns."""

    posterior: Posterior
    encoding: Encoding
    samples: int = 32  # of a prediction, where it needs draws

    @property
    def columns(self) -> dict[str, Document]:
        """The columns of a row with the JSON schema of each."""
        made_of_dates = {name for date in self.encoding.dates for name in date.columns}
        schemas = {date.name: {"type": ["string"]} for date in self.encoding.dates}
        written = {reading.name for reading in self.encoding.readings}
        for name, levels in zip(self.encoding.columns, self.encoding.levels, strict=True):
            if name in made_of_dates:
                continue
            kinds = ["string"] if levels else ["number", *(["string"] if name in written else [])]
            kinds += ["boolean"] if levels and set(levels) <= _TRUTH else []
            schemas[name] = {"type": kinds, **({"examples": list(levels[:5])} if levels else {})}
        if self.encoding.imputes:
            for column in schemas.values():
                column["type"].append("null")
        least = {"trials": {"minimum": 0}, "exposure": {"exclusiveMinimum": 0}}
        beside = {column: {"type": ["number"], **least[name]} for name, column in self.encoding.beside if name in least}
        return {**schemas, **beside}

    @property
    def schema(self) -> Document:
        """The JSON schema of one row."""
        columns = self.columns
        return {"type": "object", "properties": columns, "required": list(columns)}

    def example(self, count: int) -> list[object]:
        """Returns example rows without missing values."""
        levels = dict(zip(self.encoding.columns, self.encoding.levels, strict=True))
        dates = {date.name: "2020-01-31" for date in self.encoding.dates}
        value = lambda name: dates.get(name) or (levels[name][0] if levels.get(name) else 1)
        return [{name: value(name) for name in self.columns}] * count

    def read(self, rows: list[Any]) -> Any:
        """Returns the rows of a request as arrays; raises a `Refused` with the reason for invalid ones."""
        import pandas as pd

        columns = self.columns
        for number, row in enumerate(rows):
            _require_columns(row, columns, number)
        frame = pd.DataFrame({name: _column(column, [row[name] for row in rows]) for name, column in columns.items()})
        try:
            table = match(frame, self.encoding)
            completions = table.completions(slice(None))
            x = np.asarray(Arrays.of((completions.x, np.zeros(len(completions.x)))).x)
        except (DataError, ValueError, OverflowError) as error:
            raise Refused(422, " ".join(str(error).split()).replace("the frame", "the request")) from error
        return Completions(x, completions.row, completions.spread), table.beside

    def programs(self, questions: Sequence[Question]) -> Hashable:
        """Returns a key that is equal for requests which share compiled programs."""
        # A row with a missing value or a new word is expanded to several rows.
        count, rows = (sum(part) for part in zip(*((q.count, q.rows[0].rows) for q in questions), strict=True))
        return size_of(count) if rows == count else (count, size_of(rows))

    def answer(self, questions: Sequence[Question]) -> list[Any]:
        """Returns the predictions of requests, each a list of one document a row."""
        parts = [question.rows[0] for question in questions]
        starts = np.cumsum([0, *(part.rows for part in parts)])
        row = np.concatenate([part.row + start for part, start in zip(parts, starts, strict=False)])
        beside = {
            name: _padded(np.concatenate([question.rows[1][name] for question in questions]))
            for name in questions[0].rows[1]
        }

        def predict(x: Any, row: Any) -> Predictive:
            return self.posterior.predict(with_beside(np.asarray(x, parts[0].x.dtype), beside, row), self.samples)

        join = lambda name: np.concatenate([getattr(part, name) for part in parts])
        x, total = join("x"), int(starts[-1])
        more = size_of(total) - total
        x = np.concatenate([x, np.repeat(x[-1:], more, axis=0)])
        row, spread = np.append(row, total + np.arange(more)), np.append(join("spread"), np.zeros(more))
        pred = InputMixture.of(predict, Completions(x, row, spread))
        labels = list(map(str, self.encoding.labels))
        return _answers(pred, questions, labels, self.encoding.origin_and_unit(self.encoding.target))


def size_of(count: int) -> int:
    """Returns the next of 1, 4, 16, 64, ..., so that all programs can be compiled beforehand."""
    size = 1
    while size < count:
        size *= 4
    return size


def _padded(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([rows, np.repeat(rows[-1:], size_of(len(rows)) - len(rows), axis=0)])


def _require_shape(row: Any, shape: tuple[int, ...], number: int) -> None:
    """Raises a `Refused` for a row that is not a nested list of numbers of a shape."""
    if shape:
        if not isinstance(row, list) or len(row) != shape[0]:
            given = f"{len(row)} entries" if isinstance(row, list) else _shown(row)
            raise Refused(422, f"row {number} has {given} where a list of {shape[0]} is expected")
        for part in row:
            _require_shape(part, shape[1:], number)
    elif type(row) not in (int, float):
        raise Refused(422, f"row {number} has {_shown(row)} where a number is expected")


def _require_columns(row: Any, columns: Mapping[str, Document], number: int) -> None:
    """Raises a `Refused` unless a row has the columns of the training rows with values of their types."""
    if not isinstance(row, dict):
        raise Refused(422, f"row {number} is {_shown(row)}; give an object of columns by name")
    lacking = [name for name in columns if name not in row]
    if lacking:
        foreign = [name for name in row if name not in columns]  # which are ignored, as in `lamu predict`
        instead = f", and has {listed(foreign)}" if foreign else ""
        raise Refused(422, f"row {number} lacks the {plural('column', lacking)} {listed(lacking)}{instead}")
    for name in columns:
        value = row[name]
        kinds = columns[name]["type"]
        if _kind(value) not in kinds:
            takes = " or ".join(kinds)
            raise Refused(422, f"row {number} has {_shown(value)} in the column {name!r}, which takes {takes}")
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise Refused(422, f"row {number} has half a character in the column {name!r}") from None


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def _shown(value: object) -> str:
    if _kind(value) in ("array", "object"):
        return f"an {_kind(value)}"
    return "null" if value is None else f"the {_kind(value)} {quoted(value)}"


def _column(schema: Document, values: list[Any]) -> Any:
    """Returns a column as in a frame: numbers, or texts and None."""
    texts = any(isinstance(value, str) for value in values)
    if texts or "number" not in schema["type"]:
        return np.array([None if value is None else str(value) for value in values], object)
    try:
        return np.array([math.nan if value is None else float(value) for value in values])
    except OverflowError:
        raise Refused(422, "a number is beyond 1e308, the largest that is taken") from None


def _answers(
    pred: Predictive, questions: Sequence[Question], labels: list[str], units: tuple[float, float]
) -> list[list[Document]]:
    """Returns each request's answer: one document a row."""
    # As lists for all requests at once: NumPy's calls for each request were most of a batch of sixteen.
    origin, unit = units
    uncertainty = {name: np.asarray(getattr(pred, name), float) for name in ("total", "aleatoric", "epistemic")}
    ends: dict[float, dict[str, list[Any]]] = {}
    if pred.support.has_classes:
        probabilities = np.asarray(pred.probabilities, float)
        best, named = probabilities.argmax(axis=-1), _plain(probabilities)
        first = {
            "prediction": best.tolist() if best.ndim > 1 else [labels[k] for k in best.tolist()],
            "probabilities": named if best.ndim > 1 else [dict(zip(labels, row, strict=True)) for row in named],
        }
    else:
        uncertainty = {name: unit**2 * values for name, values in uncertainty.items()}
        first = {"mean": _plain(origin + unit * np.asarray(pred.mean, float))}
        if pred.support.ordered:
            for level in {question.level for question in questions}:
                interval = (_plain(origin + unit * np.asarray(end, float)) for end in pred.interval(level))
                ends[level] = dict(zip(("lower", "upper"), interval, strict=True))
    last, answers, start = {name: _plain(values) for name, values in uncertainty.items()}, [], 0
    for question in questions:
        columns, end = first | ends.get(question.level, {}) | last, start + question.count
        rows = zip(*(values[start:end] for values in columns.values()), strict=True)
        answers.append([dict(zip(columns, row, strict=True)) for row in rows])
        start = end
    return answers


def _plain(values: np.ndarray) -> list[Any]:
    """Returns numbers for JSON, with null for infinity."""
    if np.isfinite(values).all():
        return values.tolist()
    plain = values.astype(object)
    plain[~np.isfinite(values)] = None
    return plain.tolist()
