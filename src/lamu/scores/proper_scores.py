"""Proper scores of the whole predictive distribution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory
from lamu.data.arrays import array_of, readable
from lamu.data.wording import quoted
from lamu.predictives import Predictive
from lamu.supports import value_of
from lamu.typing import Array, Prediction, Targets

__all__ = [
    "accuracy",
    "brier",
    "by_row",
    "cdf_at",
    "crps",
    "crps_of_rows",
    "gauss_legendre",
    "integrated",
    "nll",
    "nodes_at_once",
    "right",
    "rmse",
    "row_counts",
    "squared_distance",
    "squared_error",
    "surprise",
    "target",
]


_NEEDS = {
    False: "regression (classes have accuracy and brier)",
    True: "classes (regression has rmse and crps)",
}


def target(score: str, pred: Prediction, y: Targets, has_classes: bool | None = None) -> np.ndarray:
    """Checks a prediction and targets for a score, and returns the targets as a NumPy array."""
    # `ValueError`: if the prediction is of another kind, the shapes differ, there are no rows, a target is missing
    # (NaN, masked), or a label is not a class of the prediction. A target of shape `[N, 1]` with a mean of shape `[N]`,
    # which would otherwise silently broadcast to `[N, N]`, is the column of one target, as `log_prob` reads it.
    if not hasattr(pred, "support"):
        raise TypeError(f"{score} takes a prediction, posterior.predict(x), and pred={quoted(pred)} is none")
    if isinstance(y, tuple):
        raise TypeError(f"{score} takes targets alone, and y is a tuple of {len(y)}, as fit takes (x, y); give y")
    if isinstance(y, Mapping) and score != "nll":  # whose density is that of what is known of each row
        _require_single_values(score, pred, y)
    y = value_of(y)
    if has_classes is not None and pred.support.has_classes is not has_classes:
        raise ValueError(f"{score} is for {_NEEDS[has_classes]}, and this prediction's task is {pred.support.task!r}")
    if np.ma.is_masked(y):
        count = int(np.ma.count_masked(y))
        raise ValueError(f"{score} needs known targets, and {count} of {y.size} are masked; leave them out")
    y = np.asarray(readable(y))
    if y.dtype.kind in "OUS" and any(isinstance(value, str | bytes) for value in y.flat[:1]):
        words = "number the classes as they were for the fit"
        raise TypeError(f"{score} needs numbers, and these targets hold {str(y.flat[0])!r}; {words}")
    y = array_of("y", y) if y.dtype == object else y
    shape = np.shape(pred.mean)
    expected = pred.support.shape(shape)
    y = y[..., 0] if y.shape == (*expected, 1) else y
    if y.shape != expected:
        raise ValueError(
            f"{score} needs targets of shape {expected}, one for each prediction, and these have {y.shape}"
        )
    if y.size == 0:
        raise ValueError(f"{score} is an average over rows, and there are none; give at least one")
    _require_known(score, y)
    if pred.support.has_classes:
        y = pred.support.numbers(y)
        _require_classes(score, y, 2 if shape == expected else shape[-1])
    return y


def _require_single_values(score: str, pred: Prediction, y: Mapping[str, Any]) -> None:
    """Raises a ValueError for censored rows, and for counts of more trials than a prediction has."""
    censored = np.asarray(y.get("censored", 0)) != 0
    if "upper" in y:
        censored = np.asarray(y["upper"]) != np.asarray(y["value"])
    if censored.any():
        raise ValueError(
            f"{score} needs known targets, and {int(censored.sum())} of {censored.size} are censored; leave them out, "
            "or take lamu.scores.nll, which takes censored rows too"
        )
    if "trials" in y and np.max(y["trials"]) > pred.support.upper:
        raise ValueError(
            f"{score} needs a prediction of the trials that the targets have, and this one is of "
            f'{pred.support.upper:g} in each row; take posterior.predict({{"x": x, "trials": trials}})'
        )


def row_counts(weight: object, rows: int) -> np.ndarray:
    """Returns the weight of each row, `[N]`; ones where no weights are given."""
    counts = np.ones(rows) if weight is None else np.asarray(weight, float)
    if counts.shape != (rows,) or not (counts.min() >= 0 and counts.max() > 0):
        raise ValueError(f"weight={weight!r} does not fit; give {rows} weights, not negative nor all zero")
    return counts


def _require_known(score: str, y: np.ndarray) -> None:
    if not np.issubdtype(y.dtype, np.floating):
        return
    unknown = int(np.sum(~np.isfinite(y)))
    if unknown:
        raise ValueError(f"{score} needs known targets, and {unknown} of {y.size} are NaN or infinite; leave them out")


def _require_classes(score: str, y: np.ndarray, count: int) -> None:
    """Raises a ValueError for labels not numbered from zero, which would be scored as other classes."""
    other = np.unique(y[(y != np.floor(y)) | (y < 0) | (y >= count)])
    if other.size:
        raise ValueError(
            f"{score} has labels numbered from 0 to {count - 1}, and these hold {other[0]:g}; number the "
            "classes as they were for the fit"
        )


def by_row(values: np.ndarray) -> np.ndarray:
    """Returns the mean over the outputs of each row, `[N]`, of values `[N]` or `[N, K]`."""
    return values.reshape(len(values), -1).mean(axis=1)


def nodes_at_once(nodes: int, numbers: int) -> int:
    """Returns the number of quadrature nodes that fit in memory for all rows; groups of one size compile once."""
    most = int(np.clip(memory.budget() // (32 * max(numbers, 1)), 8, nodes))
    return 2 ** int(np.log2(most)) if most < nodes else nodes


def accuracy(pred: Prediction, y: Targets) -> float:
    r"""Returns the fraction of rows whose most probable label is the true one.

    \[ \frac1N \sum_i \mathbf 1[\hat y_i = y_i], \qquad \hat y_i = \arg\max_k p_{ik} \]

    For a binary target the label is one where \(p_i > 1/2\). Of equally probable classes the first is taken.

    Args:
        pred: a prediction of classes, or of a binary target.
        y: labels, `[N]`.

    Returns:
        A fraction, 0 to 1; higher is better.

    Raises:
        ValueError: if the prediction is of a regression, or the shapes differ.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import accuracy
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.9, 0.2, 0.7, 0.1]))
        >>> accuracy(pred, np.array([1, 0, 0, 0]))
        0.75
    """
    return float(np.mean(right(pred, y)))


def right(pred: Prediction, y: Targets) -> np.ndarray:
    """Returns the fraction of each row's labels that are the most probable ones, `[N]`, whose mean is `accuracy`."""
    y = target("accuracy", pred, y, has_classes=True)
    label = pred.support.labels(np.asarray(pred.mean, float))
    return by_row((label == y).astype(float))


