"""Small problems with known answers, asymmetric enough that a wrong sign, scale or order shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lamu.data.batch import Batch
from lamu.likelihoods import Bernoulli, Categorical, Gaussian
from lamu.model import Model
from lamu.networks import MLP, Linear
from lamu.objective import Objective
from lamu.priors import Normal

__all__ = ["Problem", "classes", "logistic", "regression"]


@dataclass(frozen=True)
class Problem:
    """Data, and the objective of a model on them."""

    x: np.ndarray  # inputs `[N, D]`
    y: np.ndarray  # targets `[N]`
    objective: Objective  # the loss
    scale: float  # the noise's standard deviation (regression)
    precision: float  # the prior's precision on every weight

    def batches(self, rows: int) -> list[Batch]:
        """Returns the data in order, the last batch padded and masked."""
        starts = range(0, len(self.x), rows)
        return [Batch.of(self.x[start : start + rows], self.y[start : start + rows]).padded(rows) for start in starts]

    @property
    def design(self) -> np.ndarray:
        """The inputs with the intercept's column in front, in the order of a linear network's ravelled weights."""
        return np.column_stack([np.ones(len(self.x)), self.x])


def regression(rows: int = 30, temperature: float = 1.0) -> Problem:
    """Returns Bayesian linear regression with correlated inputs and known noise."""
    generator = np.random.default_rng(7)
    x = generator.normal(size=(rows, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 0.8, -0.3], [0.0, 0.0, 0.5]])
    y = x @ np.array([1.0, -2.0, 0.5]) + 0.7 + 0.4 * generator.normal(size=rows)
    return _problem(x, y, Linear(), Gaussian(scale=0.4), temperature, scale=0.4, precision=0.5)


def logistic(rows: int = 40) -> Problem:
    """Returns Bayesian logistic regression."""
    generator = np.random.default_rng(8)
    x = generator.normal(size=(rows, 3)) * np.array([1.0, 2.0, 0.5])
    y = (generator.random(rows) < 1 / (1 + np.exp(-(x @ np.array([1.5, -0.5, 1.0]) + 0.3)))).astype(np.int32)
    return _problem(x, y, Linear(), Bernoulli(), 1.0, scale=1.0, precision=2.0)


def classes(rows: int = 50) -> Problem:
    """Returns a small multilayer perceptron on three classes."""
    generator = np.random.default_rng(9)
    x = generator.normal(size=(rows, 4))
    y = np.argmax(x[:, :3] + 0.3 * generator.normal(size=(rows, 3)), axis=1).astype(np.int32)
    return _problem(x, y, MLP((5, 4), activation="tanh"), Categorical(3), 1.0, scale=1.0, precision=1.0)


def _problem(
    x: Any, y: Any, network: Any, likelihood: Any, temperature: float, scale: float, precision: float
) -> Problem:
    model = Model(network, likelihood, Normal(precision**-0.5))
    return Problem(x, y, Objective(model, float(len(x)), temperature), scale, precision)
