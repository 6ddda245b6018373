"""The rule in disguise, one datum at a time: Kalman's filter, recursive least squares, Hedge, the Bayes mixture.

In each, the loss of a step is that of the new datum and of the old belief, ℓ = −log p(y | θ) − log q, and ρ = 1. The
references are written out in NumPy, without any part of the library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lamu.algorithms import conjugate
from lamu.data import Batch
from lamu.families import Categorical, Gaussian
from lamu.likelihoods import Gaussian as Noise
from lamu.model import Model
from lamu.networks import Linear
from lamu.objective import Objective
from lamu.operators import Dense
from lamu.priors import Belief
from lamu.rule import natural_step

rng = np.random.default_rng(4)
STEPS, NOISE = 30, 0.5
TURN = np.array([[0.9, 0.3], [-0.3, 0.95]])
DRIFT = np.array([[0.05, 0.01], [0.01, 0.02]])
ROWS = rng.normal(size=(STEPS, 2))
SEEN = ROWS @ np.array([1.0, -0.5]) + np.sin(np.arange(STEPS) / 4) + NOISE * rng.normal(size=STEPS)
START, SPREAD = np.array([0.4, -0.2]), np.array([[1.0, 0.3], [0.3, 2.0]])


def belief(mean: np.ndarray, covariance: np.ndarray) -> Gaussian:
    precision = np.linalg.inv(covariance)
    kernel = {"layers": {0: {"kernel": jnp.asarray(mean)[:, None]}}}
    return Gaussian(kernel, Dense(jnp.asarray((precision + precision.T) / 2)))


def moments(q: Gaussian) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(q.mean["layers"][0]["kernel"])[:, 0], np.linalg.inv(q.precision.matrix)


def by_the_rule(between: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> Any:
    """One conjugate step a datum, the belief moved in between; and the sum of the log predictive densities."""
    model = Model(Linear(bias=False), Noise(NOISE), Belief(belief(START, SPREAD)))
    algorithm, key = conjugate(), jax.random.key(0)

    @jax.jit
    def after(prior: Belief, row: Any, y: Any) -> tuple[Gaussian, Any]:
        objective, batch = Objective(replace(model, prior=prior), 1.0), Batch.of(row[None], y[None])
        state = algorithm.init(key, objective, batch)
        state, _ = algorithm.step(key, state, batch, objective)
        return state.belief, state.evidence

    mean, covariance, path, total = START, SPREAD, [], 0.0
    for row, y in zip(ROWS, SEEN, strict=True):
        q, evidence = after(Belief(belief(*between(mean, covariance))), row, y)
        mean, covariance = moments(q)
        total += float(evidence)
        path.append((mean, covariance))
    return path, total


def test_the_kalman_filter_is_the_rule() -> None:
    """Means, covariances and the likelihood of the whole series, to 1e-10."""
    path, total = by_the_rule(lambda m, P: (TURN @ m, TURN @ P @ TURN.T + DRIFT))
    m, P, likelihood = START, SPREAD, 0.0
    for (mean, covariance), h, y in zip(path, ROWS, SEEN, strict=True):
        m, P = TURN @ m, TURN @ P @ TURN.T + DRIFT
        innovation, width = y - h @ m, h @ P @ h + NOISE**2
        likelihood -= 0.5 * (innovation**2 / width + np.log(2 * np.pi * width))
        gain = P @ h / width
        m, P = m + gain * innovation, P - np.outer(gain, h @ P)
        np.testing.assert_allclose(mean, m, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(covariance, P, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(total, likelihood, rtol=1e-10)


@pytest.mark.parametrize("forgetting", [1.0, 0.9])
def test_recursive_least_squares_is_the_rule(forgetting: float) -> None:
    """The forgetting factor is a power of the old belief (Haykin's form, with the covariance in units of the noise)."""
    path, _ = by_the_rule(lambda m, P: (m, P / forgetting))
    w, P = START, SPREAD / NOISE**2
    for (mean, covariance), x, d in zip(path, ROWS, SEEN, strict=True):
        k = P @ x / (forgetting + x @ P @ x)
        w = w + k * (d - w @ x)
        P = (P - np.outer(k, x @ P)) / forgetting
        np.testing.assert_allclose(mean, w, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(covariance, P * NOISE**2, rtol=1e-10, atol=1e-10)


def learned_weights(losses: np.ndarray, eta: float) -> np.ndarray:
    """The probabilities of the experts before every round, by the rule on a Categorical belief."""

    @jax.jit
    def step(q: Categorical, row: Any) -> Categorical:
        old = q.natural()
        expected = lambda mu: eta * (mu.family().mean @ row) - jnp.sum(old.values * mu.values)  # E_q[ℓ]
        gradient = jax.grad(expected)(q.expectation())
        return replace(old, values=natural_step(old.values, gradient.values, rate=1.0)).family()

    q, path = Categorical(jnp.zeros(losses.shape[1])), []
    for row in losses:
        path.append(np.asarray(q.mean))
        q = step(q, jnp.asarray(row))
    return np.stack(path)


def test_hedge_is_the_rule_and_keeps_its_bound() -> None:
    """Losses in [0, 1]: Σ E_q[loss] ≤ min_k Σ loss_k + log K / η + η T / 8.

    Cesa-Bianchi & Lugosi (2006), theorem 2.2.
    """
    rounds, experts = 200, 5
    eta = np.sqrt(8 * np.log(experts) / rounds)
    steady = np.clip(rng.random((rounds, experts)) - 0.1 * np.arange(experts), 0, 1)
    turning = np.where(np.arange(rounds)[:, None] % 2 == np.arange(experts) % 2, 0.0, 1.0)
    for losses in (steady, turning):
        weights = learned_weights(losses, eta)
        before = np.concatenate([np.zeros((1, experts)), np.cumsum(losses, axis=0)[:-1]])
        by_hand = np.exp(-eta * before)
        np.testing.assert_allclose(weights, by_hand / by_hand.sum(axis=1, keepdims=True), rtol=1e-10)
        best = losses.sum(axis=0).min()
        assert np.sum(weights * losses) <= best + np.log(experts) / eta + eta * rounds / 8
    # The bound is worth having: equal weights break it on experts that differ.
    assert steady.mean(axis=1).sum() > steady.sum(axis=0).min() + np.log(experts) / eta + eta * rounds / 8


def test_a_bayes_mixture_is_the_rule_with_log_loss() -> None:
    """η = 1: the weights are the experts' posterior, and the mixture's log loss is within log K of the best one's."""
    coins = np.array([0.1, 0.4, 0.7, 0.9])
    seen = rng.random(60) < 0.65
    losses = -np.log(np.where(seen[:, None], coins, 1 - coins))
    weights = learned_weights(losses, 1.0)
    posterior = np.full(4, 0.25)
    for row, found in zip(losses, weights, strict=True):
        np.testing.assert_allclose(found, posterior, rtol=1e-10)
        posterior = posterior * np.exp(-row)
        posterior /= posterior.sum()
    mixture = -np.log(np.sum(weights * np.exp(-losses), axis=1)).sum()
    assert mixture <= losses.sum(axis=0).min() + np.log(4)
    np.testing.assert_allclose(mixture, -np.log(np.mean(np.exp(-losses.sum(axis=0)))), rtol=1e-10)
