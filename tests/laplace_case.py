"""A model at some weights beside its explicit matrices, for the tests of Laplace's method."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.algorithms.post_hoc.laplace_fit import fit_laplace
from lamu.data import Arrays
from lamu.families import Point
from lamu.likelihoods import Categorical, Gaussian
from lamu.model import Model
from lamu.networks import MLP, Linear
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.priors import Normal

rng = np.random.default_rng(0)
N, POWER, TEMPERATURE, SIZE = 12, 0.7, 0.8, 20.0
X, CLASSES = rng.normal(size=(N, 3)), rng.integers(0, 3, size=N)
WEIGHT = rng.uniform(0.3, 2.0, size=N)
NEW = jnp.asarray(rng.normal(size=(4, 3)))
CLOSE: Any = {"rtol": 1e-6, "atol": 1e-9}


class Case:
    """A model at some weights, with its curvature, Jacobians and precision made by hand."""

    def __init__(self, model: Model, y: Any, seed: int = 0) -> None:
        self.model, self.rows = model, Arrays.of({"x": X, "y": y, "weight": WEIGHT})
        params, state = jax.jit(model.init)(jax.random.key(seed), self.rows.full())
        generator = np.random.default_rng(seed)
        moved = lambda leaf: leaf + 0.1 * jnp.asarray(generator.normal(size=leaf.shape))
        self.params, self.state = jax.tree.map(moved, params), state
        self.objective = Objective(model, SIZE, TEMPERATURE, POWER)
        self.point = Posterior(model, Point(self.params), state, Sampled(), jax.random.key(3))
        self.vector, self.unravel = tree.ravel(self.params["network"])

    def outputs(self, vector: Any, x: Any) -> Any:
        params = {**self.params, "network": self.unravel(vector)}
        return self.model.outputs(params, self.state, x[None])[0][0]

    def jacobian(self, x: Any) -> Any:
        return jax.jit(jax.vmap(jax.jacrev(self.outputs), (None, 0)))(self.vector, jnp.asarray(x))

    def curvature(self) -> np.ndarray:
        """Over the rows that there are, in the place of as many as the objective counts."""
        f, J = jax.vmap(self.outputs, (None, 0))(self.vector, jnp.asarray(X)), self.jacobian(X)
        information = self.model.likelihood.information(self.params["likelihood"], f)
        return SIZE / N * POWER * np.einsum("nkd,nkl,nle,n->de", J, information, J, WEIGHT)

    def precision(self) -> np.ndarray:
        scale: Any = self.model.prior
        return (self.curvature() + np.eye(len(self.vector)) / scale.scale**2) / TEMPERATURE

    def look(self, structure: Any, curvature: Any = None, key: Any = None) -> Any:
        return fit_laplace(structure, self.point, self.objective, self.rows, curvature, key)

    def posterior(self, structure: Any, curvature: Any = None) -> Posterior:
        return self.look(structure, curvature).posterior(self.objective, jax.random.key(0))


HIDDEN = Case(Model(MLP((4,), "tanh"), Categorical(3), Normal(0.7)), CLASSES)
KEY = jax.random.key(4)
REGRESSION = Model(Linear(), Gaussian(0.5), Normal(0.8))
TARGET = X @ np.array([1.0, -1.0, 0.5]) + 0.5 * rng.normal(size=N)
DESIGN = np.column_stack([np.ones(N), X])


def linear_mode(delta: float) -> Posterior:
    mode = np.linalg.solve(DESIGN.T @ DESIGN / 0.25 + delta * np.eye(4), DESIGN.T @ TARGET / 0.25)
    layer = {"bias": jnp.asarray(mode[:1]), "kernel": jnp.asarray(mode[1:, None])}
    return Posterior(REGRESSION, Point({"network": {"layers": {0: layer}}, "likelihood": {}}), {}, Sampled(), KEY)


def dense(posterior: Any) -> np.ndarray:
    """Returns the precision of the weights as an explicit matrix."""
    gaussian = posterior.belief.factors["network"]
    return np.asarray(gaussian.precision.dense(gaussian.mean))
