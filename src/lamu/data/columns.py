"""Kinds of columns: numbers, categories, dates and identifiers."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lamu.data.precision import first_indistinguishable
from lamu.data.sources import Source
from lamu.data.wording import DataError, at, quoted
from lamu.data.written_numbers import is_code, written

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ADVICE",
    "MOST_LEVELS",
    "OPTION",
    "TYPES",
    "DateColumn",
    "Words",
    "expanded",
    "found_dates",
    "identifiers",
    "kind",
    "look_like_dates",
    "names_rows",
    "numbers",
    "refuse_word",
    "repeated_identifiers",
    "words",
]


ADVICE = "turn it into numbers (days since a start, or a year and a month column) or drop it"
OPTION = "turn it into numbers (its age, and its place in the year, week and day) with --dates, or drop it"
TYPES = ("datetime64", "datetime", "date", "timedelta64", "timedelta", "time", "period")  # as pandas infers them

_YEAR, _MONTH, _DAY = r"[12]\d{3}", r"(0?[1-9]|1[0-2])", r"(0?[1-9]|[12]\d|3[01])"
_NAME = r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_TIME = r"([01]?\d|2[0-4]):[0-5]\d(:[0-6]\d([.,]\d+)?)?\s*([AaPp][Mm])?"
_ZONE = r"\s*(Z|UTC|[+-]\d{2}(:?\d{2})?)?"
_DATE = (
    rf"{_YEAR}-{_MONTH}"  # 2019-03; with a dot it would be a number
    rf"|{_YEAR}(?P<a>[-/.]){_MONTH}(?P=a){_DAY}"  # ISO and its relatives: 2019-03-31, 2019/3/31
    rf"|{_DAY}(?P<b>[-/.]){_MONTH}(?P=b){_YEAR}"  # 31.3.2019
    rf"|{_MONTH}(?P<c>[-/.]){_DAY}(?P=c){_YEAR}"  # 3/31/2019
    r"|\d{1,2}/\d{1,2}/\d{2}"  # 3/31/19
    rf"|({_DAY}[ -])?{_NAME}[a-z]*[ -]{_YEAR}"  # 31 March 2019
)
_PATTERN = re.compile(rf"({_DATE})([T ]\s*{_TIME}{_ZONE})?|{_TIME}{_ZONE}")
MOST = 0.9  # of the values, at the least


def look_like_dates(texts: Sequence[str], counts: Sequence[int]) -> bool:
    """Returns whether nearly all values of a text column are dates or times."""
    # Plain numbers are not dates, not even 2019 and 20190331, nor are codes such as "A12" or "1.2.3".
    if not any(counts):
        return False
    dated = sum(count for text, count in zip(texts, counts, strict=True) if _PATTERN.fullmatch(text))
    return dated >= MOST * sum(counts)


_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "empty")
_TEXT = ("string", "mixed-integer", "mixed")
_LEVELS = ("boolean", "categorical")
NEARLY_ALL = 0.9


def kind(values: pd.Series) -> str:
    """Returns a column's kind: "numbers", "text", "levels", "dates" or the name of something else."""
    # Text may turn out to be numbers or dates; truth values and pandas categories are always levels.
    from pandas.api.types import infer_dtype

    inferred = infer_dtype(values, skipna=True)
    if inferred == "categorical" and kind(values.cat.categories.to_series()) == "dates":
        return "dates"
    if inferred == "mixed" and not all(isinstance(value, str | bool | int | float) for value in values.dropna()):
        return "mixed objects"
    for name, kinds in (("numbers", _NUMBERS), ("text", _TEXT), ("levels", _LEVELS), ("dates", TYPES)):
        if inferred in kinds:
            return name
    return inferred


def numbers(values: pd.Series) -> np.ndarray:
    """Returns a column of numbers as float64, NaN for missing values."""
    if getattr(values.dtype, "kind", "") in "iu":
        origin = first_indistinguishable(values.dropna().to_numpy())
        if origin is not None:
            raise DataError(
                f"the column {values.name!r} has whole numbers from {origin} on that differ by less than float64 "
                f"holds; subtract {origin} from them first"
            )
    try:
        return values.to_numpy(np.float64, na_value=np.nan)
    except OverflowError as error:
        raise DataError(f"the column {values.name!r} has a number beyond 1e308; correct it or drop the column") from (
            error
        )


