"""Reads the cells of each column: numbers in other notations, codes with leading zeros, marks of missing values."""

# The decisions about each column are part of the encoding, so that a table to predict is read like that of training.

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from lamu.data.columns import Words, kind, names_rows, numbers, words
from lamu.data.sources import Source
from lamu.data.wording import DataError, at, counted, listed, plural, quoted
from lamu.data.written_numbers import FACTORS, Written, placeholders, sentinels, written

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Reading", "read_again", "read_cells"]

_RATIOS = ("%", "‰")  # numbers with these signs differ from those without
_MOST_QUOTED = 5


@dataclass(frozen=True)
class Reading:
    """How a column of numbers is read."""

    name: str  # the column
    unit: str = ""  # the currency, percent sign or unit of its numbers in the file; empty for none
    decimal: str = ""  # "." or ","; empty if undetermined
    missing: tuple[float, ...] = ()  # the numbers that mark a missing value


def read_cells(
    source: Source, missing: Collection[str] | None = None, as_words: Collection[str] = (), counts: Collection[str] = ()
) -> tuple[Source, tuple[Reading, ...]]:
    """Returns a training table with texts replaced by the numbers and missing values that they represent."""
    cells, readings = _Cells(source), []
    for name in source.names:
        values, reading = source[name], Reading(name)
        if kind(values) == "text":
            column = words(values)
            marks = _missing_words(column, missing)
            if marks:
                column = cells.without(name, column, marks)
                values = column.series(values)
            not_numeric = name in as_words or column.coded or column.dated()
            parsed = None if not_numeric else _parsed(source, name, column, bool(marks))
            if parsed is not None:
                values, reading, notes = parsed
                cells.notes += notes
            if column.coded and name not in counts:
                cells.notes.append(
                    f"the column {name!r} has codes with leading zeros such as {quoted(_padded(column))}, taken as "
                    "categories"
                )
        if kind(values) == "numbers" and name not in as_words and name not in counts:
            values, sure, note = _numbers(name, values, missing)
            cells.notes += note
            if sure:
                reading = replace(reading, missing=sure)
                cells.mark(name, map(_plain, sure))
        cells.columns[name] = values
        if reading != Reading(name):
            readings.append(reading)
    return cells.read(), tuple(readings)


def read_again(
    source: Source, known: Mapping[str, tuple[str, ...]], readings: Sequence[Reading], missing: Collection[str] | None
) -> Source:
    """Returns a table to predict with its columns read as in training."""
    by_name = {reading.name: reading for reading in readings}
    cells = _Cells(source)
    for name, levels in known.items():
        values, reading = source[name], by_name.get(name, Reading(name))
        column_kind = kind(values)
        if column_kind == "text":
            column = words(values)
            candidates = _missing_words(column, missing, bool(levels))
            marks = {level: n for level, n in candidates.items() if level not in levels}
            if marks:
                column = cells.without(name, column, marks)
                values = column.series(values)
            if not levels and not column.dated():
                values, note = _read_as_in_training(source, name, column, reading)
                cells.notes += note
        if levels and column_kind in ("text", "numbers"):
            values, note = _codes(name, values, levels)
            cells.notes += note
        elif not levels and column_kind == "numbers" and reading.unit:
            cells.notes += _without_unit(source, name, numbers(values), reading)
        if not levels and reading.missing and kind(values) == "numbers":
            values, marks = _masked(name, values, numbers(values), reading.missing)
            if marks:
                cells.notes.append(_taken_as_missing(name, marks))
                cells.mark(name, marks)
        cells.columns[name] = values
    return cells.read()


@dataclass
class _Cells:
    """The columns of a table while they are read, with notes."""

    source: Source
    columns: dict[str, pd.Series] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    marked: dict[str, str] = field(default_factory=dict)

    def without(self, name: str, column: Words, gone: Mapping[str, int]) -> Words:
        """Returns a column without the words that mark missing values, and notes them."""
        self.notes.append(_taken_as_missing(name, gone))
        self.mark(name, gone)
        return column.without(gone)

    def mark(self, name: str, gone: Iterable[str]) -> None:
        """Stores the marks of missing values of a column."""
        self.marked[name] = ", ".join(filter(None, (self.marked.get(name), listed(list(gone), 3))))

    def read(self) -> Source:
        """Returns the table after reading."""
        source = self.source
        changed = {name: values for name, values in self.columns.items() if values is not source[name]}
        frame = source.frame.assign(**changed) if changed else source.frame
        marked = {**source.marked, **self.marked}
        return replace(source, frame=frame, notes=(*source.notes, *self.notes), marked=marked)


