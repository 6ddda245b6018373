"""Components of mixtures, states of series and topics that hold nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.families import Beta, Dirichlet, Point, Product
from lamu.graphs.categorical import CategoricalFactor
from lamu.graphs.expressions import StickBreaking, Variable
from lamu.graphs.markov import MarkovFactor
from lamu.graphs.prior import Known
from lamu.graphs.program import Site
from lamu.graphs.words import WordsFactor
from lamu.typing import Number

__all__ = ["empty_components"]

_NOTHING = 1e-12  # of a weight at a point


def empty_components(
    sites: tuple[Site, ...], belief: Any, temperature: Number, rows: Number | None = None
) -> dict[str, tuple[int, ...]]:
    """Returns the components that hold less than one row, by the name of their weight; they are as their prior says."""
    # Weights are a Dirichlet's or by breaking sticks. A state of a Markov series holds times, and a topic words: less
    # than one of all rows together leaves it empty. A point, which counts nothing, needs to be told the number of rows;
    # without it, and for states of a series, a component is empty whose weight is zero.
    known = _Known({site.name: site.factor for site in sites}, belief, temperature, rows)
    found: dict[str, tuple[int, ...]] = {}
    for site in sites:
        name, few = known.few(site.factor)
        if few is not None and few.any():
            found[name] = tuple(int(k) for k in np.flatnonzero(few))
    return found


class _Known:
    """What a belief says of the rows that each component holds."""

    def __init__(self, factors: dict[str, Any], belief: Any, temperature: Number, rows: Number | None) -> None:
        self.factors, self.temperature = factors, float(temperature)
        self.rows = None if rows is None else float(rows)
        self.point = belief.mean["network"] if isinstance(belief, Point) else None
        part: Any = belief.factors.get("network") if isinstance(belief, Product) else None
        self.beliefs: dict[str, Any] = dict(part.factors) if isinstance(part, Product) else {}

    def few(self, factor: Any) -> tuple[str, np.ndarray | None]:
        """Returns the name of a factor's weights, and which of its components are empty; None where it has none."""
        if isinstance(factor, CategoricalFactor):
            weight = factor.probabilities
            if isinstance(weight, StickBreaking):
                return self._of_sticks(weight)
            if isinstance(weight, Variable) and len(weight.shape or ()) == 1:
                return weight.name, self._fewer(self._in_rows(weight), lambda pi: pi, self._least)
        if isinstance(factor, MarkovFactor) and isinstance(factor.transition, Variable):
            table = self._counts(factor.transition)
            if table is not None:  # a state that no series moves to, and none begins with
                first = self._counts(factor.initial) if isinstance(factor.initial, Variable) else None
                table = np.concatenate([table, first[None]]) if first is not None else table
            return factor.transition.name, self._fewer(table, lambda to: to.sum(axis=0))
        if isinstance(factor, WordsFactor) and isinstance(factor.topic, Variable) and self.point is None:
            return factor.topic.name, self._fewer(self._counts(factor.topic), lambda words: words.sum(axis=-1))
        return "", None

    def _fewer(self, counts: np.ndarray | None, held: Any, least: float | None = None) -> np.ndarray | None:
        if least is None:
            least = _NOTHING if self.point is not None else 1.0
        return None if counts is None else held(counts) < least

    @property
    def _least(self) -> float:
        """What a component must hold, where the rows of a point are known."""
        return _NOTHING if self.point is not None and self.rows is None else 1.0

    def _in_rows(self, weight: Variable) -> np.ndarray | None:
        """Returns how many rows each component holds; at a point of unknown rows the weights."""
        counts, prior = self._counts(weight), self.factors.get(weight.name)
        if counts is None or self.point is None or self.rows is None:
            return counts
        dirichlet = isinstance(prior, Known) and isinstance(prior.belief, Dirichlet)
        before = np.asarray(prior.belief.concentration) - 1.0 if dirichlet else np.zeros_like(counts)  # pyright: ignore[reportOptionalMemberAccess]
        return counts * (self.rows + before.sum()) - before

    def _counts(self, weight: Variable) -> np.ndarray | None:
        """Returns how many rows a Dirichlet has counted, of each category; at a point the weights."""
        if self.point is not None:
            return np.asarray(self.point[weight.name]) if weight.name in self.point else None
        return self._learned(weight.name, Dirichlet, "concentration")

    def _learned(self, name: str, family: type, field: str) -> np.ndarray | None:
        prior = self.factors.get(name)
        if name not in self.beliefs or not isinstance(prior, Known) or not isinstance(prior.belief, family):
            return None
        after, before = (np.asarray(getattr(one, field)) for one in (self.beliefs[name], prior.belief))
        return self.temperature * (after - 1.0) - (before - 1.0)

    def _of_sticks(self, weight: StickBreaking) -> tuple[str, np.ndarray | None]:
        """Returns the components of sticks: a break counts what it takes, and the last also what is left."""
        if not isinstance(weight.breaks, Variable):
            return "", None
        name = weight.breaks.name
        if self.point is not None:
            v = np.asarray(self.point[name]) if name in self.point else None
            taken = None if v is None else np.r_[v, 1.0] * np.r_[1.0, np.cumprod(1.0 - v)]
            taken = taken if taken is None or self.rows is None else self.rows * taken
            return name, self._fewer(taken, lambda pi: pi, self._least)
        taken, left = self._learned(name, Beta, "alpha"), self._learned(name, Beta, "beta")
        both = None if taken is None or left is None else np.r_[taken, left[-1]]
        return name, self._fewer(both, lambda pi: pi)
