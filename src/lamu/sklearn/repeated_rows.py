"""Rows that repeat, as one row with the sum of their weights."""

# \[ \sum_{i=1}^N w_i \log p(y_i \mid x_i, \theta)
#    = \sum_{j \in \text{distinct}} \Big( \sum_{i \equiv j} w_i \Big) \log p(y_j \mid x_j, \theta) \]
#
# The likelihood is the same function of θ, so a posterior may not depend on which form it was given. Learning is
# stochastic, and would: therefore the estimators learn from one canonical form, in which a weight of two *is* a row
# written twice, a weight of zero is no row, and the order of the rows does not count.

from __future__ import annotations

import numpy as np

__all__ = ["distinct"]


def distinct(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the distinct rows, sorted, and the sum of the weights of each; rows of weight zero are left out."""
    kept = weight > 0
    x, y, weight = x[kept], y[kept], weight[kept]
    value = np.where(np.isnan(x), np.inf, x)
    order = np.lexsort((y, *value.T[::-1]))
    x, y, weight, value = x[order], y[order], weight[order], value[order]
    first = np.ones(len(y), bool)
    first[1:] = (value[1:] != value[:-1]).any(axis=1) | (y[1:] != y[:-1])
    return x[first], y[first], np.add.reduceat(weight, np.flatnonzero(first))