def _padded(column: Words) -> str | None:
    """Returns the first code with leading zeros."""
    return next((level for level in column.levels if level[0] == "0" and len(level) > 1), None)


def _missing_words(column: Words, missing: Collection[str] | None, levels: bool | None = None) -> dict[str, int]:
    """Returns the words that mark missing values, with their counts."""
    gone = set(missing or ())
    if missing is None or missing:
        counts = column.counts
        of_numbers = not levels if levels is not None else 2 * counts[column.readable].sum() > counts.sum()
        gone |= set(placeholders(column.levels, bool(of_numbers)))
    return {level: int(n) for level, n in zip(column.levels, column.counts, strict=True) if level in gone}


def _parsed(source: Source, name: str, column: Words, noted: bool) -> tuple[pd.Series, Reading, tuple[str, ...]] | None:
    """Returns a text column as numbers, how they were read, and notes; None if it is of words."""
    parsed = [number for level in column.levels if (number := written(level)) is not None]
    if not parsed or len(parsed) < len(column.levels):
        return None
    units = {number.unit for number in parsed if number.unit}
    bare = any(not number.unit and number.point != 0 for number in parsed)
    if len(units) > 1 or (bare and units & set(_RATIOS)):
        first, unit = next(
            (level, number.unit) for level, number in zip(column.levels, parsed, strict=True) if number.unit
        )
        other = next(level for level, number in zip(column.levels, parsed, strict=True) if number.unit != unit)
        return _refuse_mixed(source, name, column, f"{quoted(first)} and {quoted(other)}, in different units")
    unit = next(iter(units), "")
    values, decimal, doubt = _decimal_sign(column, parsed)
    if values is None:
        return _refuse_mixed(source, name, column, f"{doubt}, with different decimal signs")
    signs = dict.fromkeys(sign for number in parsed for sign in number.signs)
    if not signs and decimal != ",":
        plain = f"the column {name!r} is text and holds only numbers, taken as numbers"
        return column.spread(values), Reading(name), () if noted else (plain,)
    at_signs = [index for index, number in enumerate(parsed) if number.signs or decimal == ","]
    count, shown = (
        int(column.counts[at_signs].sum()),
        max(at_signs, key=lambda index: len(parsed[index].signs)),
    )
    point = ", a comma being the decimal sign" if decimal == "," else ""
    note = (
        f"the column {name!r} is written as {quoted(column.levels[shown])} in {count} {plural('cell', count)}, "
        f"taken as numbers{_without(signs)}{_scales(parsed)}{point}{doubt}"
    )
    return column.spread(values), Reading(name, unit, decimal), (note,)


def _without(signs: Iterable[str]) -> str:
    signs = list(signs)
    return f" without {listed(signs, _MOST_QUOTED)}" if signs else ""


def _scales(parsed: Sequence[Written]) -> str:
    """Returns the meaning of signs such as the M of 1.5M."""
    scaled = {
        sign: number.factor for number in parsed if number.factor != 1.0 for sign in number.signs if sign in FACTORS
    }
    return "".join(f", {quoted(sign)} being {factor:,.0f}" for sign, factor in scaled.items())


def _decimal_sign(column: Words, parsed: Sequence[Written]) -> tuple[np.ndarray | None, str, str]:
    """Returns the numbers, their decimal sign, and a note on ambiguity."""
    point, comma = _points_and_commas(parsed)
    by_point, by_comma = ~np.isnan(point), ~np.isnan(comma)
    if not by_point.all():
        if by_comma.all():
            return comma, ",", ""
        first, other = (column.levels[int(np.flatnonzero(~of)[0])] for of in (by_comma, by_point))
        return None, "", f"{quoted(other)} and {quoted(first)}"
    if by_comma.all() and np.array_equal(point, comma):
        return point, "", ""
    # 980 next to 1,018, which a decimal comma would write as 980,000, is unambiguous.
    doubtful = by_comma.all() and bool((point != comma).all())
    return point, ".", _doubt(column, point, comma) if doubtful else ""


