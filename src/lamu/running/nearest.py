"""The nearest choice that fits, for a run that does not: what is tried is foreseen as the run itself was."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from lamu import memory
from lamu.algorithms.optimisers.adam import adam
from lamu.algorithms.variational.ivon import ivon
from lamu.algorithms.variational.von import von
from lamu.data.arrays import Arrays
from lamu.operators import Dense

__all__ = ["nearest"]

_HALVINGS = 2  # each is a trace
# How many of something an algorithm holds at once, by the name that its user gives it.
_COUNTS = ("members", "components", "chains", "rank", "draws")


@dataclass(frozen=True)
class _Knob:
    """A whole number that decides how much is held.

    Attributes:
        name: as its user writes it.
        value: what it is.
        paths: the fields that lead to it from the algorithm, for each place that holds it; none for the batch size.
    """

    name: str
    value: int
    paths: tuple[tuple[str, ...], ...] = ()

    def turned(self, run: Any, value: int) -> Any:
        """Returns the run with another value."""
        if not self.paths:
            return replace(run, batch_size=value)
        algorithm = run.algorithm
        for path in self.paths:
            algorithm = _with(algorithm, path, value)
        return replace(run, algorithm=algorithm)


def nearest(run: Any, found: Any, limit: int) -> str:
    """Returns what to give in the place of a run that does not fit: the smallest change that does.

    Draws go to a folder where that is enough. Else of all numbers that can be lowered the one that is lowered least,
    in proportion, is named; else another algorithm; else the limit that the run needs.

    Args:
        run: a `lamu.running.forecast.Run`.
        found: its forecast.
        limit: what may be used, in bytes.
    """
    if found.draws and not run.on_disk:
        stored = replace(run, on_disk=True)
        if _taken(stored) <= limit:
            return f"give checkpoint=folder, where draws are kept on disk, which takes {memory.shown(_taken(stored))}"
    choices = []
    for knob in _knobs(run):
        value = _largest(run, knob, found.total, limit)
        if value is not None:
            choices.append((value / knob.value, knob, value))
    if choices:
        _, knob, value = max(choices, key=lambda choice: choice[0])
        return f"give {knob.name}={value}, which takes {memory.shown(_turned(run, knob, value))}"
    if run.algorithm.traits.length is None:
        for words, algorithm in _others(run.algorithm):
            taken = _taken(replace(run, algorithm=algorithm))
            if taken <= limit:
                return f"take {words}, which takes {memory.shown(taken)}"
    return f"nothing smaller fits; give max_memory={memory.at_least(found.total)!r} or more"


def _taken(run: Any) -> int | float:
    """What a run takes; infinite for one that the model refuses."""
    try:
        return run.forecast().total
    except (TypeError, ValueError):
        return float("inf")


def _turned(run: Any, knob: _Knob, value: int) -> int | float:
    """What a run takes with a number at another value; infinite where the algorithm refuses that."""
    try:
        return _taken(knob.turned(run, value))
    except ValueError:
        return float("inf")


def _largest(run: Any, knob: _Knob, taken: int, limit: int) -> int | None:
    """Returns the largest value found under which the run fits; None where even one does not."""
    lowest = 1 if _turned(run, knob, 1) < float("inf") else 2
    least = _turned(run, knob, lowest)
    if least > limit or lowest >= knob.value:
        return None
    # What a run takes is nearly linear in such a number; where it is not, the guess is mended by halves.
    low, high = lowest, knob.value
    value = lowest + int((high - lowest) * (limit - least) / max(taken - least, 1))
    for _ in range(_HALVINGS):
        value = min(max(value, low), high - 1)
        if value == low:
            break
        low, high = (value, high) if _turned(run, knob, value) <= limit else (low, value)
        value = (low + high) // 2
    return low


def _knobs(run: Any) -> Iterator[_Knob]:
    """Yields the numbers that can be lowered, each above one."""
    if isinstance(run.rows, Arrays) and run.algorithm.traits.batching != "full" and run.batch_size > 1:
        yield _Knob("batch_size", min(run.batch_size, run.rows.count))
    places: dict[tuple[str, int], list[tuple[str, ...]]] = {}
    for path, value in _counts(run.algorithm, ()):
        places.setdefault((path[-1], value), []).append(path)
    for (name, value), paths in places.items():
        yield _Knob(name, value, tuple(paths))


def _counts(part: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yields the numbers that an algorithm holds of something, and where they stand in it."""
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        return
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        here = (*path, field.name)
        # Only a sampler holds its draws: those of an expectation come one after the other.
        held = field.name in _COUNTS and (field.name != "draws" or not path)
        if held and isinstance(value, int) and not isinstance(value, bool) and value > 1:
            yield here, value
        yield from _counts(value, here)


def _with(part: Any, path: tuple[str, ...], value: int) -> Any:
    name, *rest = path
    return replace(part, **{name: _with(getattr(part, name), tuple(rest), value) if rest else value})


def _others(algorithm: Any) -> Iterator[tuple[str, Any]]:
    if getattr(algorithm, "structure", None) is Dense:
        yield "lamu.algorithms.von(), whose precision is diagonal", von()
    yield "lamu.algorithms.ivon(), a diagonal belief", ivon()
    yield "lamu.algorithms.adam(), which knows no uncertainty", adam()
