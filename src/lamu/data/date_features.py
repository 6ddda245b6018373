"""Dates and times as numbers: the age of a row, and where it lies in the year, in the week and in the day."""

# A column becomes the days since the first training row, and \(\sin 2\pi p\) and \(\cos 2\pi p\) of the phases p of the
# year, of the week (from Monday on), and, where a row has a time, of the day.

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lamu.data.columns import kind, words
from lamu.data.sources import Source
from lamu.data.wording import DataError, quoted

__all__ = ["DateColumn", "expanded", "found_dates"]

_YEAR_FIRST = re.compile(r"([12]\d{3})[-/.](\d{1,2})[-/.](\d{1,2})(.*)")
_YEAR_LAST = re.compile(r"(\d{1,2})[-/.](\d{1,2})[-/.]([12]\d{3})(.*)")
_SHORT_YEAR = re.compile(r"\d{1,2}/\d{1,2}/\d{2}(\D.*)?")
_DAY = 86_400e9  # nanoseconds


@dataclass(frozen=True)
class DateColumn:
    """How a column of dates is read."""

    name: str  # the column
    origin: float  # days from 1970-01-01 to the first row
    times: bool  # whether rows have a time of the day
    day_first: bool | None = None  # whether 3/4/2019 is the third of April; None where no date is written so

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the numbers that it becomes."""
        periods = ("year", "week", *(("day",) if self.times else ()))
        waves = (f"{self.name} ({wave} of the {period})" for period in periods for wave in ("sin", "cos"))
        return (f"{self.name} (days)", *waves)


def found_dates(source: Source, columns: Sequence[str]) -> tuple[DateColumn, ...]:
    """Returns the columns of dates among some columns, and how each is read."""
    found = []
    for name in columns:
        values = source.frame[name]
        of = kind(values)
        if of != "dates" and not (of == "text" and words(values).dated()):
            continue
        day_first = _day_first(source, name) if of == "text" else None
        days = _days(source, name, day_first)
        times = bool((days[~np.isnan(days)] % 1 > 0).any())
        found.append(DateColumn(name, float(np.floor(np.nanmin(days))), times, day_first))
    return tuple(found)


def expanded(source: Source, dates: Sequence[DateColumn]) -> Source:
    """Returns the table with numbers in the place of its columns of dates."""
    import pandas as pd

    by_name = {each.name: each for each in dates}
    if not by_name:
        return source
    columns: dict[str, Any] = {}
    for name in source.names:
        if name in by_name:
            columns |= zip(by_name[name].columns, _numbers(source, by_name[name]), strict=True)
        else:
            columns[name] = source.frame[name]
    return replace(source, frame=pd.DataFrame(columns, index=source.frame.index))


def _numbers(source: Source, of: DateColumn) -> list[np.ndarray]:
    days = _days(source, of.name, of.day_first)
    missing = np.isnan(days)
    stamps = (np.where(missing, 0.0, days) * _DAY).astype("datetime64[ns]")
    year = stamps.astype("datetime64[Y]")
    first, following = ((year + shift).astype("datetime64[D]").astype(float) for shift in (0, 1))
    phases = [(days - first) / (following - first), (days + 3.0) / 7.0, *([days] if of.times else [])]  # Thursday is 0
    return [days - of.origin, *(wave(2 * np.pi * (phase % 1)) for phase in phases for wave in (np.sin, np.cos))]


def _days(source: Source, name: str, day_first: bool | None) -> np.ndarray:
    """Days since 1970-01-01, with their fractions, NaN where one is missing."""
    import pandas as pd

    values = source.frame[name]
    if isinstance(values.dtype, pd.PeriodDtype):
        values = values.dt.to_timestamp()
    if kind(values) == "text":
        column = words(values)
        stamps = [_stamp(source, name, text, day_first) for text in column.levels]
        return np.append(np.asarray(stamps, float), np.nan)[column.codes]
    try:
        stamps = pd.to_datetime(values, utc=True)
    except (TypeError, ValueError) as error:
        raise _no_date(source, name, str(values.dropna().iloc[0])) from error
    whole = stamps.dt.tz_localize(None).astype("datetime64[ns]").to_numpy()
    return np.where(np.isnat(whole), np.nan, whole.astype(np.int64) / _DAY)


def _stamp(source: Source, name: str, text: str, day_first: bool | None) -> float:
    import pandas as pd

    written, last = text, _YEAR_LAST.fullmatch(text)
    if found := _YEAR_FIRST.fullmatch(text):
        written = f"{found[1]}-{int(found[2]):02d}-{int(found[3]):02d}{found[4]}"
    elif last:
        day, month = (last[1], last[2]) if day_first else (last[2], last[1])
        written = f"{last[3]}-{int(month):02d}-{int(day):02d}{last[4]}"
    elif not re.search(r"[12]\d{3}", text):
        raise _no_date(source, name, text)
    try:
        return pd.Timestamp(pd.to_datetime(written, utc=True)).value / _DAY
    except (TypeError, ValueError) as error:
        raise _no_date(source, name, text) from error


def _day_first(source: Source, name: str) -> bool | None:
    """Whether dates that end in their year begin with the day; None where there are none."""
    found = [match for text in words(source.frame[name]).levels if (match := _YEAR_LAST.fullmatch(text))]
    if not found:
        return None
    day_first, month_first = any(int(each[1]) > 12 for each in found), any(int(each[2]) > 12 for each in found)
    if day_first == month_first:
        raise DataError(
            f"{source.name} has dates such as {quoted(found[0][0])} in the column {name!r}, of which day and month "
            "cannot be told apart; write them as year-month-day"
        )
    return day_first


def _no_date(source: Source, name: str, text: str) -> DataError:
    way = "write the year with four digits" if _SHORT_YEAR.fullmatch(text) else "write it as year-month-day"
    return DataError(f"{source.name} has {quoted(text)} in the column {name!r} of dates, which is no date; {way}")
