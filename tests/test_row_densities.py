"""The density of rows by importance weights: right, or with an error that says that it is not."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import genpareto, multivariate_normal

import lamu
from lamu.convergence import pareto_shape
from lamu.families import Point
from lamu.networks import Trained
from lamu.scores.row_densities import _summed

W = np.array([[1.0, -0.5, 0.3, 0.8, 0.0], [0.2, 1.0, -0.7, 0.1, 0.5]])
NOISE = 0.3
DECODER = Trained(lambda w, z: z @ w["slope"], {"slope": jnp.asarray(W)})


def autoencoder(mean: float = 0.0) -> Any:
    """A linear Gaussian decoder, log p(y) = log N(y; 0, WᵀW + σ²I), with an encoder that looks at nothing."""
    encoder = Trained(
        lambda w, y: jnp.broadcast_to(w["constant"][None], (len(y), 4)),
        {"constant": jnp.asarray([mean, mean, 0.0, 0.0])},
    )
    graph = lamu.latent.models.VAE(2, 5, DECODER, encoder, lamu.likelihoods.Gaussian(NOISE))
    params = graph.init(jax.random.key(0), graph.rows({"y": jnp.zeros((1, 5))}).full())[0]
    return lamu.Posterior(graph, Point(params), {}, lamu.predictives.Sampled(), jax.random.key(1))


def exact(y: np.ndarray) -> np.ndarray:
    return multivariate_normal(np.zeros(5), W.T @ W + NOISE**2 * np.eye(5)).logpdf(y)


def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    near = rng.normal(size=(4, 2)) @ W
    return np.concatenate([near, [[9.0, -7.0] @ W], [[-6.0, 8.0] @ W]]) + NOISE * rng.normal(size=(6, 5))


def test_a_row_far_from_the_encoders_belief_has_its_density():
    """The last two rows lie 10 prior deviations out, where the belief N(0, I) of the encoder has no draw."""
    y = rows()
    found = lamu.scores.row_log_prob(autoencoder(), {"y": jnp.asarray(y)}, samples=500)
    away = np.abs(found.value - exact(y))
    assert np.all(away < 4.5 * np.maximum(found.error, 0.01))  # fails once in 10⁵ of keys a row
    assert np.all(found.error < 0.2)
    assert np.all(found.shape < 0.7)


def test_rows_that_no_proposal_helps_are_counted_and_their_error_is_infinite(monkeypatch):
    y = rows()
    monkeypatch.setattr("lamu.latent.row_proposals.can_propose", lambda *_: False)
    with pytest.warns(lamu.scores.UnreliableWeights, match=r"weights of \d of 6 rows .*annealed_importance"):
        found = lamu.scores.row_log_prob(autoencoder(), {"y": jnp.asarray(y)}, samples=500)
    assert np.all(np.isinf(found.error[4:]))
    known = np.isfinite(found.error)
    assert np.all(np.abs(found.value - exact(y))[known] < 4.5 * found.error[known])


def test_weights_that_do_not_spread_are_left_alone(monkeypatch):
    monkeypatch.setattr("lamu.latent.row_proposals.fitted_log_weights", None)  # it does not come to that
    encoder = autoencoder()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = lamu.scores.row_log_prob(encoder, {"y": jnp.zeros((2, 5))}, samples=4000)
    np.testing.assert_allclose(found.value, exact(np.zeros((2, 5))), atol=0.25)


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.9, 1.4])
def test_the_shape_is_that_of_the_pareto_distribution(shape):
    rng = np.random.default_rng(0)
    found = [pareto_shape(1 + genpareto(shape).rvs(4000, random_state=rng)) for _ in range(20)]
    assert abs(np.mean(found) - shape) < 0.1  # the standard error of the mean is about 0.02, the prior's pull 0.03


def test_the_sum_is_the_log_of_the_mean_weight():
    weights = np.random.default_rng(0).gamma(2.0, size=(300, 2))
    found = _summed(np.log(weights) - 700)
    np.testing.assert_allclose(found.value, np.log(weights.mean(axis=0)) - 700)
    np.testing.assert_allclose(found.error, weights.std(axis=0, ddof=1) / weights.mean(axis=0) / np.sqrt(300))
