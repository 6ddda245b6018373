from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.algorithms import adam, sgd
from lamu.algorithms.discrete import Masked, NoisyUnits, dropout, mc_dropout
from lamu.data import Batch
from lamu.families import Point
from lamu.networks import MLP, BatchNorm, ConvNet, draws_noise
from lamu.networks.normalisation import Dropout, GaussianDropout, UnitNoise
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.record import record

RATE, WIDTH, DRAWS = 0.2, 5, 4096
rng = np.random.default_rng(0)
X = jnp.asarray(rng.normal(size=(4, 3)))


def posterior(noise, rule: bool = True) -> Posterior:
    model = lamu.Model(MLP((WIDTH,), "tanh", dropout=noise), lamu.likelihoods.Gaussian(scale=0.1))
    params, state = model.init(jax.random.key(1), Batch.of(X, jnp.zeros(4)))
    return Posterior(model, Point(params), state, Masked() if rule else lamu.predictives.Sampled(), jax.random.key(2))


def closed_form(posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance between rows of the output, which is linear in the factors of the last hidden layer.

    By hand: inverted dropout at rate p keeps the mean of a unit and gives it the variance p / (1 - p).
    """
    layers = posterior.mean["network"]["layers"]
    hidden = np.tanh(np.asarray(X) @ np.asarray(layers[0]["kernel"]) + np.asarray(layers[0]["bias"]))
    terms = hidden * np.asarray(layers[1]["kernel"])[:, 0]
    return terms.sum(axis=1) + np.asarray(layers[1]["bias"]), RATE / (1 - RATE) * terms @ terms.T


@record
class Swapped(UnitNoise):
    """A broken twin: the rate is taken for the share that is kept."""

    def factor(self, key, shape, dtype):
        return Dropout(1 - RATE).factor(key, shape, dtype)


def deviation(noise) -> tuple[float, float]:
    """How far the draws' mean and covariance of the outputs are from the closed form, in standard errors."""
    subject = posterior(noise)
    f = subject.predict(X, samples=DRAWS).f[:, :, 0]
    mean, covariance = closed_form(subject)
    spread = np.sqrt(np.diagonal(covariance))
    found = np.cov(np.asarray(f).T)
    in_mean = np.max(np.abs(f.mean(axis=0) - mean) / (spread / DRAWS**0.5))
    return float(in_mean), float(np.max(np.abs(found - covariance) / np.outer(spread, spread)) * DRAWS**0.5)


@pytest.mark.parametrize("noise", [Dropout(RATE), GaussianDropout(RATE)], ids=["binary", "gaussian"])
def test_outputs_of_masked_networks_have_the_mean_and_covariance_of_the_closed_form(noise) -> None:
    """Rows share the mask of a draw, so the covariance is between rows too.

    Four means exceed 4.5 standard errors once in 36,000 seeds; the covariances' errors are about 1.5 to 2.5 each.
    """
    in_mean, in_covariance = deviation(noise)
    assert in_mean < 4.5
    assert in_covariance < 9.0


def test_a_rate_taken_for_the_share_that_is_kept_is_seen() -> None:
    assert deviation(Swapped())[1] > 50.0


@pytest.mark.stress
def test_draws_are_indexed_by_draw_and_never_by_chunk() -> None:
    subject = posterior(Dropout(RATE))
    whole, two = subject.predict(X, samples=8).f, subject.predict(X[2:], samples=8).f
    np.testing.assert_allclose(whole[:, 2:], two, rtol=1e-12)
    np.testing.assert_allclose(subject.predict(X, samples=3).f, whole[:3], rtol=1e-12)
    many = subject.predict(jnp.concatenate([X] * 1100), samples=2).f
    np.testing.assert_allclose(many[:, -4:], whole[:2], rtol=1e-12)


def test_without_a_key_there_is_no_noise_and_with_one_every_row_has_its_own() -> None:
    noisy, clean = posterior(Dropout(RATE), rule=False), posterior(None, rule=False)
    np.testing.assert_array_equal(noisy.predict(X).mean, clean.predict(X).mean)
    ones = Dropout(0.5).apply(jnp.ones((6, 8)), jax.random.key(0))
    assert len({tuple(row) for row in ones.tolist()}) > 1
    np.testing.assert_array_equal(ones[:3], Dropout(0.5).apply(jnp.ones((3, 8)), jax.random.key(0)))


def test_batch_statistics_are_used_and_not_computed_in_masked_predictions() -> None:
    network = MLP((4,), normalise=BatchNorm(), dropout=Dropout(0.5))
    model = lamu.Model(network, lamu.likelihoods.Gaussian(scale=0.1))
    params, state = model.init(jax.random.key(0), Batch.of(X, jnp.zeros(4)))
    subject = Posterior(model, Point(params), state, Masked(), jax.random.key(1))
    alone = subject.predict(X[:1], samples=4).f
    np.testing.assert_allclose(subject.predict(X, samples=4).f[:, :1], alone, rtol=1e-12)


def test_a_step_is_the_optimisers_on_the_network_with_masks() -> None:
    """Beside the gradient by hand, with the very masks of the step."""
    model = lamu.Model(MLP((WIDTH,), "tanh", dropout=Dropout(RATE)), lamu.likelihoods.Gaussian(scale=1.0))
    batch, key = Batch.of(X, jnp.arange(4.0)), jax.random.key(3)
    objective = Objective(replace(model, prior=lamu.priors.Normal(2.0)), 4)
    algorithm = dropout(sgd(0.1))
    state = algorithm.init(jax.random.key(1), objective, batch)
    after, _ = algorithm.step(key, state, batch, objective)
    mask = Dropout(RATE).apply(jnp.ones((4, WIDTH)), jax.random.fold_in(jax.random.clone(key), 0))
    first, second = state.mean["network"]["layers"][0], state.mean["network"]["layers"][1]
    hidden = np.tanh(X @ first["kernel"] + first["bias"][None]) * np.asarray(mask)
    away = hidden @ second["kernel"] + second["bias"][None] - np.arange(4.0)[:, None]
    gradient = hidden.T @ away / 4 + np.asarray(second["kernel"]) / (4.0 * 4)
    np.testing.assert_allclose(
        after.mean["network"]["layers"][1]["kernel"], second["kernel"] - 0.1 * gradient, rtol=1e-9
    )


def test_mistakes_say_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"rate 1\.0 is not a share"):
        Dropout(1.0)
    with pytest.raises(ValueError, match="rate -1"):
        GaussianDropout(-1)
    with pytest.raises(TypeError, match=r"dropout=0\.5"):
        MLP((3,), dropout=0.5)
    with pytest.raises(TypeError, match=r"dropout=0\.5"):
        ConvNet((2,), (3,), dropout=0.5)
    model = lamu.Model(MLP((3,)), lamu.likelihoods.Gaussian(1.0)).standardised(X, jnp.zeros(4))
    with pytest.raises(ValueError, match="the network MLP drops no units"):
        mc_dropout().init(jax.random.key(0), Objective(model, 4), Batch.of(X, jnp.zeros(4)))
    with pytest.raises(TypeError):
        dropout(optimizer=adam)
    assert isinstance(mc_dropout(), NoisyUnits)
    noisy, x = lamu.networks.Standardised(MLP((3,), dropout=Dropout()), jnp.zeros(3), jnp.ones(3)), jnp.ones((2, 3))
    assert draws_noise(noisy, *noisy.init(jax.random.key(0), x, 1), x)


def test_a_convolutional_network_drops_units_of_its_dense_layers():
    images = jax.random.normal(jax.random.key(0), (3, 4, 4))
    plain, noisy = (ConvNet((2,), (5,), dropout=dropout) for dropout in (None, Dropout(RATE)))
    params, state = plain.init(jax.random.key(1), images, 1)
    f, _ = plain.apply(params, state, images, None, False)
    np.testing.assert_array_equal(noisy.apply(params, state, images, None, False)[0], f)
    # Head and bias apart, the output is the sum of the units that are left, each divided by the share that is.
    key, units = jax.random.key(2), 5
    dense = {"layers": {0: params["layers"][0], 1: {"kernel": jnp.eye(units), "bias": jnp.zeros(units)}}}
    hidden = ConvNet((2,), (units,)).apply({**params, **dense}, state, images, None, False)[0]
    kept = ConvNet((2,), (units,), dropout=Dropout(RATE)).apply({**params, **dense}, state, images, key, True)[0]
    alive = np.asarray(hidden) > 0
    ratio = np.asarray(kept)[alive] / np.asarray(hidden)[alive]
    assert set(np.round(ratio, 5)) == {0.0, np.round(1 / (1 - RATE), 5)}
