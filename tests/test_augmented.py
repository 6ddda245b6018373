"""Inputs that change in training: the rule of the key, and what noise costs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.networks import MLP, Augmented, Dropout, InputNoise, Linear, draws_noise

rng = np.random.default_rng(0)
X = jnp.asarray(rng.normal(size=(4, 3)))


def key(seed: int = 0) -> jax.Array:
    return jax.random.key(seed)


def turned(key: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.where(jax.random.bernoulli(key, 0.5, (len(x), 1)), -x, x)


@pytest.mark.parametrize("network", [InputNoise(Linear(), 0.3), Augmented(Linear(), turned)])
def test_inputs_change_in_training_alone(network) -> None:
    params, state = network.init(key(), X, 1)
    f = lambda each, train: network.apply(params, state, X, each, train)[0]
    plain = Linear().apply(params, state, X, None, False)[0]
    for each, train in ((None, True), (key(), False), (None, False)):
        np.testing.assert_array_equal(f(each, train), plain)
    assert not np.allclose(f(key(), True), plain)
    assert not np.allclose(f(key(), True), f(key(1), True))
    np.testing.assert_array_equal(f(key(), True), f(key(), True))
    assert draws_noise(network, params, state, X, train=True)
    assert not draws_noise(network, params, state, X)


def test_the_base_has_a_key_of_its_own() -> None:
    """With the wrapper's own key, dropout inside would be a function of the noise outside."""
    base = MLP((8,), dropout=Dropout(0.5))
    network = InputNoise(base, 0.0)
    params, state = network.init(key(), X, 1)
    inner = base.apply(params, state, X, key(), True)[0]
    assert not np.allclose(network.apply(params, state, X, key(), True)[0], inner)
    assert not np.allclose(inner, base.apply(params, state, X, None, True)[0])


def test_noise_of_a_row_is_its_own_and_has_its_scale() -> None:
    """Of 3 columns of 4,000 rows; deviations within six standard errors, a false alarm at 1e-8. Padding moves none."""
    scale = np.array([0.5, 1.0, 2.0])
    network, rows = InputNoise(Linear(), scale), jnp.zeros((4000, 3))
    noise = np.asarray(network.changed(key(), rows))
    np.testing.assert_allclose(noise.std(axis=0), scale, rtol=6 / np.sqrt(8000))
    assert np.abs(np.corrcoef(noise[:-1, 0], noise[1:, 0])[0, 1]) < 6 / np.sqrt(4000)
    np.testing.assert_array_equal(network.changed(key(), rows[:7]), noise[:7])


def test_noise_on_inputs_is_ridge_on_a_line() -> None:
    r"""E(y - w(x + sε))² = (y - wx)² + s²w²: the mode is ridge's with the penalty N s²."""
    x = rng.normal(size=(40, 2))
    y = x @ [1.0, -2.0] + 0.1 * rng.normal(size=40)
    model = lamu.Model(InputNoise(Linear(bias=False), 0.7), lamu.likelihoods.Gaussian(1.0), lamu.priors.Normal(1e3))
    algorithm = lamu.algorithms.adam(lamu.rate.Annealed(0.05))
    found = lamu.fit(model, (x, y), algorithm, steps=800, batch_size=40).posterior.mean["network"]["layers"][0]
    expected = np.linalg.solve(x.T @ x + 40 * 0.49 * np.eye(2), x.T @ y)
    plain = np.linalg.solve(x.T @ x, x.T @ y)
    assert np.abs(found["kernel"][:, 0] - expected).max() < 0.15 * np.abs(plain - expected).max()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: InputNoise(Linear(), -0.1), ValueError, "noise scale -0.1 is negative"),
        (lambda: Augmented(Linear(), 3), TypeError, "augment=3 cannot be called"),
        (lambda: Augmented(Linear(), lambda key, x: x[:, 1:]).changed(key(), X), ValueError, "returned .*; keep both"),
    ],
)
def test_mistakes_are_said_in_a_sentence(make, error, words) -> None:
    with pytest.raises(error, match=words):
        make()
