"""Features as they were read: numbers, and words as positions among their levels; what is missing is still missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamu.data import dates
from lamu.data.columns import Words, kind, numbers, refuse_word, words
from lamu.data.identifiers import names_rows
from lamu.data.sources import Source
from lamu.data.wording import DataError, at, quoted

__all__ = ["Features", "matched", "refuse_dates", "told"]

_TRUTH = {"True", "False"}


@dataclass(frozen=True)
class Features:
    """The features of a table before anything was learned from them."""

    columns: tuple[str, ...]  # their names
    # Numbers, and positions among the levels, float64 `[rows, columns]`; NaN where a value is missing.
    values: np.ndarray
    levels: tuple[tuple[str, ...], ...]  # the levels of each column, sorted; empty for a column of numbers
    notes: tuple[str, ...] = ()  # one sentence for each column whose kind leaves a doubt


def told(source: Source, columns: Sequence[str]) -> Features:
    """Returns the features to learn from; the values tell which columns are numbers and which are words."""
    notes: list[str] = []
    read: list[tuple[np.ndarray, tuple[str, ...]]] = []
    for name in columns:
        values = source.frame[name]
        found = _kind(source, name)
        if found == "numbers":
            read.append((numbers(values), ()))
            continue
        column = words(values)
        if column.dated():
            raise refuse_dates(source, name, column.levels[0])
        number = ~np.isnan(column.numbers) if found == "text" else None
        if number is not None and number.all():
            notes.append(f"the column {name!r} is text and holds only numbers, taken as numbers")
            read.append((column.parsed, ()))
            continue
        _refuse_words(source, name, column, number)
        if number is not None and number.any():
            word, _ = column.first(number)
            notes.append(f"the column {name!r} has numbers and words such as {quoted(word)}, all taken as categories")
        read.append(_positions(column))
    return _joined(source, columns, read, notes)


def matched(source: Source, columns: Sequence[str], levels: Sequence[tuple[str, ...]]) -> Features:
    """Returns the features of a table to predict, each of the kind that it had when the model was fitted."""
    read: list[tuple[np.ndarray, tuple[str, ...]]] = []
    for name, known in zip(columns, levels, strict=True):
        values = source.frame[name]
        found = _kind(source, name)
        if known:
            read.append(_positions(_spelled(words(values)) if set(known) <= _TRUTH else words(values)))
        elif found == "text":
            column = words(values)
            number = ~np.isnan(column.numbers)
            if not number.all():
                raise refuse_word(source.name, name, *column.first(number))
            read.append((column.parsed, ()))
        else:
            read.append((numbers(values), ()))
    return _joined(source, columns, read, [])


def refuse_dates(source: Source, column: str, value: Any = None, advice: str = dates.OPTION) -> DataError:
    """Returns the error about a column of dates or times."""
    such = "" if value is None else f" such as {quoted(value)}"
    return DataError(f"{source.name} has the column {column!r} of dates or times{such}; {advice}")


def _kind(source: Source, name: str) -> str:
    found = kind(source.frame[name])
    if found == "dates":
        present = source.frame[name].dropna()
        raise refuse_dates(source, name, str(present.iloc[0]) if len(present) else None)
    if found not in ("numbers", "text", "levels"):
        raise DataError(
            f"{source.name} has the column {name!r} of {found}, which are neither numbers nor text; drop it"
        )
    return found


def _refuse_words(source: Source, name: str, column: Words, number: np.ndarray | None) -> None:
    """Refuses words that are no levels: numbers with a few words among them, and identifiers."""
    stray = column.stray() if number is not None else None
    levels, present = len(column.levels), int(column.counts.sum())
    many = names_rows(levels, present)
    readable = column.readable if number is not None else None
    if (
        stray is None
        and many
        and readable is not None
        and not readable.all()
        and 2 * column.counts[readable].sum() > present
    ):
        stray = column.first(readable)
    if stray is not None:
        raise refuse_word(source.name, name, *stray)
    if many:
        raise DataError(
            f"{source.name} has {levels} different texts in {present} rows of the column {name!r}, such as "
            f"{quoted(column.levels[0])}, which look like identifiers; drop the column"
        )


def _positions(column: Words) -> tuple[np.ndarray, tuple[str, ...]]:
    return np.where(column.codes < 0, np.nan, column.codes), column.levels


def _spelled(column: Words) -> Words:
    """Returns truth values that were read as text as they are written elsewhere: TRUE and true are True."""
    import pandas as pd

    capital = {text: text.title() for text in column.levels if text.title() in _TRUTH}
    return words(pd.Series([text if text is None else capital.get(text, text) for text in column.texts], dtype=object))


def _joined(
    source: Source, columns: Sequence[str], read: list[tuple[np.ndarray, tuple[str, ...]]], notes: Sequence[str]
) -> Features:
    values, first, count = np.empty((len(source.frame), len(read)), np.float64), None, 0
    for index, (column, _) in enumerate(read):
        values[:, index] = column
        infinite = np.flatnonzero(np.isinf(column))
        count += len(infinite)
        if len(infinite) and (first is None or infinite[0] < first[0]):
            first = int(infinite[0]), index
    if first is not None:
        row, index = first
        more = "" if count == 1 else f", the first of {count} infinite values"
        raise DataError(
            f"{source.name} has {values[row, index]} {at(row)} of the column {columns[index]!r}{more}; "
            "replace it or drop the row"
        )
    return Features(tuple(columns), values, tuple(levels for _, levels in read), tuple(notes))
