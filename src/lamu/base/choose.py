"""Search over candidates, shared by the choices of a prior scale, a temperature, a likelihood and a noise factor."""

# A candidate is any hashable value. A function returns its loss, from held-out rows, folds or the evidence; a search
# calls that function for the candidates to try, in its order.

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np

__all__ = [
    "Ask",
    "Choice",
    "all_of",
    "bounded",
    "choose",
    "doublings",
    "refine_grid",
    "simplex",
    "until_worse",
    "walk_downhill",
]

Candidate = TypeVar("Candidate", bound=Hashable)
Ask: TypeAlias = Callable[..., float]  # returns the loss of a candidate, infinite where there is none

_WORST = 1e30  # stands for infinity in Nelder and Mead's method, which takes differences


@dataclass(frozen=True)
class Choice(Generic[Candidate]):
    """The candidate of least loss, and the losses of all candidates tried, in their order."""

    best: Candidate
    losses: dict[Candidate, float]

    def finite(self, what: str) -> Choice[Candidate]:
        """Returns itself; raises a ValueError where no candidate has a finite loss."""
        if math.isinf(self.losses[self.best]):
            raise ValueError(
                f"no {what} of {list(self.losses)} has a finite loss; standardise the data, or train longer"
            )
        return self


def choose(
    loss: Callable[[Candidate], float],
    search: Callable[..., None],
    *arguments: object,
    failure: type[Exception] | tuple[()] = (),
    **options: object,
) -> Choice[Candidate]:
    """Returns the candidate of least loss among those that a search evaluates; of equal ones the first."""
    # Each candidate is evaluated once. One that fails, or whose loss is NaN, has an infinite loss; where all fail, the
    # first error is raised.
    losses: dict[Candidate, float] = {}
    failures: list[Exception] = []

    def ask(candidate: Candidate) -> float:
        if candidate not in losses:
            try:
                value = float(loss(candidate))
            except failure as error:
                failures.append(error)
                value = math.inf
            losses[candidate] = value if math.isfinite(value) else math.inf
        return losses[candidate]

    search(ask, *arguments, **options)
    best = min(losses, key=lambda candidate: losses[candidate])
    if failures and math.isinf(losses[best]):
        raise failures[0]
    return Choice(best, losses)


def all_of(ask: Ask, candidates: Iterable[object]) -> None:
    """Evaluates every candidate."""
    for candidate in candidates:
        ask(candidate)


def until_worse(ask: Ask, candidates: Iterable[object]) -> None:
    """Evaluates candidates in their order, up to the first that is worse than an earlier one."""
    least = math.inf
    for candidate in candidates:
        if ask(candidate) > least:
            break
        least = ask(candidate)


def doublings(ask: Ask, start: float, farthest: int) -> None:
    """Evaluates a start, its double and its half, and continues in the better direction while the loss falls."""
    ask(start)
    factor = 2.0 if ask(2 * start) < ask(start / 2) else 0.5
    point, power = start * factor, 1
    while power < farthest and ask(point) <= ask(point / factor):
        point, power = point * factor, power + 1
        ask(point)


def walk_downhill(ask: Ask, start: float, stride: float, ends: tuple[float, float]) -> None:
    """Walks from a start downwards, or else upwards, while the loss falls; the last steps are half a stride."""
    within = lambda point: min(max(point, ends[0]), ends[1])
    best = within(start)
    while math.isinf(ask(best)) and best > ends[0]:
        best = within(best - stride)
    for step in (stride, stride / 2):
        first = best
        for direction in (-step, step):
            while ask(other := within(best + direction)) < ask(best):
                best = other
            if best != first and step == stride:
                break


def refine_grid(ask: Ask, low: float, high: float, points: int, until: float) -> None:
    """Evaluates a grid, then finer grids around its best point."""
    # Not SciPy's: importing its optimisers takes a tenth of the time of the whole posterior of a small network.
    grid, stride = np.linspace(low, high, points, retstep=True)
    best, stride = min(grid.tolist(), key=ask), float(stride)
    while stride > until:
        stride /= 2
        beside = (point for point in (best - stride, best + stride) if low <= point <= high)
        best = min((best, *beside), key=ask)


def bounded(ask: Ask, low: float, high: float, tolerance: float = 1e-5) -> None:
    """Minimises in an interval by golden section and parabolas (Brent)."""
    from scipy.optimize import minimize_scalar

    minimize_scalar(ask, bounds=(low, high), method="bounded", options={"xatol": tolerance})


def simplex(
    ask: Ask, start: Sequence[float], steps: Sequence[float], bounds: Sequence[tuple[float, float]], **options: object
) -> None:
    """Minimises over tuples of numbers by Nelder and Mead's method; the first simplex is a step along each."""
    from scipy.optimize import minimize

    first = np.array(start, float)
    corners = {"initial_simplex": np.vstack([first, first + np.diag(steps)])}
    loss = lambda point: min(ask(tuple(point.tolist())), _WORST)
    minimize(loss, first, method="Nelder-Mead", bounds=bounds, options=corners | options)
