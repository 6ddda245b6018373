"""The name that somebody probably meant, for every message about a name that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["nearest"]


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the end of a sentence about an unknown name: the nearest known one, or all of them where none is near.

    Args:
        name: what was asked for.
        known: the names that exist.

    Returns:
        A clause that fits behind a semicolon.

    Examples:
        >>> from lamu.data.spelling import nearest
        >>> nearest("digit", ["digits", "iris"])
        "did you mean 'digits'?"
        >>> nearest("xyz", ["digits", "iris"])
        "choose one of 'digits', 'iris'"
    """
    names = list(known)
    by_folded = {candidate.casefold(): candidate for candidate in names}
    close = get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.5)
    if close:
        return f"did you mean {by_folded[close[0]]!r}?"
    return f"choose one of {', '.join(map(repr, names))}"
