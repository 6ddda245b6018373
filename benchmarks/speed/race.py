"""Rows of the table: each is a race between sides, which first shows that they compute the same."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.speed.timing import Side, Worker

__all__ = ["Growth", "Race", "Row", "growth", "row", "rows"]


@dataclass(frozen=True)
class Race:
    """What a row times.

    Args:
        ours: Lamu's sides.
        theirs: the peers'.
        unit: of what the seconds are: "step", "sweep", "effective draw".
        same: what was compared of the results, and how near they are.
        rounds: turns of each side, after the first.
        workers: processes to end.
        notes: sentences for the table, such as a peer that cannot be installed.
        figures: further numbers by what they are, made after the turns.
        first: what the first turn of a side is, where it is not that its programs are compiled.
        spins: whether a peer's threads spin while they wait for each other, which a busy machine makes slow.
    """

    ours: Sequence[Side]
    theirs: Sequence[Side]
    unit: str
    same: str
    rounds: int = 10
    workers: Sequence[Worker] = ()
    notes: Sequence[str] = ()
    figures: Callable[[], dict[str, float]] = dict
    first: str = "compiles"
    spins: bool = False


@dataclass(frozen=True)
class Row:
    """A row by its name: how its race is made, and whether the quick table has it."""

    name: str
    title: str
    build: Callable[[bool], Race]
    quick: bool
    why: str = ""


@dataclass(frozen=True)
class Growth:
    """How times grow with a size: a race at each of the sizes, and the exponents fitted to their times."""

    name: str
    title: str
    size: str
    sizes: Sequence[int]
    build: Callable[[int], Race]
    quick: bool = False
    why: str = field(default="")


REGISTRY: dict[str, Row | Growth] = {}


def row(name: str, title: str, *, quick: bool = True, why: str = "") -> Callable[[Any], Any]:
    """Registers a function of `quick` that returns a race.

    Args:
        name: by which `--rows` chooses it.
        title: of the table.
        quick: whether `--quick` runs it.
        why: a sentence for a ratio above 1.3, shown only then.
    """

    def register(build: Callable[[bool], Race]) -> Callable[[bool], Race]:
        if name in REGISTRY:
            raise ValueError(f"two rows are named {name!r}")
        REGISTRY[name] = Row(name, title, build, quick, why)
        return build

    return register


def growth(name: str, title: str, size: str, sizes: Sequence[int], *, quick: bool = False) -> Callable[[Any], Any]:
    """Registers a function of a size that returns a race.

    Args:
        name: by which `--rows` chooses it.
        title: of the table.
        size: what grows: "parameters", "rows".
        sizes: at which it is timed.
        quick: whether `--quick` runs it.
    """

    def register(build: Callable[[int], Race]) -> Callable[[int], Race]:
        if name in REGISTRY:
            raise ValueError(f"two rows are named {name!r}")
        REGISTRY[name] = Growth(name, title, size, sizes, build, quick)
        return build

    return register


def rows() -> dict[str, Row | Growth]:
    """Returns all rows by name, in the order of their files."""
    from benchmarks.speed import rows as folder

    for module in pkgutil.iter_modules(folder.__path__, folder.__name__ + "."):
        importlib.import_module(module.name)
    return dict(REGISTRY)


def file_of(entry: Row | Growth) -> str:
    """Returns the module that a row is written in."""
    return entry.build.__module__
