"""How far two predicted distributions of the same number lie apart."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.predictives import Predictive
from lamu.scores.validation import by_row, nodes_at_once
from lamu.typing import Array

__all__ = ["wasserstein", "wasserstein_of_rows"]


def wasserstein(pred: Any, reference: Any, panels: int = 64) -> float:
    r"""Returns the mean Wasserstein-1 distance of two predictions of a regression.

    \[ \frac1{NK} \sum_{ik} \int |F_{ik}(z) - F^{\mathrm{ref}}_{ik}(z)|\,dz \]

    the mean distance over which probability must be moved to make one of the other. The integral is taken by
    Gauss–Legendre, eight nodes in each of `panels` equal panels, over ten standard deviations about both means.

    Args:
        pred: a prediction of a regression, in memory.
        reference: a prediction of the same rows.
        panels: how finely the distribution functions are resolved.

    Returns:
        A distance in the target's units; lower is closer.

    Raises:
        ValueError: if either is of classes, or the shapes differ.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives import GaussianPredictive
        >>> from lamu.scores import wasserstein
        >>> one, two = (GaussianPredictive(jnp.full(1, c), jnp.ones((1, 1, 1)), jnp.ones(1)) for c in (0.0, 0.5))
        >>> round(wasserstein(one, two), 6)
        0.5
    """
    return float(np.mean(wasserstein_of_rows(pred, reference, panels)))


def wasserstein_of_rows(pred: Any, reference: Any, panels: int = 64) -> np.ndarray:
    """Returns each row's distance, the mean of its outputs', `[N]`, whose mean is `wasserstein`."""
    shapes = np.shape(pred.mean), np.shape(reference.mean)
    if pred.support.has_classes or reference.support.has_classes:
        raise ValueError(
            "wasserstein compares predictions of numbers, and one of these is of classes; take total_variation"
        )
    if shapes[0] != shapes[1] or not shapes[0][0]:
        raise ValueError(f"wasserstein compares predictions of the same rows, and these have the shapes {shapes}")
    ends = [
        (np.asarray(each.mean, float) - side * 10.0 * np.asarray(each.std, float))
        for side in (1, -1)
        for each in (pred, reference)
    ]
    lower, upper = np.minimum(ends[0], ends[1]), np.maximum(ends[2], ends[3])
    nodes, weights = np.polynomial.legendre.leggauss(8)
    unit = ((np.arange(panels)[:, None] + (nodes[None] + 1.0) / 2.0) / panels).ravel()
    weight = np.tile(weights / 2.0 / panels, panels)
    at_once = nodes_at_once(len(unit), lower.size)
    total = np.zeros_like(lower)
    for start in range(0, len(unit), at_once):
        group = slice(start, start + at_once)
        z = lower + np.multiply.outer(unit[group], upper - lower)
        one, other = (np.asarray(_cdf_at(each, z), float) for each in (pred, reference))
        total += np.tensordot(weight[group], np.abs(one - other), axes=1)
    return by_row((upper - lower) * total)


def _cdf_at(pred: Any, points: np.ndarray) -> Array:
    """Returns F at many targets of every row, `[points, ...]`, some rows at a time where the prediction is large."""
    z = jnp.asarray(points, pred.mean.dtype)
    if isinstance(pred, Predictive) and pred.deferred:
        return jnp.concatenate([_compiled(part, z[:, rows]) for rows, part in pred.chunks()], axis=1)
    return _compiled(pred, z)


@jax.jit
def _compiled(pred: Any, z: Array) -> Array:
    return jax.lax.map(pred.cdf, z)
