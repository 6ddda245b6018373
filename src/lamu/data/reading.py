"""How the cells of each column are read: numbers in disguise, codes with leading zeros, marks of missing values."""

# A file is read the same way when it is learned from and when it is predicted: what was decided for a column is part of
# the encoding.

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lamu.data.columns import Words, kind, names_rows, numbers, words
from lamu.data.sources import Source
from lamu.data.wording import DataError, at, counted, listed, plural, quoted
from lamu.data.written_numbers import FACTORS, Written, placeholders, sentinels, written

__all__ = ["Reading", "read_again", "read_cells"]

_RATIOS = ("%", "‰")  # whose numbers are others without the sign
_MOST_QUOTED = 5


@dataclass(frozen=True)
class Reading:
    """How a column of numbers is read."""

    name: str  # the column
    unit: str = ""  # the currency, percent sign or unit that its numbers have in the file; empty for none
    decimal: str = ""  # "." or ","; empty where no number tells
    missing: tuple[float, ...] = ()  # the numbers that stand for a missing value


def read_cells(
    source: Source, missing: Collection[str] | None = None, as_words: Collection[str] = (), counts: Collection[str] = ()
) -> tuple[Source, tuple[Reading, ...]]:
    """Returns a table to learn from with numbers and missing values in the place of the texts that stand for them."""
    columns: dict[str, Any] = {}
    notes: list[str] = []
    readings: list[Reading] = []
    marked: dict[str, str] = {}
    for name in source.names:
        values, found = source.frame[name], Reading(name)
        if kind(values) == "text":
            column = words(values)
            gone = _marks(column, missing)
            if gone:
                notes.append(_taken_as_missing(name, gone))
                marked[name] = listed(list(gone), 3)
                column = column.without(gone)
            left = name in as_words or column.coded or column.dated()
            parsed = None if left else _parsed(source, name, column, bool(gone))
            if parsed is not None:
                values, found, told = parsed
                notes += told
            elif gone:
                values = column.series(values)
            if column.coded:
                notes.append(
                    f"the column {name!r} has codes with leading zeros such as "
                    f"{quoted(next(level for level in column.levels if level[0] == '0' and len(level) > 1))}, taken as "
                    "categories"
                )
        if kind(values) == "numbers" and name not in as_words and name not in counts:
            values, sure, note = _numbers(name, values, missing)
            notes += note
            if sure:
                found = replace(found, missing=sure)
                marked[name] = ", ".join(filter(None, (marked.get(name), listed([_plain(each) for each in sure], 3))))
        columns[name] = values
        if found != Reading(name):
            readings.append(found)
    return _with_columns(source, columns, notes, marked), tuple(readings)


def read_again(
    source: Source, known: Mapping[str, tuple[Any, ...]], readings: Sequence[Reading], missing: Collection[str] | None
) -> Source:
    """Returns a table to predict, its columns read as they were when the model was fitted."""
    by_name = {each.name: each for each in readings}
    columns: dict[str, Any] = {}
    notes: list[str] = []
    marked: dict[str, str] = {}
    for name, levels in known.items():
        values, reading = source.frame[name], by_name.get(name, Reading(name))
        of = kind(values)
        if of == "text":
            column = words(values)
            gone = {level: n for level, n in _marks(column, missing, bool(levels)).items() if level not in levels}
            if gone:
                notes.append(_taken_as_missing(name, gone))
                marked[name] = listed(list(gone), 3)
                column = column.without(gone)
                values = column.series(values)
            if not levels and not column.dated():
                values, note = _as_before(source, name, column, reading)
                notes += note
        if levels and of in ("text", "numbers"):
            values, note = _codes(name, values, levels)
            notes += note
        elif not levels and of == "numbers" and reading.unit:
            note = _without_unit(source, name, numbers(values), reading)
            notes += note
        if not levels and reading.missing and kind(values) == "numbers":
            found = numbers(values)
            values, gone = _masked(name, values, found, reading.missing)
            if gone:
                notes.append(_taken_as_missing(name, gone))
                marked[name] = ", ".join(filter(None, (marked.get(name), listed(list(gone), 3))))
        columns[name] = values
    return _with_columns(source, columns, notes, marked)


