"""Graphs that centre their series row by row, or warn of rows that are not of unit scale."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from lamu.data.arrays import Arrays, UnscaledRows
from lamu.graphs.expressions import lifted
from lamu.graphs.graph import Graph
from lamu.graphs.series_factors import GaussianChainFactor
from lamu.record import record
from lamu.typing import Array, Belief, Data, RandomKey

__all__ = ["CentredGraph", "CentredRowsGraph", "UnitScaleGraph"]

# \[ y_t = o + y'_t, \quad x_t = o + x'_t, \qquad
#    x'_1 \sim N(m_1 - o, P_1^{-1}), \quad x'_{t+1} \mid x'_t \sim N(x'_t, Q^{-1}) \]
#
# The density is the same for every origin o of a row. In single precision, squares of a level of thousands leave no
# digits for those of the steps, so that each row's origin is the median of its observations.


ORIGIN = "origin"  # the input of a row that the graph sets itself


@record
class CentredGraph(Graph):
    """A graph with series y around a walk x, whose program starts x at minus the input `origin`; see `StateSpace`."""

    def _read(self, data: Data, learned: bool) -> Any:
        if isinstance(data, Mapping) and "y" in data and ORIGIN not in data:
            y = np.asarray(data["y"])
            if y.ndim == 2 and y.dtype.kind in "fiu" and len(y):
                origin = _origins(y.astype(float))
                y = y.astype(float) - origin[:, None]
                if learned and not np.any(np.abs(y) > 0) and not np.isnan(y).all():
                    # The likelihood is unbounded where steps and noise are zero.
                    raise ValueError(
                        f"y does not move in any row ({origin[0]:g} in row 0), which tells nothing of its steps and "
                        "noise; give at least one series that does"
                    )
                data = {**data, "y": y, ORIGIN: origin}
        return super()._read(data, learned)

    def completed(self, belief: Belief, rows: Any, samples: int, key: RandomKey) -> Any:
        completed = super().completed(belief, rows, samples, key)
        if completed is None:
            return None
        mean, variance = completed
        return mean + _of(rows, mean)[:, None], variance

    def completed_by_draws(self, belief: Belief, rows: Any, samples: int, key: RandomKey) -> Any:
        if isinstance(rows, int):
            return self._about_zero().completed_by_draws(belief, rows, samples, key)
        drawn = super().completed_by_draws(belief, rows, samples, key)
        entries = drawn["y"]
        f = None if entries.f is None else entries.f + _of(rows, entries.f)[None, :, None, None]
        value = entries.value + _of(rows, entries.value)[:, None]
        return {**drawn, "y": replace(entries, value=value, f=f)}

    def local_beliefs(self, belief: Belief, rows: Arrays, samples: int, key: RandomKey) -> dict[str, Any]:
        beliefs = super().local_beliefs(belief, rows, samples, key)
        x = beliefs["x"]
        origin = jnp.broadcast_to(_of(rows, x.offset)[:, None, None], x.offset.shape)
        moved = jnp.einsum("...tij,...tj->...ti", x.transition, origin[..., :-1, :])
        offset = (x.offset + origin).at[..., 1:, :].add(-moved)
        return {**beliefs, "x": replace(x, offset=offset)}

    def _about_zero(self) -> Graph:
        """Returns the graph without origins, for new rows."""

        def started(factor: Any) -> Any:
            zero = lifted(jnp.zeros(()))
            return replace(factor, first_mean=zero) if isinstance(factor, GaussianChainFactor) else factor

        sites = tuple(replace(site, factor=started(site.factor)) for site in self.sites)
        return Graph(sites, constraints=self.constraints, frozen=self.frozen, given=self.given)


def _origins(y: np.ndarray) -> np.ndarray:
    """Returns the median of every row in single precision; zero for a row without observations."""
    seen = ~np.isnan(y)
    origin = np.zeros(len(y))
    for number, (row, present) in enumerate(zip(y, seen, strict=True)):
        if present.any() and np.isfinite(row[present]).all():
            origin[number] = np.float32(np.median(row[present]))
    return np.where(np.isfinite(origin), origin, 0.0)


def _of(rows: Arrays, like: Array) -> Array:
    return jnp.asarray(rows.y[ORIGIN], like.dtype)


_FARTHEST, _NARROWEST, _WIDEST = 10.0, 0.1, 10.0  # a mean, and deviations: far from those of standardised columns
_OFF_CENTRE, _ERRORS = 0.1, 5.0  # a mean in deviations, and in standard errors: those of rows that are not centred
_COLUMNS = 20  # rows from which a column is checked separately


@record
class UnitScaleGraph(Graph):
    """A graph for standardised rows; see `GaussianMixture`."""

    assumption: ClassVar[str] = "the priors of this model are for unit scale"

    def _read(self, data: Data, learned: bool) -> Any:
        rows = super()._read(data, learned)
        if learned and isinstance(data, Mapping):
            self._warn_unscaled({site.name: data[site.name] for site in self.in_rows if site.name in data})
        return rows

    def _is_unscaled(self, mean: np.ndarray, deviation: np.ndarray, rows: int) -> np.ndarray:
        """Returns whether each column is far from what the model assumes."""
        return (np.abs(mean) > _FARTHEST) | (deviation < _NARROWEST) | (deviation > _WIDEST)

    def _warn_unscaled(self, parts: Mapping[str, Any]) -> None:
        """Warns of an array with a column that is far from what the model assumes."""
        for name, part in parts.items():
            values = np.asarray(part, float)
            values = values.reshape(len(values), -1) if len(values) >= _COLUMNS else values.reshape(-1, 1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of columns without a number
                mean, deviation = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
            varies = (deviation > 0) & ~np.all((values == 0) | (values == 1) | np.isnan(values), axis=0)
            unscaled = varies & self._is_unscaled(mean, deviation, len(values))
            if unscaled.any():
                column = int(np.argmax(unscaled))
                warnings.warn(
                    f"{name} is not standardised, and {self.assumption}: column {column} has the mean "
                    f"{mean[column]:.3g} and the deviation {deviation[column]:.3g}; give ({name} - mean) / deviation",
                    UnscaledRows,
                    stacklevel=6,
                )


@record
class CentredRowsGraph(UnitScaleGraph):
    """A graph of centred rows, in which no variable is their mean; see `FactorAnalysis`."""

    assumption: ClassVar[str] = "this model has no means, and its priors are for unit scale"

    def _is_unscaled(self, mean: np.ndarray, deviation: np.ndarray, rows: int) -> np.ndarray:
        # A narrow column, as a pixel at the margin of images, is lost in the priors only where there are few rows.
        far = np.maximum(_OFF_CENTRE, _ERRORS / np.sqrt(rows)) * deviation
        return (np.abs(mean) > far) | (deviation < min(_NARROWEST, 1 / np.sqrt(rows))) | (deviation > _WIDEST)
