"""The check of conjugate_scales, and its reference: mean-field regression with a precision a weight, in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lamu.algorithms.variational.conjugate_scales import conjugate_scales
from lamu.algorithms.variational.von import von
from lamu.data import Batch, load
from lamu.expectations import Exact
from lamu.likelihoods import Gaussian
from lamu.model import Model
from lamu.networks import Linear
from lamu.objective import Objective
from lamu.operators import Diagonal
from lamu.priors import ARD, InverseGammaVariance
from lamu.verification.check import Check
from lamu.verification.vectors import flat

__all__ = ["coordinate_ascent", "regression_by_relevance", "scale_rows"]

_NOISE, _SHAPE, _RATE = 0.7, 1.5, 0.2
_STEPS = 400


def scale_rows() -> dict[str, Callable[[], Check]]:
    """Returns the check by the public name of what it checks; it is a function without arguments."""
    return {"conjugate_scales": _conjugate_scales}


def regression_by_relevance() -> tuple[Model, np.ndarray, np.ndarray]:
    """Returns linear regression on four columns of diabetes, every weight with a scale of its own, and the rows."""
    x, y = (np.asarray(part, np.float64) for part in load("diabetes"))
    x = x[:, :4]  # the others are nearly collinear, along which steps of a diagonal belief are slow
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    prior = ARD(by="weight", law=InverseGammaVariance(_SHAPE, _RATE))
    return Model(Linear(bias=False), Gaussian(_NOISE), prior), x, y


def coordinate_ascent(x: np.ndarray, y: np.ndarray, sweeps: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and precision of every weight; from Bishop (2006), section 10.3."""
    gram, cross, D = x.T @ x / _NOISE**2, x.T @ y / _NOISE**2, x.shape[1]
    mean, relevance = np.zeros(D), np.ones(D)
    for _ in range(sweeps):
        precision = np.diagonal(gram) + relevance
        for j in range(D):
            mean[j] = (cross[j] - gram[j] @ mean + gram[j, j] * mean[j]) / precision[j]
        relevance = (_SHAPE + 0.5) / (_RATE + (mean**2 + 1.0 / precision) / 2.0)
    return mean, np.diagonal(gram) + relevance


def _conjugate_scales() -> Check:
    model, x, y = regression_by_relevance()
    batch, objective = Batch.of(x, y), Objective(model, len(y))
    algorithm = conjugate_scales(von(0.3, Diagonal, Exact()))
    state = algorithm.init(jax.random.key(0), objective, batch)
    body = lambda state, key: (algorithm.step(key, state, batch, objective)[0], None)
    state, _ = jax.lax.scan(body, state, jax.random.split(jax.random.key(1), _STEPS))
    belief: Any = algorithm.preview(jax.random.key(2), state, objective).belief
    found = belief.factors["network"]
    mean, precision = coordinate_ascent(x, y)
    sd = 1.0 / np.sqrt(precision)
    off = np.max(np.abs(flat(found.mean) - mean) / sd)
    ratio = np.max(np.abs(flat(found.precision.diagonal(found.mean)) / precision - 1.0))
    return Check("conjugate_scales", "coordinate ascent in NumPy, a scale a weight", float(off + ratio), 1e-5)
