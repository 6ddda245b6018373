"""The scale of row weights: a weight of two is the row written twice, so that their sum is the number of rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

__all__ = ["UnscaledWeights", "warn_of_scale"]

_FEW, _MANY = 0.5, 2.0  # times the number of rows; fewer and more are probably no counts of rows


class UnscaledWeights(UserWarning):
    """Row weights whose sum is far from the number of rows, so that the posterior is that of fewer or more rows."""


def warn_of_scale(weight: Any, name: str = "weight", stacklevel: int = 3) -> None:
    """Warns of weights by which the rows count as far fewer or far more than they are."""
    # Rows without weight are none. A sum above twice the number of rows is no cause where all weights are whole
    # numbers, which count repeated rows.
    weight = np.asarray(weight, np.float64)
    rows, total = int(np.count_nonzero(weight)), float(weight.sum())
    if total < _FEW * rows:
        consequence = "the posterior stays closer to the prior than that of so many rows"
    elif total > _MANY * rows and (weight != np.rint(weight)).any():
        consequence = "the posterior is narrower than that of so many rows"
    else:
        return
    warnings.warn(
        f"{name} sums to {total:.4g} over {rows:,} rows, so that they count as {total:.4g} rows and {consequence}: a "
        f"weight of two is the row written twice. If only the ratios of the weights matter, give {name} * {rows} / "
        f"{total:.4g}",
        UnscaledWeights,
        stacklevel=stacklevel,
    )
