"""The candidate models for a table: the parts of a `TableNetwork` that each one uses, and their prior scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lamu import tree
from lamu.composition import stacking_weights
from lamu.data.splits import sums_of_groups
from lamu.networks import TableNetwork
from lamu.priors import Normal
from lamu.typing import Params, Rows

__all__ = ["ADDITIVE", "KERNELS", "NETWORKS", "Candidate", "candidates_for", "candidates_to_continue", "sharpened"]


# A candidate is the network with some of its parts fixed at zero. The scale of a hidden part is relative to its inputs,
# \(g \sqrt{2 / \text{inputs}}\), so that one g suits tables with few and with many columns. The scale of the linear
# path beside a kernel or hidden layers is \(\min(s, 1.2 / \sqrt{\text{inputs}})\): with hundreds of columns it would
# otherwise fit any rows before the other parts learn. Alone it has the scale s, since a few columns may explain
# everything.


_INTERCEPT = 10.0  # a very weak prior
_BESIDE = 1.2  # the prior deviation of the linear path beside other parts, of standardised columns
_OUTPUTS = ("linear/kernel", "additive/kernel", "features/kernel", "head/kernel")


@dataclass(frozen=True)
class Candidate:
    """A choice of parts, with the scales of their priors."""

    name: str  # the name in lists of candidates
    additive: float = 0.0  # the scale of the additive path; zero leaves it out
    hidden: float = 0.0  # g, the scale of the perceptron relative to its inputs; zero leaves it out
    pieces: bool = False  # whether the perceptron also has the piecewise-linear encoding as input
    varying: bool = False  # whether the noise of a regression depends on the row
    linear: float = 1.0  # s, the scale of the linear path
    kernel: float = 0.0  # the scale of the features of a kernel, a Gaussian process's deviation; zero leaves them out

    def scales(self, network: TableNetwork) -> dict[str, float]:
        """Returns the prior scale of each part of a network, by path pattern; zero for omitted parts."""
        count = max(network.columns.smooth_width, 1)
        beside = self.kernel > 0 or self.hidden > 0
        linear = min(self.linear, _BESIDE / math.sqrt(count)) if beside else self.linear
        scales = {"linear/kernel": linear, "linear/bias": _INTERCEPT, "additive/kernel": self.additive}
        if network.feature_count:
            scales["features/kernel"] = self.kernel
        if not network.widths:
            return scales
        g = self.hidden
        scales |= {
            "hidden/smooth": g * math.sqrt(2 / count),
            "hidden/pieces": g * math.sqrt(1 / count) if self.pieces else 0.0,
            "hidden/bias": float(g > 0),
        }
        for index, width in enumerate(network.widths[:-1]):
            scales |= {f"layers/{index}/kernel": g * math.sqrt(2 / width), f"layers/{index}/bias": float(g > 0)}
        return scales | {"head/kernel": 2 * g / math.sqrt(network.widths[-1])}

    def prior(self, network: TableNetwork) -> Normal:
        """Returns the prior; omitted parts, which stay at zero, have the scale one."""
        return Normal({path: scale or 1.0 for path, scale in self.scales(network).items()})

    def gates(self, network: TableNetwork, params: Params, means: int | None) -> Params:
        """Returns a mask of the parameters, one for free weights and zero for the others."""
        # A gate has the axes of its weights, with length one if all or none of the weights along an axis are free.
        scales = self.scales(network)

        def leaf(name: str, weight: Any) -> Any:
            gate = np.full((1,) * weight.ndim, float(scales[name] > 0), weight.dtype)
            if means is None or name not in _OUTPUTS:
                return gate
            return gate * ((np.arange(weight.shape[-1]) < means) | self.varying).astype(weight.dtype)

        return tree.map_with_path(leaf, params)


ADDITIVE = (Candidate("linear"), Candidate("additive", additive=0.3))
KERNELS = (Candidate("kernel", kernel=2.0), Candidate("wide-prior kernel", kernel=8.0))
NETWORKS = (
    Candidate("network", hidden=3.0),
    Candidate("additive network", additive=1.0, hidden=1.4, pieces=True),
    Candidate("wide-prior additive network", additive=1.0, hidden=2.8, pieces=True),
)


def candidates_for(varying: bool, kernels: bool) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...]]:
    """Returns the candidates without and with hidden layers."""
    small = ADDITIVE + KERNELS * kernels
    if not varying:
        return small, NETWORKS
    with_noise = lambda each: replace(each, name=f"{each.name}, varying noise", varying=True)
    return (*ADDITIVE, *map(with_noise, small)), tuple(map(with_noise, NETWORKS))


def sharpened(members: Params, factor: float) -> Params:
    """Returns members with outputs multiplied by a factor, by scaling their last weights and their intercept."""
    leaf = lambda name, weight: weight * factor if name in (*_OUTPUTS, "linear/bias") else weight
    return {**members, "network": tree.map_with_path(leaf, members["network"])}


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


# Chosen on splits 0 and 1 of development tables, 20 fits in all: both candidates went on in ten, and the test nll of
# the others moved by -.0011 to +.0014 (vehicle, ± .0011).
_WORTH = 0.003  # nats a row
_SURE = 3.0  # standard errors
_FEWEST = 50  # rows of a fold, or groups; with fewer a standard error is unreliable


def candidates_to_continue(
    densities: np.ndarray, costly: Sequence[int], counts: np.ndarray, pull: float, groups: Rows | None = None
) -> list[int]:
    """Returns the costly candidates that train on further folds, from log densities `[rows, candidates]`."""
    undecided, candidates = list(costly), range(densities.shape[1])
    mixtures: dict[tuple[int, ...], np.ndarray] = {}

    def mixture(kept: tuple[int, ...]) -> np.ndarray:
        if kept not in mixtures:
            of_kept = densities[:, kept]
            weights = stacking_weights(of_kept, pull, counts)
            mixtures[kept] = np.logaddexp.reduce(of_kept + np.log(np.maximum(weights, 1e-300)), axis=1)
        return mixtures[kept]

    def gain(stopped: Sequence[int]) -> tuple[float, float]:
        """Returns the mean gain by some candidates, and its upper bound."""
        kept = tuple(each for each in candidates if each in undecided or each not in costly)
        gains = mixture(kept) - mixture(tuple(each for each in kept if each not in stopped))
        mean = np.average(gains, weights=counts)
        effective = counts.sum() ** 2 / (counts**2).sum()
        error = np.sqrt(np.average((gains - mean) ** 2, weights=counts) / max(effective - 1, 1e-9))
        if groups is not None:
            error = np.linalg.norm(sums_of_groups(counts * (gains - mean), groups)) / counts.sum()
        return float(mean), float(mean + _SURE * error)

    units = counts.sum() if groups is None else len(set(groups.tolist()))
    if not undecided or len(undecided) == len(candidates) or units < _FEWEST:
        return undecided
    if gain(undecided)[1] < _WORTH:
        return []
    while undecided:
        least = min(undecided, key=lambda each: gain([each])[0])
        if not gain([least])[1] < _WORTH:
            break
        undecided.remove(least)
    return undecided
