"""The rule that stops costly candidates after their first fold."""

# The networks with a piecewise-linear encoding take most of a fit's operations, and on many tables they get almost no
# weight. They therefore train on the first fold before the others, along the whole schedule, so that nothing is
# extrapolated. On its held-out rows i the mixture of all candidates is compared with the mixture without a set S, each
# with its own stacking weights,
#
# \[ g_i = \log \sum_c w_c\, p_c(y_i) - \log \sum_{c \notin S} w'_c\, p_c(y_i), \qquad
#    \bar g + 3\, \operatorname{se}(\bar g) < 0.003 \text{ nats} \;\Rightarrow\; S \text{ stops}. \]
#
# S is first the set of all costly candidates, and then repeatedly the one with the least gain. A candidate stops only
# on evidence that it is not needed: fewer than 50 rows stop none. The weights are chosen by the same rows, which
# favours the larger mixture.
#
# Source: Maron & Moore (1997), for races; Yao, Vehtari, Simpson & Gelman (2018), for the weights.

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lamu.composition import stacking_weights

__all__ = ["going_on"]

# Chosen on splits 0 and 1 of development tables, 20 fits in all: both candidates went on in ten, and the test nll of
# the others moved by -.0011 to +.0014 (vehicle, ± .0011).
_WORTH = 0.003  # nats a row
_SURE = 3.0  # standard errors
_FEWEST = 50  # rows of a fold; with fewer a standard error is unreliable


def going_on(densities: np.ndarray, costly: Sequence[int], counts: np.ndarray, pull: float) -> list[int]:
    """Returns the costly candidates that train on further folds, from log densities `[rows, candidates]`."""
    left, candidates = list(costly), range(densities.shape[1])
    mixtures: dict[tuple[int, ...], np.ndarray] = {}

    def mixture(kept: tuple[int, ...]) -> np.ndarray:
        if kept not in mixtures:
            of_kept = densities[:, kept]
            weights = stacking_weights(of_kept, pull, counts)
            mixtures[kept] = np.logaddexp.reduce(of_kept + np.log(np.maximum(weights, 1e-300)), axis=1)
        return mixtures[kept]

    def gain(stopped: Sequence[int]) -> tuple[float, float]:
        """Returns the mean gain by some candidates, and its upper bound."""
        kept = tuple(each for each in candidates if each in left or each not in costly)
        gains = mixture(kept) - mixture(tuple(each for each in kept if each not in stopped))
        mean = np.average(gains, weights=counts)
        effective = counts.sum() ** 2 / (counts**2).sum()
        error = np.sqrt(np.average((gains - mean) ** 2, weights=counts) / max(effective - 1, 1e-9))
        return float(mean), float(mean + _SURE * error)

    if not left or len(left) == len(candidates) or counts.sum() < _FEWEST:
        return left
    if gain(left)[1] < _WORTH:
        return []
    while left:
        least = min(left, key=lambda each: gain([each])[0])
        if not gain([least])[1] < _WORTH:
            break
        left.remove(least)
    return left
