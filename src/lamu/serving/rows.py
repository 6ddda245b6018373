"""Checks of a request's rows against the fitted inputs, and responses as JSON."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamu.data import Encoding
from lamu.data.arrays import Arrays
from lamu.data.imputation import Completions
from lamu.data.table import match, with_beside
from lamu.data.wording import DataError, listed, nearest, plural, quoted
from lamu.posterior import Posterior
from lamu.predictives import InputMixture, Predictive
from lamu.serving.batching import Question, Refused
from lamu.typing import Document

__all__ = ["ArrayRows", "TableRows", "size_of"]

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
        return {"type": "object", "properties": columns, "required": list(columns), "additionalProperties": False}

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
    foreign = [name for name in row if name not in columns]
    if foreign:
        raise Refused(422, f"row {number} has the unknown column {quoted(foreign[0])}; {nearest(foreign[0], columns)}")
    lacking = [name for name in columns if name not in row]
    if lacking:
        raise Refused(422, f"row {number} lacks the {plural('column', lacking)} {listed(lacking)}")
    for name, value in row.items():
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