@dataclass(frozen=True)
class Words:
    """A column of words: its levels, and each row's position among them."""

    levels: tuple[str, ...]  # the different words, sorted
    codes: np.ndarray  # the position of each row's word in `levels`, `[rows]`; -1 if it is missing

    @property
    def counts(self) -> np.ndarray:
        """The number of rows of each level."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels))

    @property
    def numbers(self) -> np.ndarray:
        """Each level as a number, which may be infinite; NaN for text, and for codes with leading zeros."""
        import pandas as pd

        if self.coded:
            return np.full(len(self.levels), np.nan)
        levels: Any = pd.Series(self.levels, dtype=object)
        return np.asarray(pd.to_numeric(levels, errors="coerce"), float)

    @property
    def texts(self) -> list[str | None]:
        """The words, row by row; None if missing."""
        return np.asarray([*self.levels, None], object)[self.codes].tolist()

    @property
    def parsed(self) -> np.ndarray:
        """The words as numbers, row by row, NaN if missing or not a number."""
        return np.append(self.numbers, np.nan)[self.codes]

    @property
    def coded(self) -> bool:
        """Whether the words are codes of digits, such as 02139, rather than numbers."""
        return is_code(self.levels)

    @property
    def readable(self) -> np.ndarray:
        """Whether each level is a number in a common notation, such as $1,200 or 12 %."""
        return np.asarray([written(level) is not None for level in self.levels], bool) & (not self.coded)

    def without(self, levels: Collection[str]) -> Words:
        """Returns the column with some of its levels set to missing."""
        kept_levels = [index for index, level in enumerate(self.levels) if level not in levels]
        places = np.full(len(self.levels) + 1, -1)
        places[kept_levels] = np.arange(len(kept_levels))
        return Words(tuple(self.levels[index] for index in kept_levels), places[self.codes])

    def spread(self, numbers: np.ndarray) -> pd.Series:
        """Returns numbers of the levels row by row, as a pandas Series, NaN if the word is missing."""
        import pandas as pd

        return pd.Series(np.append(np.asarray(numbers, float), np.nan)[self.codes])

    def series(self, values: pd.Series) -> pd.Series:
        """Returns the words as a pandas Series."""
        import pandas as pd

        return pd.Series(self.texts, index=values.index, name=values.name, dtype=object)

    def dated(self) -> bool:
        """Returns whether nearly all of the words are dates or times."""
        return look_like_dates(self.levels, self.counts.tolist())

    def stray(self) -> tuple[str, int] | None:
        """Returns the first word, and its row, of a column that is nearly all numbers; None for other columns."""
        # Common notations (1,5 or 12 % or $5) count as numbers.
        number = self.readable
        return self.first(number) if self._share(number) >= NEARLY_ALL and not number.all() else None

    def first(self, number: np.ndarray) -> tuple[str, int]:
        """Returns the first word that is not a number, and its row."""
        row = int(np.flatnonzero((self.codes >= 0) & ~number[self.codes])[0])
        return self.levels[self.codes[row]], row

    def _share(self, chosen: np.ndarray) -> float:
        return float(self.counts[chosen].sum()) / max(1, int(self.counts.sum()))


def words(values: pd.Series) -> Words:
    """Returns a column as words: truth values are "True" and "False", whole numbers have no decimal point."""
    import pandas as pd

    codes, uniques = pd.factorize(values)
    texts = [_text(value) for value in uniques.tolist()]
    levels = sorted(set(texts))
    position = {level: index for index, level in enumerate(levels)}
    places = np.asarray([*(position[text] for text in texts), -1], np.int64)  # the last is for missing values
    return Words(tuple(levels), places[codes])


def refuse_word(source: str, column: str, word: str, row: int) -> DataError:
    """Returns the error about a word among numbers."""
    return DataError(
        f"{source} has {quoted(word)} {at(row)} of the column {column!r}, which is of numbers; correct it, or leave "
        "the field empty if it is missing"
    )


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


MOST_LEVELS = 50  # more levels, in more than half as many rows, are names of the rows
_NAMED = re.compile(r"(?i:unnamed: \d+|index|row_?(names?|number|id)?|.*[ _.-]id|id|uuid|guid)|[a-z]+I[dD]")


def repeated_identifiers(source: Source, columns: Sequence[str]) -> list[str]:
    """Returns a sentence for each column that is called an identifier and names groups of rows."""
    whole = {name: source[name].dtype.kind in "iu" for name in columns if _NAMED.fullmatch(name)}
    notes = {True: "numbers; --categories {0} takes them as names, and", False: "categories;"}
    return [
        f"the column {name!r} is taken as {notes[number].format(name)} --groups {name} asks for predictions of new ones"
        for name, number in whole.items()
        if 2 < source[name].nunique() <= len(source[name]) / 2 and (number or kind(source[name]) == "text")
    ]


def identifiers(source: Source, columns: Sequence[str]) -> dict[str, str]:
    """Returns the features that identify rows, with a sentence about each."""
    # Text with more than fifty levels, more than one for every two rows; whole numbers without duplicates if
    # the column is called an identifier (`id`, `row`, `index`, `customer_id`, `Unnamed: 0`). A column of text
    # that is mostly numbers, or of dates, does not count: it is an error of its own.
    reasons = {}
    for name in columns:
        values, column_kind = source[name], kind(source[name])
        if column_kind == "numbers":
            if _NAMED.fullmatch(name) and values.dtype.kind in "iu" and MOST_LEVELS < len(values) == values.nunique():
                reasons[name] = f"the column {name!r} numbers the rows, left out as an identifier"
        elif column_kind == "text":
            column = words(values)
            levels, present = len(column.levels), int(column.counts.sum())
            number = column.counts[column.readable].sum()
            if names_rows(levels, present) and not column.dated() and 2 * number <= present:
                reasons[name] = (
                    f"the column {name!r} has {levels} different texts in {present} rows, such as "
                    f"{quoted(column.levels[0])}, left out as an identifier"
                )
    return reasons


def names_rows(levels: int, present: int) -> bool:
    """Returns whether a column with this many levels in this many rows probably names the rows."""
    return levels > MOST_LEVELS and 2 * levels > present


# A column becomes the days since the first training row, and \(\sin 2\pi p\) and \(\cos 2\pi p\) of the phases p of the
# year, of the week (from Monday on), and, if any row has a time, of the day.


_YEAR_FIRST = re.compile(r"([12]\d{3})[-/.](\d{1,2})[-/.](\d{1,2})(.*)")
_YEAR_LAST = re.compile(r"(\d{1,2})[-/.](\d{1,2})[-/.]([12]\d{3})(.*)")
_SHORT_YEAR = re.compile(r"\d{1,2}/\d{1,2}/\d{2}(\D.*)?")
_DAY_IN_NANOSECONDS = 86_400e9  # nanoseconds


@dataclass(frozen=True)
class DateColumn:
    """How a column of dates is read."""

    name: str  # the column
    origin: float  # days from 1970-01-01 to the first row
    times: bool  # whether rows have a time of the day
    day_first: bool | None = None  # whether 3/4/2019 is the third of April; None if no date has this form

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the resulting columns of numbers."""
        periods = ("year", "week", *(("day",) if self.times else ()))
        waves = (f"{self.name} ({wave} of the {period})" for period in periods for wave in ("sin", "cos"))
        return (f"{self.name} (days)", *waves)


