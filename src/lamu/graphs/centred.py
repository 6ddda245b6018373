"""A graph of series about a level of their own: rows are centred for it, and what it tells is about the data."""

# \[ y_t = o + y'_t, \quad x_t = o + x'_t, \qquad
#    x'_1 \sim N(m_1 - o, P_1^{-1}), \quad x'_{t+1} \mid x'_t \sim N(x'_t, Q^{-1}) \]
#
# The law is the same for every origin o of a row. In single precision squares of a level of thousands leave no digits
# for those of the steps, so that each row's is the median of what is observed.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from lamu.data.arrays import Arrays
from lamu.graphs.expressions import lifted
from lamu.graphs.graph import Graph
from lamu.graphs.series_factors import GaussianChainFactor
from lamu.record import record
from lamu.typing import Array, Belief, Data, RandomKey

__all__ = ["CentredGraph"]

ORIGIN = "origin"  # the input of a row that the graph fills in itself


@record
class CentredGraph(Graph):
    """A graph with series y about a walk x, whose program starts x at minus the input `origin`; see `StateSpace`."""

    def _read(self, data: Data, learned: bool) -> Any:
        if isinstance(data, Mapping) and "y" in data and ORIGIN not in data:
            y = np.asarray(data["y"])
            if y.ndim == 2 and y.dtype.kind in "fiu" and len(y):
                origin = _origins(y.astype(float))
                y = y.astype(float) - origin[:, None]
                if learned and not np.any(np.abs(y) > 0) and not np.isnan(y).all():
                    # The likelihood has no bound where steps and noise are zero.
                    raise ValueError(
                        f"y does not move in any row ({origin[0]:g} in row 0), which tells nothing of its steps and "
                        "noise; give at least one series that does"
                    )
                data = {**data, "y": y, ORIGIN: origin}
        return super()._read(data, learned)

    def completed(self, belief: Belief, rows: Any, samples: int, key: RandomKey) -> Any:
        found = super().completed(belief, rows, samples, key)
        if found is None:
            return None
        mean, variance = found
        return mean + _of(rows, mean)[:, None], variance

    def completed_by_draws(self, belief: Belief, rows: Any, samples: int, key: RandomKey) -> Any:
        if isinstance(rows, int):
            return self._about_zero().completed_by_draws(belief, rows, samples, key)
        found = super().completed_by_draws(belief, rows, samples, key)
        entries = found["y"]
        f = None if entries.f is None else entries.f + _of(rows, entries.f)[None, :, None, None]
        value = entries.value + _of(rows, entries.value)[:, None]
        return {**found, "y": replace(entries, value=value, f=f)}

    def local_beliefs(self, belief: Belief, rows: Arrays, samples: int, key: RandomKey) -> dict[str, Any]:
        found = super().local_beliefs(belief, rows, samples, key)
        x = found["x"]
        origin = jnp.broadcast_to(_of(rows, x.offset)[:, None, None], x.offset.shape)
        moved = jnp.einsum("...tij,...tj->...ti", x.transition, origin[..., :-1, :])
        offset = (x.offset + origin).at[..., 1:, :].add(-moved)
        return {**found, "x": replace(x, offset=offset)}

    def _about_zero(self) -> Graph:
        """Returns the graph whose rows have no origin, for new ones."""

        def started(factor: Any) -> Any:
            zero = lifted(jnp.zeros(()))
            return replace(factor, first_mean=zero) if isinstance(factor, GaussianChainFactor) else factor

        sites = tuple(replace(site, factor=started(site.factor)) for site in self.sites)
        return Graph(sites, constraints=self.constraints, frozen=self.frozen, given=self.given)


def _origins(y: np.ndarray) -> np.ndarray:
    """Returns the median of every row that single precision holds too; zero where a row has none."""
    seen = ~np.isnan(y)
    origin = np.zeros(len(y))
    for number, (row, there) in enumerate(zip(y, seen, strict=True)):
        if there.any() and np.isfinite(row[there]).all():
            origin[number] = np.float32(np.median(row[there]))
    return np.where(np.isfinite(origin), origin, 0.0)


def _of(rows: Arrays, like: Array) -> Array:
    return jnp.asarray(rows.y[ORIGIN], like.dtype)
