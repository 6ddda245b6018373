"""Squares of single rows' gradients, beside their definition row by row; the reference of VOGN covers the rest."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lamu import tree
from lamu.data import Batch
from lamu.families import Gaussian
from lamu.likelihoods import Categorical
from lamu.model import Model
from lamu.networks import MLP
from lamu.objective import BatchLoss, Objective, Weights
from lamu.objective.curvature import SquaredGradients
from lamu.operators import Dense, Diagonal, Scalar

X = np.random.default_rng(0).normal(size=(5, 2))
Y = jnp.array([0, 2, 1, 1, 0], jnp.int32)


def case() -> tuple[BatchLoss, dict]:
    model = Model(MLP((3,), "tanh"), Categorical(3))
    batch = Batch.of(X, Y)
    batch = replace(batch, weight=jnp.array([1.0, 2.0, 0.5, 1.0, 3.0])).padded(8)
    params, state = model.init(jax.random.key(0), batch)
    objective = Objective(model, 50, likelihood_power=0.7)
    return BatchLoss(objective, batch, state, Weights(), {}, conjugate=True), params["network"]


@pytest.mark.parametrize("structure", [Diagonal, Dense])
def test_squares_are_the_rows_own(structure) -> None:
    loss, theta = case()
    model, total = loss.objective.model, 0.0
    for i in range(5):
        log_prob = lambda theta, i=i: model.likelihood.log_prob(
            {}, model.network.apply(theta, {}, jnp.asarray(X[i : i + 1]), None, False)[0], Y[i : i + 1]
        )[0]
        gradient = np.asarray(tree.ravel(jax.grad(log_prob)(theta))[0])
        total = total + 0.7 * loss.batch.weight[i] / 5 * np.outer(gradient, gradient)
    found = SquaredGradients().evaluate(loss, theta, Gaussian(theta, Scalar(1.0)), structure, None)
    expected = total if structure is Dense else np.diag(np.diagonal(total))
    np.testing.assert_allclose(found.curvature.dense(theta), expected, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(tree.ravel(found.gradient)[0], tree.ravel(loss.gradient(theta, None).coordinates)[0])


def test_a_network_with_a_state_is_refused() -> None:
    loss, theta = case()
    loss = replace(loss, network_state={"mean": np.zeros(3)})
    with pytest.raises(TypeError, match="without a state"):
        SquaredGradients().evaluate(loss, theta, Gaussian(theta, Scalar(1.0)), Diagonal, None)


def test_a_prior_in_the_loss_is_refused() -> None:
    loss, theta = case()
    loss = replace(loss, conjugate=False)
    with pytest.raises(TypeError, match="need a Gaussian prior"):
        SquaredGradients().evaluate(loss, theta, Gaussian(theta, Scalar(1.0)), Diagonal, None)