def _with_columns(source: Source, columns: Mapping[str, Any], notes: list[str], marked: Mapping[str, str]) -> Source:
    changed = {name: values for name, values in columns.items() if values is not source.frame[name]}
    frame = source.frame.assign(**changed) if changed else source.frame
    return replace(source, frame=frame, notes=(*source.notes, *notes), marked={**source.marked, **marked})


def _marks(column: Words, missing: Collection[str] | None, levels: bool | None = None) -> dict[str, int]:
    """Returns the words that stand for a missing value, with how often each stands in the column."""
    gone = set(missing or ())
    if missing is None or missing:
        counts = column.counts
        of_numbers = not levels if levels is not None else 2 * counts[column.readable].sum() > counts.sum()
        gone |= set(placeholders(column.levels, bool(of_numbers)))
    return {level: int(n) for level, n in zip(column.levels, column.counts, strict=True) if level in gone}


def _parsed(source: Source, name: str, column: Words, noted: bool) -> tuple[Any, Reading, tuple[str, ...]] | None:
    """Returns a column of text as numbers, how they were read, and notes; None where it is of words."""
    each: list[Written] = []
    for level in column.levels:
        found = written(level)
        if found is None:
            return None
        each.append(found)
    if not each:
        return None
    units = {one.unit for one in each if one.unit}
    bare = any(not one.unit and one.point != 0 for one in each)
    if len(units) > 1 or (bare and units & set(_RATIOS)):
        first, unit = next((level, one.unit) for level, one in zip(column.levels, each, strict=True) if one.unit)
        other = next(level for level, one in zip(column.levels, each, strict=True) if one.unit != unit)
        return _unlike(source, name, column, f"{quoted(first)} and {quoted(other)}, in different units")
    unit = next(iter(units), "")
    values, decimal, doubt = _decided(column, each)
    if values is None:
        return _unlike(source, name, column, f"{doubt}, with different decimal signs")
    signs = dict.fromkeys(sign for one in each for sign in one.signs)
    if not signs and decimal != ",":
        plain = f"the column {name!r} is text and holds only numbers, taken as numbers"
        return column.spread(values), Reading(name), () if noted else (plain,)
    at_signs = [index for index, one in enumerate(each) if one.signs or decimal == ","]
    count, shown = int(column.counts[at_signs].sum()), max(at_signs, key=lambda index: len(each[index].signs))
    stripped = f" without {listed(list(signs), _MOST_QUOTED)}" if signs else ""
    point = ", a comma being the decimal sign" if decimal == "," else ""
    note = (
        f"the column {name!r} is written as {quoted(column.levels[shown])} in {count} {plural('cell', count)}, "
        f"taken as numbers{stripped}{_scales(each)}{point}{doubt}"
    )
    return column.spread(values), Reading(name, unit, decimal), (note,)


def _scales(each: Sequence[Written]) -> str:
    """Returns what signs such as the M of 1.5M stand for."""
    scaled = {sign: one.factor for one in each if one.factor != 1.0 for sign in one.signs if sign in FACTORS}
    return "".join(f", {quoted(sign)} being {factor:,.0f}" for sign, factor in scaled.items())


def _decided(column: Words, each: Sequence[Written]) -> tuple[np.ndarray | None, str, str]:
    """Returns the numbers, their decimal sign, and the doubt that is left about it."""
    point, comma = (np.asarray([getattr(one, sign) for one in each]) for sign in ("point", "comma"))
    by_point, by_comma = ~np.isnan(point), ~np.isnan(comma)
    if by_point.all() and by_comma.all():
        if np.array_equal(point, comma):
            return point, "", ""
        if not (point != comma).all():  # 980 beside 1,018, which a decimal comma would write as 980,000
            return point, ".", ""
        differs = int(np.flatnonzero(point != comma)[0])
        text = column.levels[differs]
        return (
            point,
            ".",
            f"; {quoted(text)} is read as {_plain(point[differs])}, and could be {_plain(comma[differs])}",
        )
    if by_point.all():
        return point, ".", ""
    if by_comma.all():
        return comma, ",", ""
    first, other = (column.levels[int(np.flatnonzero(~of)[0])] for of in (by_comma, by_point))
    return None, "", f"{quoted(other)} and {quoted(first)}"


