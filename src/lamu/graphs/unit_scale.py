"""Graphs with priors for numbers of unit scale, which warn of other rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from lamu.data.arrays import UnscaledRows
from lamu.graphs.graph import Graph
from lamu.record import record
from lamu.typing import Data

__all__ = ["UnitScaleGraph"]

_FARTHEST, _NARROWEST, _WIDEST = 10.0, 0.1, 10.0  # a mean, and deviations: far from those of standardised columns
_COLUMNS = 20  # rows from which a column is checked separately


@record
class UnitScaleGraph(Graph):
    """A graph for standardised rows; see `GaussianMixture`."""

    def _read(self, data: Data, learned: bool) -> Any:
        rows = super()._read(data, learned)
        if learned and isinstance(data, Mapping):
            _warn_unscaled({site.name: data[site.name] for site in self.in_rows if site.name in data})
        return rows


def _warn_unscaled(parts: Mapping[str, Any]) -> None:
    """Warns of an array with a column whose mean is far from zero, or whose deviation is far from one."""
    for name, part in parts.items():
        values = np.asarray(part, float)
        values = values.reshape(len(values), -1) if len(values) >= _COLUMNS else values.reshape(-1, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of columns without a number
            mean, deviation = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
        varies = (deviation > 0) & ~np.all((values == 0) | (values == 1) | np.isnan(values), axis=0)
        unscaled = varies & ((np.abs(mean) > _FARTHEST) | (deviation < _NARROWEST) | (deviation > _WIDEST))
        if unscaled.any():
            column = int(np.argmax(unscaled))
            warnings.warn(
                f"{name} is not standardised, and the priors of this model are for unit scale: column {column} has the "
                f"mean {mean[column]:.3g} and the deviation {deviation[column]:.3g}; give "
                f"({name} - mean) / deviation",
                UnscaledRows,
                stacklevel=5,
            )
