"""The shape of the largest importance weights: whether their mean has an error that they show."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["LARGEST_SHAPE", "pareto_shape"]

LARGEST_SHAPE = 0.7  # of weights whose mean has an error that they show
_FEWEST_IN_TAIL = 20


def pareto_shape(weights: np.ndarray) -> float:
    """Returns k of the generalised Pareto distribution of the largest weights, by the estimator of Zhang & Stephens."""
    # Source: Zhang & Stephens (2009); Vehtari, Simpson, Gelman, Yao & Gabry (2024), section 3 and appendix C.
    count = len(weights)
    tail = int(min(0.2 * count, 3 * math.sqrt(count)))
    if tail < _FEWEST_IN_TAIL:
        return math.nan  # too few for a shape; the error is all there is
    ordered = np.sort(weights)
    excess = ordered[-tail:] - ordered[-tail - 1]
    if not excess[-1] > 1e-10 * ordered[-1]:
        return -math.inf
    excess = np.maximum(excess, 1e-300)
    points = 30 + int(math.sqrt(tail))
    quarter = excess[int(tail / 4 + 0.5) - 1]
    b = 1 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))
    b = b / (3 * quarter) + 1 / excess[-1]
    with np.errstate(all="ignore"):
        k = np.log1p(-b[:, None] * excess).mean(axis=1)
        profile = tail * (np.log(-b / k) - k - 1)
    profile = np.where(np.isfinite(profile), profile, -np.inf)
    chance = np.exp(profile - profile.max())
    slope = float(np.sum(b * chance) / np.sum(chance))
    shape = float(np.log1p(-slope * excess).mean())
    return (tail * shape + 10 * 0.5) / (tail + 10)  # a weak prior, as in Vehtari et al. (2024)