def _doubt(text: str, value: float, other: float) -> str:
    return f"; {quoted(text)} is read as {_plain(value)}, and could be {_plain(other)}"


def _unlike(source: Source, name: str, column: Words, what: str) -> tuple[Any, Reading, tuple[str, ...]]:
    """Refuses numbers that cannot be compared, unless they are few enough to be categories."""
    if names_rows(len(column.levels), int(column.counts.sum())):
        raise DataError(f"{source.name} has {what}, in the column {name!r}; write all of its numbers alike")
    note = f"the column {name!r} has {what}, all taken as categories"
    return column.series(source.frame[name]), Reading(name), (note,)


def _as_before(source: Source, name: str, column: Words, reading: Reading) -> tuple[Any, list[str]]:
    """Returns a column of text that was of numbers when the model was fitted."""
    found = [written(level) for level in column.levels]
    if any(each is None for each in found):
        return column.series(source.frame[name]), []  # an error that `matched` raises
    each = [one for one in found if one is not None]
    wrong = [index for index, one in enumerate(each) if not _same_unit(one, reading, each)]
    if wrong:
        row = int(np.flatnonzero(np.isin(column.codes, wrong))[0])
        level = column.levels[column.codes[row]]
        was = f"numbers in {quoted(reading.unit)}" if reading.unit else "numbers without a unit"
        raise DataError(
            f"{source.name} has {quoted(level)} {at(row)} of the column {name!r}, which was of {was} when the model "
            "was fitted; write it in the same unit"
        )
    point, comma = (np.asarray([getattr(one, sign) for one in each], float) for sign in ("point", "comma"))
    usual, other = (comma, point) if reading.decimal == "," else (point, comma)
    values, doubt = (usual, "") if not np.isnan(usual).any() else (other, "")
    if np.isnan(values).any():
        both = quoted(column.levels[int(np.flatnonzero(np.isnan(values))[0])])
        raise DataError(
            f"{source.name} has {both} in the column {name!r} beside numbers with another decimal sign; write all of "
            "them with a point"
        )
    if not reading.decimal and not np.isnan(other).any() and not np.array_equal(usual, other):
        index = int(np.flatnonzero(usual != other)[0])
        doubt = (
            f"; {quoted(column.levels[index])} is read as {_plain(usual[index])}, and could be {_plain(other[index])}"
        )
    signs = dict.fromkeys(sign for one in each for sign in one.signs)
    swapped = values is other
    padded = next((level for level in column.levels if column.coded and level[0] == "0" and len(level) > 1), None)
    if reading.unit and not signs and not swapped:
        return column.spread(values), _without_unit(source, name, values, reading)
    if padded is not None:
        return column.spread(values), [
            f"the column {name!r} has codes with leading zeros such as {quoted(padded)}, and was of numbers when the "
            f"model was fitted; taken as numbers"
        ]
    as_before = bool(reading.unit or reading.decimal) and all(
        one.unit == reading.unit or one.point == 0 for one in each
    )
    if not swapped and not doubt and (not signs or as_before):
        return column.spread(values), []
    shown = next(level for level, one in zip(column.levels, each, strict=True) if one.signs or swapped)
    without = f" without {listed(list(signs), _MOST_QUOTED)}" if signs else ""
    point_or_comma = f", a {'point' if reading.decimal == ',' else 'comma'} being the decimal sign" if swapped else ""
    return column.spread(values), [
        f"the column {name!r} is written as {quoted(shown)}, taken as numbers{without}{point_or_comma}{doubt}"
    ]


def _without_unit(source: Source, name: str, values: np.ndarray, reading: Reading) -> list[str]:
    """Returns the note on numbers that had a unit when the model was fitted; of shares, .12 is not 12 %."""
    unit, present = quoted(reading.unit), values[~np.isnan(values)]
    if reading.unit in _RATIOS and present.any() and np.abs(present).max() <= 1:
        first = _plain(present[np.flatnonzero(present)[0]])
        raise DataError(
            f"{source.name} has numbers such as {first} in the column {name!r}, which was of numbers in {unit} when "
            f"the model was fitted; write them with {unit}"
        )
    return [
        f"the column {name!r} has numbers without {unit}, which it had when the model was fitted, taken as numbers in "
        f"{unit}"
    ]