def brier(pred: Prediction, y: Targets) -> float:
    r"""Returns the Brier score, the mean squared distance of the probabilities from the outcome.

    \[ \text{classes: } \frac1N \sum_i \sum_k (p_{ik} - \mathbf 1[y_i = k])^2, \qquad
       \text{binary: } \frac1N \sum_i (p_i - y_i)^2 \]

    The sum over classes is Brier's own (1950, eq. 2), so that the score with two classes is twice that of the same
    binary prediction, which is also scikit-learn's convention.

    Args:
        pred: a prediction of classes, or of a binary target.
        y: labels, `[N]`.

    Returns:
        A squared probability, 0 to 2 for classes, 0 to 1 for a binary target; lower is better.

    Raises:
        ValueError: if the prediction is of a regression, or the shapes differ.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import Classes
        >>> from lamu.scores import brier
        >>> brier(SimpleNamespace(support=Classes(3), mean=np.array([[0.5, 0.5, 0.0]])), np.array([0]))
        0.5
    """
    return float(np.mean(squared_distance(pred, y)))


def squared_distance(pred: Prediction, y: Targets) -> np.ndarray:
    """Returns the squared distance of each row's probabilities from its outcome, `[N]`, whose mean is `brier`."""
    y = target("brier", pred, y, has_classes=True)
    p = np.asarray(pred.mean, float)
    if p.shape == y.shape:  # of one of two classes
        return by_row((p - y) ** 2)
    return by_row(np.sum((p - (y[..., None] == np.arange(p.shape[-1]))) ** 2, axis=-1))


def rmse(pred: Prediction, y: Targets) -> float:
    r"""Returns the root mean squared error of the predicted mean, over rows and outputs alike.

    \[ \sqrt{\frac1{NK} \sum_{ik} (E[y_{ik}] - y_{ik})^2} \]

    Args:
        pred: a prediction of a regression.
        y: targets, `[N]` or `[N, K]`.

    Returns:
        An error in the target's units; lower is better.

    Raises:
        ValueError: if the prediction is of classes, or the shapes differ.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import Real
        >>> from lamu.scores import rmse
        >>> rmse(SimpleNamespace(support=Real(), mean=np.zeros(2)), np.array([3.0, -3.0]))
        3.0
    """
    return float(np.sqrt(np.mean(squared_error(pred, y))))


def squared_error(pred: Prediction, y: Targets) -> np.ndarray:
    """Returns the squared error of each row, the mean of its outputs', `[N]`, whose mean is the square of `rmse`."""
    y = target("rmse", pred, y, has_classes=False)
    return by_row((np.asarray(pred.mean, float) - y) ** 2)


