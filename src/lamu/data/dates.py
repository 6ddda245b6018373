"""Dates and times among the values of a column: told by their type, or by how nearly all of the texts are written."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["ADVICE", "OPTION", "TYPES", "look_like_dates"]

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
    """Returns whether nearly all values of a column of text are dates or times."""
    # Plain numbers never are, not even 2019 and 20190331, nor are codes such as "A12" or "1.2.3".
    if not any(counts):
        return False
    dated = sum(count for text, count in zip(texts, counts, strict=True) if _PATTERN.fullmatch(text))
    return dated >= MOST * sum(counts)
