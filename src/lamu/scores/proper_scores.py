"""Proper scores of the whole predictive distribution."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.predictives import Predictive
from lamu.scores.validation import by_row, nodes_at_once, target
from lamu.typing import Array

__all__ = ["crps", "crps_of_rows", "nll", "surprise"]


def nll(pred: Any, y: Any) -> float:
    r"""Returns the negative log likelihood of the targets, the logarithmic score.

    \[ -\frac1N \sum_i \log p(y_i \mid x_i, D) \]

    Args:
        pred: a prediction of any task.
        y: targets, `[N]` or `[N, K]`; the density of a row with several outputs is their joint one.

    Returns:
        Nats an example, for a density in the target's original units; lower is better.

    Raises:
        ValueError: if the shapes differ.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import nll
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.5]), log_prob=lambda y: np.log([0.5]))
        >>> round(nll(pred, np.array([1])), 4)
        0.6931
    """
    return float(np.mean(surprise(pred, y)))


def surprise(pred: Any, y: Any) -> np.ndarray:
    r"""Returns \(-\log p(y_i \mid x_i, D)\) of each row in nats, `[N]`, whose mean is `nll`."""
    target("nll", pred, y)
    return -np.asarray(pred.log_prob(jax.tree.map(jnp.asarray, y)), float)


def crps(pred: Any, y: Any, panels: int = 64) -> float:
    r"""Returns the continuous ranked probability score, by quadrature of the predictive's distribution function F.

    \[ \frac1{NK} \sum_{ik} \int_{-\infty}^{y_{ik}} F_{ik}(z)^2 dz + \int_{y_{ik}}^{\infty} (1 - F_{ik}(z))^2 dz \]

    (Matheson & Winkler 1976; Gneiting & Raftery 2007, eq. 20.) Each integral is taken by Gauss–Legendre, eight nodes
    in each of `panels` equal panels, from the target out to ten predictive standard deviations around the mean, or to
    the end of the support. Of whole numbers, where F is constant in between, they are the sums
    \(\sum_k (F(k) - 1[k \ge y])^2\) of as many terms, exact up to 32 `panels` on either side of the target; of more,
    groups are taken at their middle.

    Args:
        pred: a prediction of a regression, whose `cdf(z)` takes z in the shape of the targets and can be traced by JAX.
        y: targets, `[N]` or `[N, K]`; several outputs are scored one by one and averaged.
        panels: how finely F is resolved; a panel should not be much wider than F's steepest rise.

    Returns:
        A score in the target's units, the absolute error where F is a point; lower is better.

    Raises:
        ValueError: if the prediction is of classes, or the shapes differ.

    Examples:
        >>> import jax.numpy as jnp
        >>> from jax.scipy.stats import norm
        >>> from types import SimpleNamespace
        >>> from lamu.supports import Real
        >>> from lamu.scores import crps
        >>> pred = SimpleNamespace(support=Real(), mean=jnp.zeros(1), std=jnp.ones(1), cdf=norm.cdf)
        >>> round(crps(pred, jnp.zeros(1)), 4)
        0.2337
    """
    return float(np.mean(crps_of_rows(pred, y, panels)))


def crps_of_rows(pred: Any, y: Any, panels: int = 64) -> np.ndarray:
    """Returns the score of each row, the mean of its outputs', `[N]`, whose mean is `crps`."""
    y = target("crps", pred, y, has_classes=False)
    # A deferred prediction is asked some rows at a time: the quadrature holds hundreds of numbers a row.
    parts = pred.chunks() if isinstance(pred, Predictive) else [(slice(None), pred)]
    return np.concatenate([by_row(_integrals(part, y[rows], panels)) for rows, part in parts])


def _integrals(pred: Any, y: np.ndarray, panels: int) -> np.ndarray:
    mean, std = np.asarray(pred.mean, float), np.asarray(pred.std, float)
    # Beyond the ends of the support there is nothing, and a jump at an end stays outside of the quadrature.
    below = np.maximum(np.minimum(y, mean - 10.0 * std), pred.support.lower) - y
    above = np.minimum(np.maximum(y, mean + 10.0 * std), pred.support.upper) - y
    # Predictives are arguments of a compiled function, so that chunks of one shape compile once; others are constants.
    opaque = jax.tree_util.all_leaves([pred])

    def integral(reach: np.ndarray, upper: bool) -> np.ndarray:
        points = _whole_numbers if pred.support.discrete else _gauss_legendre
        first, step, unit, weight = points(y, reach if upper else -reach, 1.0 if upper else -1.0, panels)
        at_once, total = nodes_at_once(len(unit), y.size), np.zeros_like(reach)
        for start in range(0, len(unit), at_once):
            some = slice(start, start + at_once)
            z = jnp.asarray(first + np.multiply.outer(unit[some], step), jnp.result_type(float))
            F = np.asarray(jax.lax.map(pred.cdf, z) if opaque else _cdf_at(pred, z), float)
            total = total + np.tensordot(weight[some], ((1.0 - F) if upper else F) ** 2, axes=1)
        return np.abs(step) * total

    return integral(below, upper=False) + integral(above, upper=True)


def _gauss_legendre(y: np.ndarray, length: np.ndarray, sign: float, panels: int) -> tuple[np.ndarray, ...]:
    """First target and step of every row, and nodes and weights in units of the step."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    unit = ((np.arange(panels)[:, None] + (nodes[None] + 1.0) / 2.0) / panels).ravel()
    return y, sign * length, unit, np.tile(weights / 2.0 / panels, panels)


def _whole_numbers(y: np.ndarray, length: np.ndarray, sign: float, panels: int) -> tuple[np.ndarray, ...]:
    """The same for F that is constant from a whole number to the next: each is a node, or the middle one of a group."""
    number = 2 ** int(np.ceil(np.log2(np.clip(np.max(length), 1.0, 32.0 * panels))))  # few lengths, each compiled once
    size = 2.0 * np.ceil(np.maximum(length / number - 1.0, 0.0) / 2.0) + 1.0  # odd, so that the middle is whole
    # Upwards from y itself, downwards from y − 1.
    return y + (sign * size - 1.0) / 2.0, sign * size, np.arange(number, dtype=float), np.ones(number)


@jax.jit
def _cdf_at(pred: Any, z: Array) -> Array:
    """Returns F at each of many targets of every row, `[points, ...]`."""
    return jax.lax.map(pred.cdf, z)
