"""How a message about a table is worded: values quoted, lists cut short, rows counted as the predictions count them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["DataError", "at", "counted", "listed", "plural", "quoted"]

LONGEST = 60  # characters of a quoted value


class DataError(ValueError):
    """A table that cannot be used as it is: one sentence that quotes the value and says what to do."""


def plural(noun: str, items: Any) -> str:
    """Returns the noun, with an s unless there is exactly one item.

    Args:
        noun: the noun, in the singular.
        items: what is counted: anything with a length, or the number itself.

    Examples:
        >>> from lamu.data.wording import plural
        >>> plural("column", ["a", "b"]), plural("row", 1)
        ('columns', 'row')
    """
    return noun if (items if isinstance(items, int) else len(items)) == 1 else f"{noun}s"


def quoted(value: Any) -> str:
    """Returns a value as it would be typed, cut where it is long.

    Args:
        value: anything.

    Examples:
        >>> from lamu.data.wording import quoted
        >>> quoted("six"), len(quoted("x" * 1000))
        ("'six'", 62)
    """
    text = str(value)
    shown = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    return repr(shown) if isinstance(value, str) else shown


def listed(items: Sequence[Any], most: int = 10) -> str:
    """Returns the items, quoted and separated by commas, with the number of those beyond `most`.

    Args:
        items: what to list.
        most: how many are shown.

    Examples:
        >>> from lamu.data.wording import listed
        >>> listed(["a", "b", "c"], most=2)
        "'a', 'b' and 1 more"
    """
    shown = ", ".join(map(quoted, items[:most]))
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"


def counted(items: Iterable[tuple[str, Any]], most: int = 10) -> str:
    """Returns names, each with what belongs to it in brackets.

    Args:
        items: pairs of a name and its number or remark.
        most: how many are shown.

    Examples:
        >>> from lamu.data.wording import counted
        >>> counted([("age", 3), ("sex", 1)])
        "'age' (3), 'sex' (1)"
    """
    pairs = list(items)
    shown = ", ".join(f"{quoted(name)} ({remark})" for name, remark in pairs[:most])
    return shown if len(pairs) <= most else f"{shown} and {len(pairs) - most} more"


def at(row: int) -> str:
    """Returns where a row of data is; rows are counted as in the files of predictions.

    Args:
        row: its index.

    Examples:
        >>> from lamu.data.wording import at
        >>> at(7)
        'in row 7 (the first is 0)'
    """
    return f"in row {row} (the first is 0)"
