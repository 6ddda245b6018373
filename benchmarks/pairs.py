"""Alternated pairs: two programs timed in turn, and the ratio of each pair, so that a drifting machine cancels out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Ratio", "alternate", "carried", "ratio_of"]


@dataclass(frozen=True)
class Ratio:
    """The median ratio of the pairs, with a 95 % bootstrap interval, and both medians in milliseconds."""

    name: str
    ours: float
    theirs: float
    median: float
    lower: float
    upper: float

    def __str__(self) -> str:
        return (
            f"{self.name:44} {self.ours:8.3f} ms {self.theirs:8.3f} ms"
            f"   ratio {self.median:5.2f}  [{self.lower:.2f}, {self.upper:.2f}]"
        )


def alternate(
    name: str, ours: Callable[[], None], theirs: Callable[[], None], per_call: int = 1, pairs: int = 20
) -> Ratio:
    """Times two blocking callables in turn.

    Args:
        name: what is compared.
        ours: runs the first program to its end.
        theirs: runs the second.
        per_call: how many steps one call makes; times are given a step.
        pairs: how many pairs, after one uncounted pair.
    """
    times = np.array([[_seconds(ours), _seconds(theirs)] for _ in range(pairs + 1)])[1:]
    return ratio_of(name, times[:, 0] / per_call, times[:, 1] / per_call)


def ratio_of(name: str, ours: np.ndarray, theirs: np.ndarray) -> Ratio:
    """Returns the ratio of times that were taken in turn.

    Args:
        name: what is compared.
        ours: seconds, `[pairs]`.
        theirs: seconds, `[pairs]`.
    """
    ratios = ours / theirs
    generator = np.random.default_rng(0)
    medians = np.median(generator.choice(ratios, size=(2000, len(ratios))), axis=1)
    lower, upper = np.quantile(medians, [0.025, 0.975])
    middles = (float(1000 * np.median(times)) for times in (ours, theirs))
    return Ratio(name, *middles, float(np.median(ratios)), float(lower), float(upper))


def carried(run: Callable[..., Any], *carry: Any) -> Callable[[], None]:
    """Returns a call of `run` that takes up the carry where the last call left it, and waits for the end."""
    import jax

    held = [carry]

    def call() -> None:
        held[0], values = run(*held[0])
        jax.block_until_ready(values)

    return call


def _seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
