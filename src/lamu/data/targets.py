"""The target: its task, its labels, its values, and auxiliary columns (number of trials, censoring indicator)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lamu.data.columns import ADVICE, days, kind, numbers, refuse_word, words
from lamu.data.encoding import TASKS, Encoding, Label
from lamu.data.inputs import refuse_dates
from lamu.data.sources import Source
from lamu.data.splits import RowTimes, group_codes
from lamu.data.wording import DataError, at, nearest, plural, quoted

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["decide", "read_beside", "targets"]


def read_beside(source: Source, target: str, name: str, column: str, y: np.ndarray | None) -> Any:
    """Returns the trials, indicators, weights, exposures, groups or times of the rows, checked."""
    if column == target:
        raise DataError(f"{column!r} is the target and cannot be its {name} as well; name another column")
    if column not in source.frame:
        raise DataError(f"{source.name} has no column {column!r} with {name}; {nearest(column, source.names)}")
    if name == "groups":
        _refuse_ungrouped(column, source[column])
        return group_codes(source[column], len(source.frame))
    if name == "time":
        return RowTimes.of(days(source, column), len(source.frame), f"the column {column!r} of times")
    if kind(source[column]) != "numbers":
        raise DataError(f"the column {column!r} of {name} holds no numbers; {_RULES[name]}")
    values = numbers(source[column])
    if name == "weight":
        _refuse(~((values >= 0) & np.isfinite(values)), values, column, _RULES[name])
        if not values.any():
            raise DataError(f"the column {column!r} of weights is 0 in all rows; give those that count more than 0")
        return values
    if name == "exposure":
        _refuse(~((values > 0) & np.isfinite(values)), values, column, _RULES[name])
        if y is not None:
            _refuse(~((y >= 0) & (y == np.floor(y))), y, target, "counts of an exposure are whole numbers from 0")
        return values
    if name == "censored":
        _refuse(~((values == 0) | (values == 1)), values, column, _RULES[name])
        return values
    _refuse(~((values >= 0) & (values == np.floor(values))), values, column, _RULES[name])
    if y is not None:
        _refuse(~((y >= 0) & (y == np.floor(y))), y, target, "successes are whole numbers from 0")
        if (y > values).any():
            row = int(np.argmax(y > values))
            raise DataError(
                f"{target!r} is {y[row]:g} of {values[row]:g} trials ({column!r}) {at(row)}; give as many trials"
            )
    return values


def _refuse_ungrouped(column: str, values: pd.Series) -> None:
    """Raises a DataError for rows without a group, or rows of one group alone."""
    missing = np.asarray(values.isna())
    if missing.any():
        rule = "give each row its group, for instance a new one where it stands alone"
        raise DataError(f"the column {column!r} of groups has no value {at(int(np.argmax(missing)))}; {rule}")
    if values.nunique() < 2:
        one = quoted(str(values.iloc[0]))
        raise DataError(f"the column {column!r} of groups is {one} in every row; leave it out, or add rows of others")


_RULES = {
    "trials": "trials are whole numbers from 0",
    "censored": "an indicator is 1 where a row is censored, else 0",
    "weight": "weights are numbers from 0",
    "exposure": "exposures are numbers above 0",
}


def _refuse(wrong: np.ndarray, values: np.ndarray, column: str, rule: str) -> None:
    """Raises a DataError that names the first offending row."""
    if wrong.any():
        row = int(np.argmax(wrong))
        value = "no value" if np.isnan(values[row]) else quoted(float(values[row]))
        raise DataError(f"the column {column!r} has {value} {at(row)}; {rule}")


MOST_CLASSES = 20  # more distinct values are numbers, or identifiers if they are text


def decide(source: Source, target: str, task: str | None) -> tuple[str, tuple[Label, ...], tuple[str, ...]]:
    """Returns the task of a target, its labels, and a note if its type is ambiguous."""
    if task is not None and task not in TASKS:
        raise DataError(f"there is no task {task!r}; {nearest(task, TASKS)}")
    number = _is_of_numbers(source, target, task)
    labels = _labels(source[target])
    count = len(labels)
    if count == 1:
        raise DataError(
            f"the target {target!r} is {quoted(labels[0])} in every row, which leaves nothing to learn; choose another"
        )
    all_integers = number and all(float(label).is_integer() for label in labels)
    chosen, notes = task, ()
    if chosen is None:
        rare = number and count > 2 and _rarest(source[target]) == 1  # a class with one row can only be a count
        if number and (count > MOST_CLASSES or isinstance(labels[0], float) or rare):
            chosen = "regression"
        elif count > MOST_CLASSES:
            raise DataError(
                f"the target {target!r} has {count} different texts, such as {quoted(labels[0])}, which look like "
                "identifiers; choose another column, or say that the task is classes"
            )
        else:
            chosen = "binary" if count == 2 else "classes"
        if all_integers and count <= MOST_CLASSES and not (count == 2 and chosen == "binary"):
            other = "regression" if chosen == "classes" else "binary" if count == 2 else "classes"
            notes = (f"the target {target!r} has {count} whole values, taken as {chosen}; --task {other} overrides",)
    if chosen == "regression":
        return chosen, (), notes
    if chosen == "binary" and count != 2:
        raise DataError(
            f"the target {target!r} has {count} distinct values and a binary task has two; take another task"
        )
    if number and not all_integers:
        value = next(label for label in labels if not float(label).is_integer())
        raise DataError(f"the target {target!r} has the value {value!r}, which is not a class; take regression")
    return chosen, tuple(int(label) for label in labels) if number else labels, notes


def targets(source: Source, encoding: Encoding) -> np.ndarray:
    """Returns y: float64 for regression, otherwise the indices of the classes, int32."""
    values, target = source[encoding.target], encoding.target
    if encoding.task != "regression":
        return encoding.encode(words(values).texts) if encoding.has_words else encoding.encode(values.tolist())
    if kind(values) == "numbers":
        y = numbers(values)
    else:
        column = words(values)
        number = ~np.isnan(column.numbers)
        if not number.all():
            word, row = column.first(number)
            raise DataError(
                f"the target {target!r} has {quoted(word)} {at(row)} and regression needs numbers; correct it or take "
                "classes"
            )
        y = column.parsed
    infinite = np.flatnonzero(~np.isfinite(y))
    if len(infinite):
        raise DataError(
            f"the target {target!r} is {y[infinite[0]]} {at(int(infinite[0]))} and infinite in {len(infinite)} "
            f"{plural('row', infinite)}; replace it or drop them"
        )
    return y


def _is_of_numbers(source: Source, target: str, task: str | None) -> bool:
    values = source[target]
    column_kind = kind(values)
    if column_kind == "numbers":
        return True
    if column_kind not in ("text", "levels"):
        if column_kind == "dates":
            raise refuse_dates(source, target, str(values.iloc[0]), ADVICE)
        raise DataError(f"{source.name} has the target {target!r} of {column_kind}; choose another column")
    column = words(values)
    if column.dated():
        raise refuse_dates(source, target, column.levels[0], ADVICE)
    stray = column.stray() if task is None and column_kind == "text" and len(column.levels) > 2 else None
    if stray is not None:
        raise refuse_word(source.name, target, *stray)
    return False


def _rarest(values: pd.Series) -> int:
    return int(values.value_counts().min())


def _labels(values: pd.Series) -> tuple[Label, ...]:
    """Returns the distinct values as Python numbers, truth values or texts, in their order."""
    if kind(values) == "text" or hasattr(values, "cat"):
        return words(values).levels
    different = values.drop_duplicates().tolist()
    all_integers = all(isinstance(value, int) for value in different)
    return tuple(sorted(value if all_integers else float(value) for value in different))
