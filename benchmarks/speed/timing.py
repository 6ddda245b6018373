"""The interleaved timer: programs timed in turn, and ratios of their times with intervals.

A turn is one call of one side; a round is a turn of every side, in an order that is reversed from round to round, so
that a drifting machine cancels out of the ratios. A side is anything that returns turns: a function of this process, a
command that is started anew, or a worker process that waits between its turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Interval", "Side", "Turn", "Worker", "alternate", "carried", "command", "here", "ratio"]

ROOT = Path(__file__).parents[2]
CLOCKS = ("wall", "processor")
RESAMPLES = 2000
UNUSUAL = "PYTHONDONTWRITEBYTECODE"  # installed packages are compiled once, and a checkout would be in each turn


@dataclass(frozen=True)
class Turn:
    """Seconds of one call by the clock on the wall and of the processor, its units (steps, sweeps, effective draws),
    and the most bytes that a process of its own held."""

    wall: float
    processor: float
    units: float = 1.0
    peak: int | None = None

    def per_unit(self, clock: str) -> float:
        return getattr(self, clock) / self.units


@dataclass(frozen=True)
class Side:
    """A program to be timed.

    Args:
        name: what it is.
        turn: runs it once.
        program: a jitted function of one unit and its arguments, from which operations and bytes are counted.
    """

    name: str
    turn: Callable[[], Turn]
    program: tuple[Any, tuple[Any, ...]] | None = None


@dataclass(frozen=True)
class Interval:
    """A ratio, and the 10 % and 90 % quantiles of its bootstrap distribution."""

    value: float
    lower: float
    upper: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.lower:.2f}, {self.upper:.2f}]"


def alternate(sides: Sequence[Side], rounds: int, limit: float = np.inf) -> list[list[Turn]]:
    """Returns the turns of each side: the first, in which programs are compiled, and `rounds` others.

    Args:
        sides: timed in turn.
        rounds: how many turns of each, after the first.
        limit: seconds after which no further round begins, once there are two.
    """
    turns: list[list[Turn]] = [[] for _ in sides]
    begun = np.inf
    for index in range(rounds + 1):
        if index == 1:
            begun = time.perf_counter()
        if index > 2 and time.perf_counter() - begun > limit:
            break
        order = range(len(sides)) if index % 2 == 0 else reversed(range(len(sides)))
        for side in order:
            turns[side].append(sides[side].turn())
    return turns


def ratio(ours: Sequence[Turn], theirs: Sequence[Turn], clock: str, statistic: str) -> Interval:
    """Returns the ratio of times a unit, of turns that were taken in the same rounds.

    Args:
        ours: the numerator's turns.
        theirs: the denominator's.
        clock: `"wall"` or `"processor"`.
        statistic: `"median"` of the rounds' ratios, or `"mean"`: all seconds over all units of the one, by those of the
            other.
    """
    if statistic not in ("mean", "median"):
        raise ValueError(f"statistic is 'mean' or 'median', not {statistic!r}")
    seconds = np.array([[getattr(turn, clock) for turn in side] for side in (ours, theirs)])
    units = np.array([[turn.units for turn in side] for side in (ours, theirs)])

    def of(chosen: np.ndarray) -> np.ndarray:
        spent, made = seconds[:, chosen], units[:, chosen]
        if statistic == "median":
            return np.median(spent[0] / made[0] / (spent[1] / made[1]), axis=-1)
        mean = spent.sum(-1) / made.sum(-1)
        return mean[0] / mean[1]

    rounds = len(ours)
    value = float(of(np.arange(rounds)))
    if rounds < 3:  # no interval from two
        return Interval(value, np.nan, np.nan)
    resampled = of(np.random.default_rng(0).integers(0, rounds, (RESAMPLES, rounds)))
    return Interval(value, *(float(bound) for bound in np.quantile(resampled, [0.1, 0.9])))


def here(
    name: str,
    call: Callable[[], Any],
    units: float | Callable[[Any], float] = 1.0,
    program: tuple[Any, tuple[Any, ...]] | None = None,
) -> Side:
    """Returns a side that is a function of this process.

    Args:
        name: what it is.
        call: runs to its end, also what devices do.
        units: how many units a call makes, or a function of its result that counts them, off the clock.
        program: see `Side`.
    """

    def turn() -> Turn:
        begun, worked = time.perf_counter(), time.process_time()
        result = call()
        wall, processor = time.perf_counter() - begun, time.process_time() - worked
        return Turn(wall, processor, units(result) if callable(units) else units)

    return Side(name, turn, program)


def command(
    name: str, arguments: Sequence[str] | Callable[[], Sequence[str]], environment: Mapping[str, str] | None = None
) -> Side:
    """Returns a side that is a command, started anew in each turn.

    Args:
        name: what it is.
        arguments: the command line, or a function that prepares each turn off the clock and returns it.
        environment: variables beside those of this process.
    """

    inherited = {variable: value for variable, value in os.environ.items() if variable != UNUSUAL}

    def turn() -> Turn:
        line = list(arguments() if callable(arguments) else arguments)
        with tempfile.TemporaryFile() as said:
            begun = time.perf_counter()
            process = subprocess.Popen(
                line, cwd=ROOT, env={**inherited, **(environment or {})}, stdout=said, stderr=subprocess.STDOUT
            )
            _, status, used = os.wait4(process.pid, 0)
            wall = time.perf_counter() - begun
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                said.seek(0)
                raise RuntimeError(f"{name} failed: {said.read().decode(errors='replace').strip()[-2000:]}")
        peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return Turn(wall, used.ru_utime + used.ru_stime, 1.0, peak)

    return Side(name, turn)


class Worker:
    """A program of another interpreter: it stays alive and runs one turn a request, so that it can be timed in turn.

    Torch and JAX stall in one process. The module is run as `python -m MODULE ARGUMENTS` and calls `serve` of
    `benchmarks.speed.peers.worker`.

    Args:
        python: the interpreter.
        module: the name of the module.
        arguments: of its command line.
    """

    def __init__(self, python: Path, module: str, *arguments: str) -> None:
        line = [str(python), "-m", module, *arguments]
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the process)
        self.process = subprocess.Popen(
            line, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )

    def ask(self, request: str) -> dict[str, Any]:
        """Returns the answer to one line."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                if line.startswith("{"):  # what a library prints is no answer
                    return json.loads(line)
        except BrokenPipeError:
            pass
        self.process.wait()
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace").strip()[-2000:]
        self.close()
        raise RuntimeError(f"{self.process.args} ended: {said}")

    def side(self, name: str, task: str, units: float = 1.0) -> Side:
        """Returns a side whose turns are those of a task of the worker."""

        def turn() -> Turn:
            answer = self.ask(task)
            return Turn(answer["wall"], answer["processor"], units, answer["peak"])

        return Side(name, turn)

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.communicate()
        self.errors.close()


def carried(run: Callable[..., Any], *carry: Any) -> Callable[[], Any]:
    """Returns a call of `run` that takes up the carry where the last call left it, and waits for the end."""
    import jax

    held = [carry]

    def call() -> Any:
        held[0], values = run(*held[0])
        return jax.block_until_ready(values)

    return call
