"""Runs the rows of one file in one process, each of whose JSON is written when it is done."""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.environments import Missing
from benchmarks.speed.machine import Load, commit, counted
from benchmarks.speed.race import Growth, Race, Row, rows
from benchmarks.speed.timing import CLOCKS, Side, Turn, alternate, ratio

__all__ = ["exponent", "measure", "write"]

LIMITS = {True: 20.0, False: 300.0}  # seconds of the rounds of a quick row, and of another


def write(path: Path, result: dict[str, Any]) -> None:
    """Writes a row's JSON, whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1, ensure_ascii=False), encoding="utf-8")
    part.replace(path)


def seconds(turns: Sequence[Turn], clock: str) -> dict[str, float]:
    """Returns mean, median and the 10 % and 90 % quantiles of seconds a unit."""
    each = [turn.per_unit(clock) for turn in turns]
    low, high = np.quantile(each, [0.1, 0.9])
    mean = sum(getattr(turn, clock) for turn in turns) / sum(turn.units for turn in turns)
    return {"mean": float(mean), "median": float(np.median(each)), "low": float(low), "high": float(high)}


def side(entry: Side, turns: Sequence[Turn], first: str) -> dict[str, Any]:
    """Returns the JSON of a side."""
    again = turns[1:]
    told: dict[str, Any] = {"name": entry.name, "rounds": len(again), "first_wall": turns[0].wall}
    told |= {clock: seconds(again, clock) for clock in CLOCKS}
    if first == "compiles":
        usual = [float(np.median([getattr(turn, clock) for turn in again])) for clock in CLOCKS]
        told["compile"] = {
            clock: max(0.0, getattr(turns[0], clock) - usual) for clock, usual in zip(CLOCKS, usual, strict=True)
        }
    held = [turn.peak for turn in turns if turn.peak is not None]
    told["peak"] = max(held) if held else None
    if entry.program is not None:
        counts = told["counts"] = counted(entry.program)
        if told["peak"] is None:
            told["peak"] = counts["bytes"] + counts["temporary"]
    return told


def compare(sides: Sequence[Side], turns: Sequence[Sequence[Turn]], ours: int) -> list[dict[str, Any]]:
    """Returns the ratios of each of our sides to each of the peers'."""
    found = []
    for mine in range(ours):
        for peer in range(ours, len(sides)):
            told: dict[str, Any] = {"ours": sides[mine].name, "theirs": sides[peer].name}
            for clock in CLOCKS:
                for statistic in ("median", "mean"):
                    told[f"{clock}_{statistic}"] = vars(ratio(turns[mine][1:], turns[peer][1:], clock, statistic))
            told["first"] = turns[mine][0].per_unit("wall") / turns[peer][0].per_unit("wall")
            found.append(told)
    return found


def time_race(race: Race, limit: float) -> dict[str, Any]:
    """Times a race, and returns its JSON."""
    sides = [*race.ours, *race.theirs]
    try:
        turns = alternate(sides, race.rounds, limit)
        figures = race.figures()
    finally:
        for worker in race.workers:
            worker.close()
    return {
        "unit": race.unit,
        "same": race.same,
        "notes": list(race.notes),
        "first": race.first,
        "spins": race.spins,
        "sides": [side(entry, made, race.first) for entry, made in zip(sides, turns, strict=True)],
        "ratios": compare(sides, turns, len(race.ours)),
        "figures": figures,
    }


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Returns b of times that grow as size to the power b, by least squares of their logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def grow(entry: Growth) -> dict[str, Any]:
    """Times a race at each size, and returns the JSON of all, with the exponents."""
    races = [time_race(entry.build(size), LIMITS[True]) for size in entry.sizes]
    curves = {}
    for index, told in enumerate(races[0]["sides"]):
        times = [race["sides"][index]["wall"]["median"] for race in races]
        curves[told["name"]] = {"seconds": times, "exponent": exponent(entry.sizes, times)}
    keep = {key: races[0][key] for key in ("unit", "same", "notes")}
    return {**keep, "size": entry.size, "sizes": list(entry.sizes), "curves": curves}


def measure(entry: Row | Growth, quick: bool) -> dict[str, Any]:
    """Returns the JSON of a row. A peer that cannot be had, or a row that fails, is a sentence in it."""
    begun = time.perf_counter()
    told: dict[str, Any] = {
        "name": entry.name,
        "title": entry.title,
        "why": entry.why,
        "quick": quick,
        "commit": commit(),
    }
    try:
        with Load() as load:
            told |= grow(entry) if isinstance(entry, Growth) else time_race(entry.build(quick), LIMITS[quick])
        told["others"] = load.cores
    except Missing as reason:
        told["missing"] = str(reason)
    except Exception as error:
        traceback.print_exc()
        told["failed"] = f"{type(error).__name__}: {str(error)[:300]}"
    return {**told, "seconds": time.perf_counter() - begun, "date": time.strftime("%Y-%m-%d %H:%M")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    known = rows()
    for name in given.rows:
        told = measure(known[name], given.quick)
        write(given.out / f"{name}.json", told)
        print(line(told), flush=True)


def line(told: dict[str, Any]) -> str:
    """Returns what a terminal shows of a row."""
    start = f"{told['name']:28}{told['seconds']:6.0f} s  "
    for key in ("missing", "failed"):
        if key in told:
            return start + told[key]
    if "curves" in told:
        return start + ", ".join(f"{name}: {curve['exponent']:.2f}" for name, curve in told["curves"].items())
    return start + "; ".join(
        f"{each['ours']} / {each['theirs']} {each['wall_median']['value']:.2f}" for each in told["ratios"]
    )


if __name__ == "__main__":
    sys.exit(main())