def found_dates(source: Source, columns: Sequence[str]) -> tuple[DateColumn, ...]:
    """Returns the date columns among some columns, and how each is read."""
    dated = []
    for name in columns:
        values = source[name]
        column_kind = kind(values)
        if column_kind != "dates" and not (column_kind == "text" and words(values).dated()):
            continue
        day_first = _day_first(source, name) if column_kind == "text" else None
        days = _days(source, name, day_first)
        times = bool((days[~np.isnan(days)] % 1 > 0).any())
        dated.append(DateColumn(name, float(np.floor(np.nanmin(days))), times, day_first))
    return tuple(dated)


def days(source: Source, name: str) -> np.ndarray:
    """Returns a column of numbers, or the days since 1970-01-01 of one of dates; NaN if missing."""
    if kind(source[name]) == "numbers":
        return numbers(source[name])
    return _days(source, name, _day_first(source, name) if kind(source[name]) == "text" else None)


def expanded(source: Source, dates: Sequence[DateColumn], kept: Collection[str] = ()) -> Source:
    """Returns the table with its date columns replaced by numbers; those of `kept` stay beside these."""
    import pandas as pd

    by_name = {date.name: date for date in dates}
    if not by_name:
        return source
    columns: dict[str, pd.Series | np.ndarray] = {}
    for name in source.names:
        if name in by_name:
            columns |= zip(by_name[name].columns, _numbers(source, by_name[name]), strict=True)
        if name not in by_name or name in kept:
            columns[name] = source[name]
    return replace(source, frame=pd.DataFrame(columns, index=source.frame.index))