def nll(pred: Prediction, y: Targets) -> float:
    r"""Returns the negative log likelihood of the targets, the logarithmic score.

    \[ -\frac1N \sum_i \log p(y_i \mid x_i, D) \]

    Args:
        pred: a prediction of any task.
        y: targets, `[N]` or `[N, K]`; the density of a row is the joint one of its outputs.

    Returns:
        Nats a row, for a density in the target's original units; lower is better.

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


def surprise(pred: Prediction, y: Targets) -> np.ndarray:
    r"""Returns \(-\log p(y_i \mid x_i, D)\) of each row in nats, `[N]`, whose mean is `nll`."""
    known = target("nll", pred, y)
    y = y if isinstance(y, Mapping) else pred.support.targets(known)
    return -np.asarray(pred.log_prob(jax.tree.map(jnp.asarray, y)), float)


def crps(pred: Prediction, y: Targets, panels: int = 64) -> float:
    r"""Returns the continuous ranked probability score, by quadrature of the predictive's distribution function F.

    \[ \frac1{NK} \sum_{ik} \int_{-\infty}^{y_{ik}} F_{ik}(z)^2 dz + \int_{y_{ik}}^{\infty} (1 - F_{ik}(z))^2 dz \]

    (Matheson & Winkler 1976; Gneiting & Raftery 2007, eq. 20.) Each integral is computed by Gauss–Legendre, eight nodes
    in each of `panels` equal panels, from the target to ten predictive standard deviations around the mean, or to the
    end of the support. For whole numbers, where F is piecewise constant, they are the sums \(\sum_k (F(k) - 1[k \ge
    y])^2\), exact up to 32 `panels` terms on either side of the target; beyond that, groups are evaluated at their
    middle.

    Args:
        pred: a prediction of a regression, whose `cdf(z)` takes z in the shape of the targets and can be traced by JAX.
        y: targets, `[N]` or `[N, K]`; several outputs are scored one by one and averaged.
        panels: the number of panels, which should not be much wider than F's steepest rise.

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


def crps_of_rows(pred: Prediction, y: Targets, panels: int = 64) -> np.ndarray:
    """Returns the score of each row, the mean of its outputs', `[N]`, whose mean is `crps`."""
    y = target("crps", pred, y, has_classes=False)
    # A deferred prediction is evaluated in chunks of rows, as the quadrature takes hundreds of numbers a row.
    parts = pred.chunks() if isinstance(pred, Predictive) else [(slice(None), pred)]
    return np.concatenate([by_row(_integrals(part, y[rows], panels)) for rows, part in parts])


def _integrals(pred: Prediction, y: np.ndarray, panels: int) -> np.ndarray:
    mean, std = np.asarray(pred.mean, float), np.asarray(pred.std, float)
    # The integrals stop at the ends of the support, and a jump at an end is outside of the quadrature.
    below = np.maximum(np.minimum(y, mean - 10.0 * std), pred.support.lower) - y
    above = np.minimum(np.maximum(y, mean + 10.0 * std), pred.support.upper) - y
    # Predictives are arguments of a compiled function, so that chunks of one shape compile once; others are constants.
    opaque = jax.tree_util.all_leaves([pred])

    def integral(reach: np.ndarray, upper: bool) -> np.ndarray:
        points = _whole_numbers if pred.support.discrete else gauss_legendre
        first, step, unit, weight = points(y, reach if upper else -reach, 1.0 if upper else -1.0, panels)

        def square(points: np.ndarray) -> np.ndarray:
            z = jnp.asarray(points, jnp.result_type(float))
            F = np.asarray(jax.lax.map(pred.cdf, z) if opaque else cdf_at(pred, z), float)
            return ((1.0 - F) if upper else F) ** 2

        return integrated(square, first, step, unit, weight)

    return integral(below, upper=False) + integral(above, upper=True)


def integrated(
    integrand: Callable[[np.ndarray], np.ndarray],
    first: np.ndarray,
    step: np.ndarray,
    unit: np.ndarray,
    weight: np.ndarray,
) -> np.ndarray:
    """Returns the integral of a function of nodes `[nodes, ...]` at first + unit · step, in chunks of nodes."""
    at_once, total = nodes_at_once(len(unit), first.size), np.zeros_like(step)
    for start in range(0, len(unit), at_once):
        some = slice(start, start + at_once)
        values = integrand(first + np.multiply.outer(unit[some], step))
        total = total + np.tensordot(weight[some], values, axes=1)
    return np.abs(step) * total


def gauss_legendre(y: np.ndarray, length: np.ndarray, sign: float, panels: int) -> tuple[np.ndarray, ...]:
    """Returns first target and step of every row, and nodes and weights in units of the step."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    unit = ((np.arange(panels)[:, None] + (nodes[None] + 1.0) / 2.0) / panels).ravel()
    return y, sign * length, unit, np.tile(weights / 2.0 / panels, panels)


def _whole_numbers(y: np.ndarray, length: np.ndarray, sign: float, panels: int) -> tuple[np.ndarray, ...]:
    """Returns the same for F constant between whole numbers: each is a node, or the middle of a group."""
    number = 2 ** int(np.ceil(np.log2(np.clip(np.max(length), 1.0, 32.0 * panels))))  # few lengths, each compiled once
    size = 2.0 * np.ceil(np.maximum(length / number - 1.0, 0.0) / 2.0) + 1.0  # odd, so that the middle is whole
    # Upwards from y itself, downwards from y − 1.
    return y + (sign * size - 1.0) / 2.0, sign * size, np.arange(number, dtype=float), np.ones(number)


@jax.jit
def cdf_at(pred: Prediction, z: Array) -> Array:
    """Returns F at each of many targets of every row, `[points, ...]`."""
    return jax.lax.map(pred.cdf, z)
