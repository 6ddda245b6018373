"""The name that somebody probably meant, for every message about a name that is not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

__all__ = ["elsewhere", "nearest"]


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the end of a sentence about an unknown name: the nearest known one, or all of them where none is near."""
    names = list(known)
    by_folded = {candidate.casefold(): candidate for candidate in names}
    close = get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.5)
    if close:
        return f"did you mean {by_folded[close[0]]!r}?"
    return f"choose one of {', '.join(map(repr, names))}"


def elsewhere(owner: Any, name: str, places: Mapping[str, str]) -> Any:
    """Answers for an attribute that an object lacks, in its `__getattr__`: says where what is meant can be found."""
    if name in places:
        raise AttributeError(f"{type(owner).__name__} has no {name!r}; write {places[name]}", name=name, obj=owner)
    return object.__getattribute__(owner, name)