def _numbers(source: Source, date: DateColumn) -> list[np.ndarray]:
    days = _days(source, date.name, date.day_first)
    missing = np.isnan(days)
    stamps = (np.where(missing, 0.0, days) * _DAY_IN_NANOSECONDS).astype("datetime64[ns]")
    year = stamps.astype("datetime64[Y]")
    first, following = ((year + shift).astype("datetime64[D]").astype(float) for shift in (0, 1))
    phases = [
        (days - first) / (following - first),
        (days + 3.0) / 7.0,
        *([days] if date.times else []),
    ]  # Thursday is 0
    return [days - date.origin, *(wave(2 * np.pi * (phase % 1)) for phase in phases for wave in (np.sin, np.cos))]


def _days(source: Source, name: str, day_first: bool | None) -> np.ndarray:
    """Returns days since 1970-01-01, with their fractions, NaN if missing."""
    import pandas as pd

    values = source[name]
    if isinstance(values.dtype, pd.PeriodDtype):
        values = values.dt.to_timestamp()
    if kind(values) == "text":
        column, day_first = words(values), _day_first(source, name) if day_first is None else day_first
        stamps = [_stamp(source, name, text, day_first) for text in column.levels]
        return np.append(np.asarray(stamps, float), np.nan)[column.codes]
    try:
        stamps = pd.to_datetime(values, utc=True)
    except (TypeError, ValueError) as error:
        raise _no_date(source, name, str(values.dropna().iloc[0])) from error
    stamps_in_ns = stamps.dt.tz_localize(None).astype("datetime64[ns]").to_numpy()
    return np.where(np.isnat(stamps_in_ns), np.nan, stamps_in_ns.astype(np.int64) / _DAY_IN_NANOSECONDS)


def _stamp(source: Source, name: str, text: str, day_first: bool | None) -> float:
    import pandas as pd

    written, last = text, _YEAR_LAST.fullmatch(text)
    if first := _YEAR_FIRST.fullmatch(text):
        written = f"{first[1]}-{int(first[2]):02d}-{int(first[3]):02d}{first[4]}"
    elif last:
        day, month = (last[1], last[2]) if day_first else (last[2], last[1])
        written = f"{last[3]}-{int(month):02d}-{int(day):02d}{last[4]}"
    elif not re.search(r"[12]\d{3}", text):
        raise _no_date(source, name, text)
    try:
        return pd.Timestamp(pd.to_datetime(written, utc=True)).value / _DAY_IN_NANOSECONDS
    except (TypeError, ValueError) as error:
        raise _no_date(source, name, text) from error


def _day_first(source: Source, name: str) -> bool | None:
    """Returns whether dates that end in their year begin with the day; None if there are none."""
    matches = [match for text in words(source[name]).levels if (match := _YEAR_LAST.fullmatch(text))]
    if not matches:
        return None
    day_first, month_first = any(int(match[1]) > 12 for match in matches), any(int(match[2]) > 12 for match in matches)
    if day_first == month_first:
        raise DataError(
            f"{source.name} has dates such as {quoted(matches[0][0])} in the column {name!r}, of which day and month "
            "cannot be told apart; write them as year-month-day"
        )
    return day_first


def _no_date(source: Source, name: str, text: str) -> DataError:
    way = "write the year with four digits" if _SHORT_YEAR.fullmatch(text) else "write it as year-month-day"
    return DataError(f"{source.name} has {quoted(text)} in the column {name!r} of dates, which is not a date; {way}")
