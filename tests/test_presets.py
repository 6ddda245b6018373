"""The textbook's network: its priors, and what its mode is under other names."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats
from sklearn.linear_model import Ridge

import lamu
from lamu.data import Batch
from lamu.networks import MLP, Linear
from lamu.networks.multilayer import ACTIVATIONS
from lamu.objective import Objective
from lamu.presets import textbook_regression

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 4))
Y = X @ [1.0, -2.0, 0.0, 0.5] + 0.3 * rng.normal(size=30)


def loss(model: lamu.Model) -> tuple[Any, Any]:
    """The negative log joint density of all rows as a function of parameters, and initial ones."""
    batch = Batch.of(jnp.asarray(X), jnp.asarray(Y))
    params, state = model.init(jax.random.key(0), batch)
    objective = Objective(model=model, data_size=30.0)
    return lambda params: -objective.log_target(params, batch, state), params


def test_the_joint_density_is_the_textbooks() -> None:
    """Term by term by SciPy: five is a variance, the gamma's second number a rate, and log σ brings a Jacobian."""
    value, params = loss(textbook_regression((3, 2)))
    params = {**params, "likelihood": {"log_scale": jnp.array([-0.7])}}
    hidden = X
    for layer in range(2):
        at = params["network"]["layers"][layer]
        hidden = np.tanh(hidden @ np.asarray(at["kernel"]) + np.asarray(at["bias"]))
    at = params["network"]["layers"][2]
    f = (hidden @ np.asarray(at["kernel"]) + np.asarray(at["bias"]))[:, 0]
    sigma, weights = np.exp(-0.7), np.asarray(lamu.tree.ravel(params["network"])[0])
    expected = (
        stats.norm.logpdf(Y, f, sigma).sum()
        + stats.norm.logpdf(weights, 0.0, np.sqrt(5.0)).sum()
        + stats.gamma.logpdf(sigma, 0.5)
        + np.log(sigma)
    )
    np.testing.assert_allclose(value(params), -expected, rtol=1e-10)


def test_the_mode_of_a_line_is_ridge() -> None:
    model = lamu.Model(Linear(bias=False), lamu.likelihoods.Gaussian(0.5), lamu.priors.Normal(0.8))
    algorithm = lamu.algorithms.map_estimate(optax.lbfgs())
    found = lamu.fit(model, (X, Y), algorithm, steps=30, batch_size=30).posterior.mean["network"]["layers"][0]
    ridge = Ridge(alpha=0.5**2 / 0.8**2, fit_intercept=False).fit(X, Y)
    np.testing.assert_allclose(found["kernel"][:, 0], ridge.coef_, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_loss_is_that_of_a_regularised_network(activation: str) -> None:
    """Squares over 2σ², and the squared norm of the weights over 2s², up to a constant; gradients too."""
    scale, sigma = 0.8, 0.5
    network = MLP((3,), activation)
    model = lamu.Model(network, lamu.likelihoods.Gaussian(sigma), lamu.priors.Normal(scale))
    ours, params = loss(model)

    def squares(params: Any) -> Any:
        f = network.apply(params["network"], {}, jnp.asarray(X), None, False)[0][:, 0]
        return jnp.sum((jnp.asarray(Y) - f) ** 2) / (2 * sigma**2)

    def penalty(params: Any) -> Any:
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params["network"])) / (2 * scale**2)

    moved = jax.tree.map(lambda leaf: leaf + 0.3, params)
    for term in (squares, penalty):  # each matters
        assert abs(term(moved) - term(params)) > 0.1
    theirs = lambda params: squares(params) + penalty(params)
    np.testing.assert_allclose(ours(moved) - ours(params), theirs(moved) - theirs(params), rtol=1e-10)
    for one, other in zip(*(jax.tree.leaves(jax.grad(f)(moved)) for f in (ours, theirs)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_network_is_a_recursive_generalised_linear_model(activation: str) -> None:
    """Each layer is a linear model of the one below through an inverse link; the last has the likelihood's own."""
    network, x = MLP((3, 2), activation), jnp.asarray(X)
    params, state = network.init(jax.random.key(0), x, 1)
    hidden = x
    for layer in range(3):
        linear, _ = Linear().apply({"layers": {0: params["layers"][layer]}}, {}, hidden, None, False)
        hidden = ACTIVATIONS[activation](linear)
    f = network.apply(params, state, x, None, False)[0]
    np.testing.assert_allclose(f, linear, rtol=1e-12)
    np.testing.assert_allclose(lamu.likelihoods.Poisson().mean({}, f), jnp.exp(linear[:, 0]), rtol=1e-12)


def test_a_variance_is_positive() -> None:
    with pytest.raises(ValueError, match="a variance of -5"):
        textbook_regression(variance=-5.0)
