"""Columns that name the rows: a model that learns from them learns the rows by heart."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lamu.data.columns import kind, words
from lamu.data.sources import Source
from lamu.data.wording import quoted

__all__ = ["MOST_LEVELS", "identifiers", "names_rows"]

MOST_LEVELS = 50  # a column of text with more, of which more than half the rows have one of their own, names rows
_NAMED = re.compile(r"(?i:unnamed: \d+|index|row_?(names?|number|id)?|.*[ _.-]id|id|uuid|guid)|[a-z]+I[dD]")


def identifiers(source: Source, columns: Sequence[str]) -> dict[str, str]:
    """Returns the features that name rows, with a sentence about each."""
    # Text does with more than fifty levels, more than one for every two rows; whole numbers do where no two rows share
    # one and the column is called an identifier (`id`, `row`, `index`, `customer_id`, `Unnamed: 0`). A column of text
    # that is mostly numbers, or of dates, is none: it is an error of its own.
    found = {}
    for name in columns:
        values, of = source.frame[name], kind(source.frame[name])
        if of == "numbers":
            if _NAMED.fullmatch(name) and values.dtype.kind in "iu" and MOST_LEVELS < len(values) == values.nunique():
                found[name] = f"the column {name!r} numbers the rows, left out as an identifier"
        elif of == "text":
            column = words(values)
            levels, present = len(column.levels), int(column.counts.sum())
            number = column.counts[column.readable].sum()
            if names_rows(levels, present) and not column.dated() and 2 * number <= present:
                found[name] = (
                    f"the column {name!r} has {levels} different texts in {present} rows, such as "
                    f"{quoted(column.levels[0])}, left out as an identifier"
                )
    return found


def names_rows(levels: int, present: int) -> bool:
    """Returns whether so many levels in so many rows look like names of the rows."""
    return levels > MOST_LEVELS and 2 * levels > present