def _same_unit(one: Written, reading: Reading, each: Sequence[Written]) -> bool:
    if one.unit == reading.unit or one.point == 0:
        return True
    if not one.unit:  # 12 where 12 % was, and never .12
        bare = [abs(other.comma if reading.decimal == "," else other.point) for other in each if not other.unit]
        return reading.unit not in _RATIOS or any(value > 1 for value in bare)
    return not reading.unit and one.unit not in _RATIOS


def _codes(name: str, values: Any, levels: Sequence[str]) -> tuple[Any, list[str]]:
    """Returns a column of words in which a code that lost its leading zeros, or gained some, is the one of training."""
    of_digits: dict[str, list[str]] = {}
    for level in levels:
        if level.isdigit():
            of_digits.setdefault(level.lstrip("0"), []).append(level)
    if not any(level[0] == "0" and len(level) > 1 for known in of_digits.values() for level in known):
        return values, []
    column = words(values)
    same = lambda text: of_digits.get(text.lstrip("0"), []) if text.isdigit() and text not in levels else []
    moved = {text: found[0] for text in column.levels if len(found := same(text)) == 1}
    if not moved:
        return values, []
    import pandas as pd

    texts = [moved.get(text, text) if text is not None else None for text in column.texts]
    shown = ", ".join(f"{quoted(text)} as {quoted(level)}" for text, level in list(moved.items())[:3])
    note = f"the column {name!r} has codes with other leading zeros than training had, read as those: {shown}"
    return pd.Series(texts, index=values.index, name=values.name, dtype=object), [note]


def _numbers(name: str, values: Any, missing: Collection[str] | None) -> tuple[Any, tuple[float, ...], list[str]]:
    """Returns a column of numbers without those that stand for missing values, these, and notes."""
    if missing is not None:
        declared = tuple(value for text in missing if not math.isnan(value := _number(text)))
        column, gone = _masked(name, values, numbers(values), declared) if declared else (values, {})
        return column, declared if gone else (), [_taken_as_missing(name, gone)] if gone else []
    try:
        array = numbers(values)
    except DataError:  # whole numbers beyond float64, an error of its own unless they are left out as identifiers
        return values, (), []
    found = sentinels(array)
    notes = []
    column, gone = _masked(name, values, array, tuple(found.certain)) if found.certain else (values, {})
    others = f"where all others lie from {_plain(found.low)} to {_plain(found.high)}"
    if gone:
        notes.append(
            f"{_taken_as_missing(name, gone)}, {others}; --missing none keeps {'it' if len(gone) == 1 else 'them'}"
        )
    if found.suspected:
        shown = [(_plain(value), count) for value, count in found.suspected.items()]
        first = shown[0][0]
        notes.append(
            f"the column {name!r} has {_told(shown)}, {others}, taken as "
            f"{'a number' if len(shown) == 1 else 'numbers'}; --missing {first} makes it a missing value"
        )
    return column, tuple(found.certain), notes


def _masked(name: str, values: Any, array: np.ndarray, missing: Sequence[float]) -> tuple[Any, dict[str, int]]:
    """Returns a column of numbers with some of them missing, and how often each stood there."""
    import pandas as pd

    gone = {_plain(value): int((array == value).sum()) for value in missing}
    gone = {value: count for value, count in gone.items() if count}
    if not gone:
        return values, {}
    left = np.where(np.isin(array, missing), np.nan, array)
    return pd.Series(left, index=values.index, name=name), gone


def _taken_as_missing(name: str, gone: Mapping[str, int]) -> str:
    return f"the column {name!r} has {_told(list(gone.items()))}, taken as missing values"


def _told(pairs: Sequence[tuple[str, int]]) -> str:
    return counted(pairs, most=_MOST_QUOTED)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _plain(value: Any) -> str:
    return f"{float(value):.12g}"