def _points_and_commas(parsed: Sequence[Written]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the numbers with a decimal point and with a decimal comma."""
    return np.asarray([number.point for number in parsed], float), np.asarray(
        [number.comma for number in parsed], float
    )


def _doubt(column: Words, values: np.ndarray, other: np.ndarray) -> str:
    """Returns the clause about the first ambiguous level."""
    index = int(np.flatnonzero(values != other)[0])
    return f"; {quoted(column.levels[index])} is read as {_plain(values[index])}, and could be {_plain(other[index])}"


def _refuse_mixed(source: Source, name: str, column: Words, what: str) -> tuple[pd.Series, Reading, tuple[str, ...]]:
    """Raises a DataError for numbers that cannot be compared, unless they are few enough to be categories."""
    if names_rows(len(column.levels), int(column.counts.sum())):
        raise DataError(f"{source.name} has {what}, in the column {name!r}; write all of its numbers alike")
    note = f"the column {name!r} has {what}, all taken as categories"
    return column.series(source[name]), Reading(name), (note,)


def _read_as_in_training(source: Source, name: str, column: Words, reading: Reading) -> tuple[pd.Series, list[str]]:
    """Returns a text column that was numeric in training."""
    parsed = [number for level in column.levels if (number := written(level)) is not None]
    if len(parsed) < len(column.levels):
        return column.series(source[name]), []  # `features_to_predict` raises an error
    wrong = [index for index, number in enumerate(parsed) if not _same_unit(number, reading, parsed)]
    if wrong:
        row = int(np.flatnonzero(np.isin(column.codes, wrong))[0])
        level = column.levels[column.codes[row]]
        was = f"numbers in {quoted(reading.unit)}" if reading.unit else "numbers without a unit"
        raise DataError(
            f"{source.name} has {quoted(level)} {at(row)} of the column {name!r}, which was of {was} when the model "
            "was fitted; write it in the same unit"
        )
    point, comma = _points_and_commas(parsed)
    usual, other = (comma, point) if reading.decimal == "," else (point, comma)
    swapped, doubt = bool(np.isnan(usual).any()), ""
    values = other if swapped else usual
    if np.isnan(values).any():
        both = quoted(column.levels[int(np.flatnonzero(np.isnan(values))[0])])
        raise DataError(
            f"{source.name} has {both} in the column {name!r} beside numbers with another decimal sign; write all of "
            "them with a point"
        )
    if not swapped and not reading.decimal and not np.isnan(other).any() and not np.array_equal(usual, other):
        doubt = _doubt(column, usual, other)
    signs = dict.fromkeys(sign for number in parsed for sign in number.signs)
    padded = _padded(column) if column.coded else None
    if reading.unit and not signs and not swapped:
        return column.spread(values), _without_unit(source, name, values, reading)
    if padded is not None:
        return column.spread(values), [
            f"the column {name!r} has codes with leading zeros such as {quoted(padded)}, and was of numbers when the "
            f"model was fitted; taken as numbers"
        ]
    as_before = bool(reading.unit or reading.decimal) and all(
        number.unit == reading.unit or number.point == 0 for number in parsed
    )
    if not swapped and not doubt and (not signs or as_before):
        return column.spread(values), []
    shown = next(level for level, number in zip(column.levels, parsed, strict=True) if number.signs or swapped)
    point_or_comma = f", a {'point' if reading.decimal == ',' else 'comma'} being the decimal sign" if swapped else ""
    return column.spread(values), [
        f"the column {name!r} is written as {quoted(shown)}, taken as numbers{_without(signs)}{point_or_comma}{doubt}"
    ]


def _without_unit(source: Source, name: str, values: np.ndarray, reading: Reading) -> list[str]:
    """Returns the note on numbers without their unit in training; for shares, .12 is not 12 %."""
    unit, present = quoted(reading.unit), values[~np.isnan(values)]
    if reading.unit in _RATIOS and present.any() and np.abs(present).max() <= 1:
        first = _plain(float(present[np.flatnonzero(present)[0]]))
        raise DataError(
            f"{source.name} has numbers such as {first} in the column {name!r}, which was of numbers in {unit} when "
            f"the model was fitted; write them with {unit}"
        )
    return [
        f"the column {name!r} has numbers without {unit}, which it had when the model was fitted, taken as numbers in "
        f"{unit}"
    ]


def _same_unit(number: Written, reading: Reading, parsed: Sequence[Written]) -> bool:
    if number.unit == reading.unit or number.point == 0:
        return True
    if not number.unit:  # 12 instead of 12 %, but never .12
        bare = [abs(other.comma if reading.decimal == "," else other.point) for other in parsed if not other.unit]
        return reading.unit not in _RATIOS or any(value > 1 for value in bare)
    return not reading.unit and number.unit not in _RATIOS


_DIGITS = re.compile(r"0*(\d*?)(?:\.0+)?")  # a code, without leading zeros and a point that ends it


def _codes(name: str, values: pd.Series, levels: Sequence[str]) -> tuple[pd.Series, list[str]]:
    """Returns a column of words with codes matched to those of training up to leading zeros and a point: 7.0 is 007."""
    of_digits: dict[str, list[str]] = {}
    digits = lambda text: matched[1] if (matched := _DIGITS.fullmatch(text)) else None
    for level in levels:
        if (code := digits(level)) is not None:
            of_digits.setdefault(code, []).append(level)
    if not of_digits:
        return values, []
    column = words(values)
    same = lambda text: of_digits.get(str(digits(text)), []) if text not in levels else []
    moved = {text: codes[0] for text in column.levels if len(codes := same(text)) == 1}
    if not moved:
        return values, []
    import pandas as pd

    texts = [moved.get(text, text) if text is not None else None for text in column.texts]
    shown = ", ".join(f"{quoted(text)} as {quoted(level)}" for text, level in list(moved.items())[:3])
    note = f"the column {name!r} has codes with other zeros than training had, read as those: {shown}"
    return pd.Series(texts, index=values.index, name=values.name, dtype=object), [note]


def _numbers(
    name: str, values: pd.Series, missing: Collection[str] | None
) -> tuple[pd.Series, tuple[float, ...], list[str]]:
    """Returns a column of numbers without the marks of missing values, these marks, and notes."""
    if missing is not None:
        declared = tuple(value for text in missing if not math.isnan(value := _number(text)))
        column, masked = _masked(name, values, numbers(values), declared) if declared else (values, {})
        return column, declared if masked else (), [_taken_as_missing(name, masked)] if masked else []
    try:
        array = numbers(values)
    except DataError:  # integers beyond float64: an error of its own, unless the column is an identifier
        return values, (), []
    marks = sentinels(array)
    notes = []
    column, masked = _masked(name, values, array, tuple(marks.certain)) if marks.certain else (values, {})
    others = f"where all others lie from {_plain(marks.low)} to {_plain(marks.high)}"
    if masked:
        notes.append(
            f"{_taken_as_missing(name, masked)}, {others}; --missing none keeps {'it' if len(masked) == 1 else 'them'}"
        )
    if marks.suspected:
        shown = [(_plain(value), count) for value, count in marks.suspected.items()]
        first = shown[0][0]
        notes.append(
            f"the column {name!r} has {_counted_list(shown)}, {others}, taken as "
            f"{'a number' if len(shown) == 1 else 'numbers'}; --missing {first} makes it a missing value"
        )
    return column, tuple(marks.certain), notes


def _masked(
    name: str, values: pd.Series, array: np.ndarray, missing: Sequence[float]
) -> tuple[pd.Series, dict[str, int]]:
    """Returns a column of numbers with some of them missing, and how often each occurred."""
    import pandas as pd

    counts = {_plain(value): int((array == value).sum()) for value in missing}
    counts = {value: count for value, count in counts.items() if count}
    if not counts:
        return values, {}
    remaining = np.where(np.isin(array, missing), np.nan, array)
    return pd.Series(remaining, index=values.index, name=name), counts


def _taken_as_missing(name: str, gone: Mapping[str, int]) -> str:
    return f"the column {name!r} has {_counted_list(list(gone.items()))}, taken as missing values"


def _counted_list(pairs: Sequence[tuple[str, int]]) -> str:
    return counted(pairs, most=_MOST_QUOTED)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _plain(value: float) -> str:
    return f"{float(value):.12g}"
