"""Laws, the rows that must obey them, and the broken twins that prove a law can fail.

A *kind* is a floor of the library (operators, families, algorithms, …). A file of this folder registers, for its kind:

* rows: the objects of the library, each under a name and with the traits that choose its laws;
* traits: the words that say which laws a row has; another word than these is a slip of the pen, and an error;
* laws: functions of a row that raise AssertionError where the row breaks them. A law that is not for every row says, in
  `when`, which trait makes it so;
* twins: rows that were broken on purpose, one likely fault each, with the laws that must reject them.

`test_laws.py` runs every law on every row, and every twin against its laws, and the run ends with the count of twins
planted, and of rejections by each law. A twin that a law lets pass fails the run: so does a law without a twin. A twin
counts as rejected by an assertion of the law alone: one that cannot be run, or on which the library's own code gives
up, was not judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["LAWS", "ROWS", "TRAITS", "TWINS", "Law", "Row", "Twin", "law", "row", "twin", "vocabulary"]


@dataclass(frozen=True)
class Row:
    """A subject of the laws: an object of the library, with what its laws need to know.

    The trait "long", which every kind has, leaves a row's laws to `make laws`.
    """

    kind: str
    name: str
    subject: Any
    traits: frozenset[str] = frozenset()
    extras: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Law:
    """A statement about every row of a kind that has the traits it needs."""

    kind: str
    name: str
    check: Callable[[Row], None]
    when: frozenset[str] = frozenset()

    def applies(self, row: Row) -> bool:
        """Whether the row declares every trait that the law is for."""
        return self.when <= row.traits


@dataclass(frozen=True)
class Twin:
    """A row broken on purpose: the fault, and the laws that must see it."""

    row: Row
    fault: str
    laws: tuple[str, ...]


ROWS: list[Row] = []
LAWS: list[Law] = []
TWINS: list[Twin] = []
TRAITS: dict[str, frozenset[str]] = {}


def vocabulary(kind: str, words: str) -> None:
    """Declares the words that a kind's rows may have, separated by spaces."""
    TRAITS[kind] = frozenset(words.split())


def _read(kind: str, words: str) -> frozenset[str]:
    """The words as a set, all of them declared: a misspelt trait would take its laws away from a row in silence."""
    known = TRAITS.get(kind, frozenset()) | {"long"}
    for word in words.split():
        if word not in known:
            raise ValueError(f"{word!r} is no trait of the kind {kind!r}; it has {', '.join(sorted(known))}")
    return frozenset(words.split())


def row(kind: str, name: str, subject: Any, traits: str = "", **extras: Any) -> Row:
    """Registers a row; traits are words separated by spaces."""
    made = Row(kind, name, subject, _read(kind, traits), extras)
    ROWS.append(made)
    return made


def law(kind: str, when: str = "") -> Callable[[Callable[[Row], None]], Callable[[Row], None]]:
    """Registers the decorated function as a law of a kind, for the rows that have all the traits in `when`."""

    traits = _read(kind, when)

    def register(check: Callable[[Row], None]) -> Callable[[Row], None]:
        LAWS.append(Law(kind, check.__name__, check, traits))
        return check

    return register


def twin(of: Row, fault: str, laws: str, subject: Any, **extras: Any) -> None:
    """Plants a broken twin of a row, with the names of the laws that must reject it."""
    broken = Row(of.kind, f"{of.name}, {fault}", subject, of.traits, {**of.extras, **extras})
    TWINS.append(Twin(broken, fault, tuple(laws.split())))
