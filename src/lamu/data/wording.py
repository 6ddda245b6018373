"""Wording of messages: quoted values, truncated lists, the nearest known name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from difflib import get_close_matches
from typing import Any

import numpy as np

__all__ = ["DataError", "at", "counted", "figure", "getattr_or_substitute", "listed", "nearest", "plural", "quoted"]


def nearest(name: str, known: Iterable[str], other_names: Mapping[str, Sequence[str]] | None = None) -> str:
    """Returns the end of a sentence about an unknown name: the nearest known one, or all of them if none is near."""
    # `other_names`: by a known name, what others call it.
    names = list(known)
    spelt = name.casefold().replace(" ", "_").replace("-", "_")
    called = [own for own, others in (other_names or {}).items() if spelt in others and own in names]
    if called:
        return f"did you mean {called[0]!r}?"
    by_folded = {candidate.casefold(): candidate for candidate in names}
    close = get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.5)
    return f"did you mean {by_folded[close[0]]!r}?" if close else f"choose one of {', '.join(map(repr, names))}"


def getattr_or_substitute(owner: object, name: str, places: Mapping[str, str]) -> Any:
    """Raises the AttributeError of a missing attribute, for `__getattr__`: names the place of its substitute."""
    if name in places:
        raise AttributeError(f"{type(owner).__name__} has no {name!r}; write {places[name]}", name=name, obj=owner)
    return object.__getattribute__(owner, name)


LONGEST = 60  # characters of a quoted value


class DataError(ValueError):
    """A table that cannot be used: one sentence that quotes the value and says what to do."""


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Returns lines of words as a table, with each column as wide as its longest word."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(w.ljust(n) for w, n in zip(line, widths, strict=True)).rstrip() for line in lines)


def plural(noun: str, items: int | Sized) -> str:
    """Returns the noun, with an s unless there is exactly one item."""
    return noun if (items if isinstance(items, int) else len(items)) == 1 else f"{noun}s"


def quoted(value: object) -> str:
    """Returns a value as it would be typed, truncated if long."""
    text = str(value)
    shown = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    return repr(shown) if isinstance(value, str) else shown


def figure(value: object) -> str:
    """Returns a number with four digits for display; anything else as its text."""
    return f"{float(value):.4g}" if isinstance(value, float | np.floating) else str(value)


def listed(items: Sequence[object], most: int = 10) -> str:
    """Returns the items, quoted and separated by commas, with the number of those beyond `most`."""
    shown = ", ".join(map(quoted, items[:most]))
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"


def counted(items: Iterable[tuple[str, object]], most: int = 10) -> str:
    """Returns names, each with its remark in brackets."""
    pairs = list(items)
    shown = ", ".join(f"{quoted(name)} ({remark})" for name, remark in pairs[:most])
    return shown if len(pairs) <= most else f"{shown} and {len(pairs) - most} more"


def at(row: int) -> str:
    """Returns the place of a row; rows are counted as in the files of predictions."""
    return f"in row {row} (the first is 0)"
