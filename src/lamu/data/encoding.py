"""Encoding of a table: columns as numbers, and predictions with their original names and units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeAlias

import numpy as np

from lamu.data.columns import DateColumn
from lamu.data.imputation import JointOfColumns, as_lists
from lamu.data.reading import Reading
from lamu.data.wording import DataError, listed, quoted
from lamu.record import record, static
from lamu.typing import Document, Targets

__all__ = ["Encoding", "Label"]

Label: TypeAlias = str | int | float | bool  # of a class, as in the file
TASKS = ("regression", "binary", "classes")
_TRUTH = ("False", "false", "FALSE", "0", "0.0"), ("True", "true", "TRUE", "1", "1.0")
_DESCRIBED = {"dates": "date_columns", "missing": "missing_values"}  # fields that have another name in `describe`


@record
class Encoding:
    """The meaning of x and y, learned from the training rows.

    A word is the position of its level, counted from 1, and 0 if the training rows have no such level. With
    imputation, a missing value is drawn from `joint` given the rest of its row; and x has one further column (1 if
    the value was missing, else 0) for each column with missing values in training, except that of more than 20 words
    missing ones are a level of their own. A word that is not in the training rows is drawn from the known ones.

    Attributes:
        target: the name of the target column.
        task: "regression", "binary" or "classes".
        labels: the original value of each class, in the order of the indices; empty for regression. For a binary target
            the probability is that of the second label.
        columns: the names of the features, as in the file.
        levels: the levels of each feature in the training rows; empty for a feature that is a number.
        fills: the median of each feature, for models that do not average over draws; None for a feature of words. Empty
            without imputation.
        indicators: the features whose missing values have a column of their own.
        units: name, origin and unit of each column, including the target, that float32 cannot hold as it is: x and y
            then have (value − origin) / unit. Empty for all others.
        beside: the auxiliary columns, "trials", "censored", "weight", "exposure" or "groups", each with its column.
        joint: the distribution from which missing values are drawn; None without imputation.
        dates: the columns of dates, and how each becomes the numbers that `columns` names.
        readings: the notation of columns of numbers: unit, decimal sign, marks of missing values.
        missing: the texts and numbers that were declared to be missing values; None if none were.
        ranges: the least and the largest value of each column of numbers in the training rows.
        one_hot: the groups of columns of zeros and ones, or truth values, of which every training row has exactly one.

    Raises:
        ValueError: if levels or fills are not one for each feature, or an indicator is not a feature.

    Examples:
        >>> from lamu.data import Encoding
        >>> encoding = Encoding("species", "binary", ("cat", "dog"), ("weight", "coat"), ((), ("long", "short")))
        >>> encoding.encode(["dog", "cat"]).tolist(), encoding.decode([1, 1]).tolist()
        ([1, 0], ['dog', 'dog'])
        >>> encoding.cardinalities
        (0, 2)
    """

    target: str = static()
    task: str = static()
    labels: tuple[Label, ...] = static()
    columns: tuple[str, ...] = static()
    levels: tuple[tuple[str, ...], ...] = static(default=())
    fills: tuple[float | None, ...] = static(default=())
    indicators: tuple[str, ...] = static(default=())
    units: tuple[tuple[str, float, float], ...] = static(default=())
    beside: tuple[tuple[str, str], ...] = static(default=())
    joint: JointOfColumns | None = static(default=None)
    dates: tuple[DateColumn, ...] = static(default=())
    readings: tuple[Reading, ...] = static(default=())
    missing: tuple[str, ...] | None = static(default=None)
    ranges: tuple[tuple[str, float, float], ...] = static(default=())
    one_hot: tuple[tuple[str, ...], ...] = static(default=())

    def __post_init__(self) -> None:
        if not self.levels:
            object.__setattr__(self, "levels", ((),) * len(self.columns))
        for name, values in (("levels", self.levels), ("fills", self.fills or self.columns)):
            if len(values) != len(self.columns):
                raise ValueError(f"{name} has the length {len(values)} for {len(self.columns)} columns; give one each")
        if not set(self.indicators) <= set(self.columns):
            raise ValueError(f"indicators has {listed(self.indicators)}; each is one of {listed(self.columns)}")

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Encoding:
        """Returns the encoding from the data of `describe`.

        Args:
            described: the result of `describe`, also after a round through JSON; may have further entries.

        Returns:
            The encoding.

        Raises:
            KeyError: for a missing entry.
            TypeError: for an entry of another type.
            ValueError: for inconsistent entries.

        Examples:
            >>> from lamu.data import Encoding
            >>> Encoding.of({"target": "y", "task": "regression", "labels": [], "columns": ["a"], "seed": 0}).columns
            ('a',)
        """
        task = _text(described["task"])
        if task not in TASKS:
            raise ValueError(f"there is no task {task!r}; choose one of {listed(TASKS)}")
        listed_under = lambda name: described.get(name, ())
        return cls(
            target=_text(described["target"]),
            task=task,
            labels=tuple(described["labels"]),
            columns=tuple(map(_text, described["columns"])),
            levels=tuple(tuple(map(_text, column)) for column in listed_under("levels")),
            fills=tuple(None if fill is None else float(fill) for fill in listed_under("fills")),
            indicators=tuple(map(_text, listed_under("indicators"))),
            units=tuple((_text(name), float(origin), float(unit)) for name, origin, unit in listed_under("units")),
            beside=tuple((_text(name), _text(column)) for name, column in listed_under("beside")),
            joint=None if described.get("joint") is None else JointOfColumns.of(described["joint"]),
            dates=tuple(_date(*date) for date in listed_under("date_columns")),
            readings=tuple(_reading(*reading) for reading in listed_under("readings")),
            missing=_texts(described.get("missing_values")),
            one_hot=tuple(tuple(map(_text, block)) for block in listed_under("one_hot")),
            ranges=tuple((_text(name), float(low), float(high)) for name, low, high in listed_under("ranges")),
        )

    def describe(self) -> Document:
        """Returns the encoding as plain data that `json.dumps` accepts and `of` reads back.

        Examples:
            >>> from lamu.data import Encoding
            >>> encoding = Encoding("y", "regression", (), ("a",), (("x", "y"),))
            >>> Encoding.of(encoding.describe()) == encoding
            True
        """
        return {_DESCRIBED.get(part.name, part.name): as_lists(getattr(self, part.name)) for part in fields(self)}

    @property
    def of_target(self) -> tuple[tuple[str, str], ...]:
        """The auxiliary columns that are part of the target, "trials" or "censored", with their columns."""
        return tuple(pair for pair in self.beside if pair[0] in ("trials", "censored"))

    @property
    def exposure(self) -> str | None:
        """The column of the exposures of counts; None if there is none."""
        return dict(self.beside).get("exposure")

    @property
    def imputes(self) -> bool:
        """Whether missing values are filled."""
        return bool(self.fills)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of x: the features, then the indicators."""
        return (*self.columns, *(f"{name} is missing" for name in self.indicators))

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """The number of levels of each column of x, whose codes run from 0 for unknown words; 0 for numbers."""
        return (*(len(levels) for levels in self.levels), *(0 for _ in self.indicators))

    @property
    def has_words(self) -> bool:
        """Whether the labels of the target are texts."""
        return any(isinstance(label, str) for label in self.labels)

    def origin_and_unit(self, name: str) -> tuple[float, float]:
        """Returns the origin and the unit of a column; zero and one if it is not rescaled.

        Args:
            name: a feature, or the target.

        Examples:
            >>> from lamu.data import Encoding
            >>> Encoding("y", "regression", (), ("a",), units=(("y", 1e12, 2.0),)).origin_and_unit("y")
            (1000000000000.0, 2.0)
        """
        return next(((origin, unit) for column, origin, unit in self.units if column == name), (0.0, 1.0))

    @property
    def log_unit(self) -> float:
        """The logarithm of the target's unit: the difference of log densities of y and of the original values."""
        return math.log(self.origin_and_unit(self.target)[1])

    def encode(self, values: object) -> np.ndarray:
        """Returns original target values as y: indices of classes, int32, or numbers for regression.

        Args:
            values: original values `[rows]`.

        Raises:
            DataError: for a value that is not a label.
        """
        if self.task == "regression":
            origin, unit = self.origin_and_unit(self.target)
            return (np.asarray(values, float) - origin) / unit
        index = {label: position for position, label in enumerate(self.labels)}
        if {*self.labels} == {False, True}:  # of truth values or zeros and ones, which may be text later
            index |= {text: index[bool(one)] for one in (0, 1) for text in _TRUTH[one]}
        plain = values if isinstance(values, list) else np.asarray(values).tolist()
        unknown = next((value for value in plain if value not in index), None)
        if unknown is not None:
            raise DataError(
                f"the target {self.target!r} has the value {quoted(unknown)}, which is none of the classes "
                f"{listed(self.labels)}; correct it or remove the column"
            )
        return np.asarray([index[value] for value in plain], np.int32)

    def decode(self, y: Targets) -> np.ndarray:
        """Returns the original target values of y (`encode` undone), `[rows]`.

        Args:
            y: indices of classes, or numbers for regression.
        """
        if self.task == "regression":
            if not any(name == self.target for name, _, _ in self.units):
                return np.asarray(y)
            origin, unit = self.origin_and_unit(self.target)
            return origin + unit * np.asarray(y, float)
        return np.asarray(self.labels)[np.asarray(y)]


def _date(name: object, origin: Any, times: object, day_first: object) -> DateColumn:
    return DateColumn(_text(name), float(origin), bool(times), None if day_first is None else bool(day_first))


def _reading(name: object, unit: object, decimal: str, missing: Iterable[Any]) -> Reading:
    if decimal not in ("", ".", ","):
        raise ValueError(f"the decimal sign of {name!r} is {decimal!r}; give '.' or ','")
    return Reading(_text(name), _text(unit), decimal, tuple(map(float, missing)))


def _texts(values: Iterable[object] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(map(_text, values))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} stands where a text belongs")
    return value
