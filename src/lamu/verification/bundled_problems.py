"""Bundled data with a posterior that is known: linear regression in closed form, logistic regression by sampling."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from lamu.data.bundled import load
from lamu.likelihoods import Bernoulli, Gaussian
from lamu.model import Model
from lamu.networks import Linear
from lamu.priors import Normal
from lamu.verification.fixed_points import (
    FixedPoint,
    Loss,
    StandIn,
    bernoulli,
    gaussian,
    gaussian_fixed_point,
    hessian,
)
from lamu.verification.posterior_moments import Moments, posterior_moments
from lamu.verification.references import linear_regression

__all__ = ["Bundled", "diabetes", "iris"]

_NOISE = 0.7


@dataclass(frozen=True)
class Bundled:
    """A model with a linear network on bundled data, inputs and numeric targets standardised."""

    name: str  # data and model in words
    model: Model  # the model, with the prior N(0, 1) on every weight
    x: np.ndarray  # inputs `[N, D]`
    y: np.ndarray  # targets `[N]`
    loss: Loss  # a row's loss in NumPy
    exact: Moments  # the moments of the posterior

    @property
    def design(self) -> np.ndarray:
        """The inputs with the intercept's column in front, in the order of the ravelled weights."""
        return _design(self.x)

    def fixed_point(self, full: bool = False, stand_in: StandIn = hessian) -> FixedPoint:
        """Returns the Gaussian that the rule does not move, with a diagonal precision or a full one."""
        return gaussian_fixed_point(self.loss, self.design, self.y, 1.0, full=full, stand_in=stand_in)


def _design(x: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(x)), x]).astype(np.float64)


@cache
def diabetes() -> Bundled:
    """Returns linear regression with known noise: 442 rows, ten columns; its posterior is a closed form."""
    x, y = load("diabetes")
    x, y = ((part - part.mean(0)) / part.std(0) for part in (x, y))
    mean, precision, evidence = linear_regression(_design(x), y.astype(np.float64), _NOISE, 1.0)
    exact = Moments(mean, np.linalg.inv(precision), evidence, np.inf)
    model = Model(Linear(), Gaussian(scale=_NOISE), Normal(1.0))
    return Bundled("diabetes, linear, known noise", model, x, y, gaussian(_NOISE), exact)


@cache
def iris() -> Bundled:
    """Returns logistic regression, versicolor against virginica: 100 rows, four columns; 200,000 weighted draws."""
    x, y = load("iris")
    kept = y > 0
    x, y = x[kept], (y[kept] == 2).astype(np.int32)
    x = (x - x.mean(0)) / x.std(0)
    exact = posterior_moments(bernoulli, _design(x), y, 1.0)
    return Bundled("iris, logistic", Model(Linear(), Bernoulli(), Normal(1.0)), x, y, bernoulli, exact)
