"""Variational last layers: the bound beside Monte Carlo, the optimum beside exact regression, and training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lamu
from lamu import tree
from lamu.algorithms import DenseHead, DiagonalHead, variational_head
from lamu.algorithms.variational.variational_head import expected_log_likelihood
from lamu.data import Arrays, Batch
from lamu.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian, Scaled
from lamu.loop import fit
from lamu.model import Model
from lamu.networks import MLP, BatchNorm, Linear, Standardised
from lamu.objective import Objective
from lamu.operators import OutputBlocks
from lamu.predictives.gaussian import head_features
from lamu.priors import Normal, ScaleMixture

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
MEANS = X @ np.array([1.0, -1.0])
Y = MEANS + 0.3 * X[:, 0] ** 2 + 0.3 * rng.normal(size=40)
CLASSES = np.digitize(MEANS, [-0.7, 0.7]).astype(np.int32)


@pytest.mark.parametrize(
    ("likelihood", "y", "exact"),
    [
        (Scaled(Gaussian(0.7), 1.0, 2.0), Y[:4], True),
        (Bernoulli(), np.array([0, 1, 1, 0]), False),
        (Categorical(3), np.array([0, 1, 2, 1]), False),
    ],
    ids=["gaussian", "binary", "classes"],
)
def test_the_bound_is_below_the_expectation_and_equal_for_a_gaussian(likelihood: Any, y: Any, exact: bool) -> None:
    """10⁵ draws of the outputs; five standard errors, with a fixed seed."""
    model, width = Model(Linear(), likelihood), likelihood.outputs(jnp.asarray(y))
    mean = jnp.asarray(rng.normal(size=(4, width)))
    variance = jnp.asarray(rng.uniform(0.2, 1.5, size=(4, width)))
    found = expected_log_likelihood(model, {}, mean, variance, jnp.asarray(y))
    f = mean[None] + jnp.sqrt(variance)[None] * jax.random.normal(jax.random.key(0), (100_000, 4, width))
    draws = jax.vmap(lambda f: likelihood.log_prob({}, f, jnp.asarray(y)))(f)
    error = np.std(draws, axis=0) / 100_000**0.5
    away = (np.mean(draws, axis=0) - np.asarray(found)) / error
    assert np.all(away > -5)
    assert np.all(away < 5) == exact
    assert np.all(np.mean(draws, axis=0) - np.asarray(found) < 0.6)  # and not far below
    at = expected_log_likelihood(model, {}, mean, jnp.zeros_like(variance), jnp.asarray(y))
    np.testing.assert_allclose(at, likelihood.log_prob({}, mean, jnp.asarray(y)), rtol=1e-12)


def frozen() -> tuple[Model, Any]:
    """Returns a model whose features are frozen and whose noise is known, and the parameters."""
    model = Model(MLP((4,), "tanh"), Gaussian(0.3), Normal(0.8))
    params = model.init(jax.random.key(0), Batch.of(X, Y))[0]
    return model.freeze(params, "layers/0/*"), params


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_with_frozen_features_the_optimum_is_exact_regression(temperature: float) -> None:
    """There the gradient vanishes, the evidence is the closed form, and descent goes there."""
    model, params = frozen()
    objective = Objective(model, 40.0, temperature)
    algorithm = variational_head(optax.sgd(1.0))
    state = algorithm.init(jax.random.key(0), objective, Batch.of(X, Y))
    phi = np.asarray(head_features(model, state.params["mean"], {}, jnp.asarray(X))[1])
    gram = (phi.T @ phi / 0.09 + np.eye(5) / 0.64) / temperature
    mean = np.linalg.solve(gram, phi.T @ Y / 0.09 / temperature)
    root = np.linalg.cholesky(np.linalg.inv(gram))
    raw = jnp.asarray(np.tril(root, -1) + np.diag(np.log(np.diagonal(root))))[None]
    exact = {**state.params, "mean": tree.ravel(state.params["mean"])[1](jnp.asarray(mean)), "raw": raw}
    after, info = algorithm.step(jax.random.key(0), replace(state, params=exact), Batch.of(X, Y), objective)
    assert info.residual < 1e-10
    residual = Y - phi @ mean
    joint = -20 * np.log(2 * np.pi * 0.09) - residual @ residual / 0.18 - 2.5 * np.log(2 * np.pi * 0.64)
    joint = (joint - mean @ mean / 1.28) / temperature
    expected = joint + 2.5 * np.log(2 * np.pi) - np.linalg.slogdet(gram)[1] / 2
    found = algorithm.posterior(jax.random.key(0), after, objective, Arrays.of((X, Y)), None)
    np.testing.assert_allclose(found.evidence, expected, rtol=1e-9)
    assert isinstance(found.belief.factors["network"].precision, OutputBlocks)  # pyright: ignore[reportAttributeAccessIssue]
    falling = optax.adam(optax.cosine_decay_schedule(0.05, 1000))
    learned = fit(
        model, (X, Y), variational_head(falling, factor=1.0), steps=1000, batch_size=40, temperature=temperature
    )
    assert expected - 0.3 < float(learned.posterior.evidence) <= expected + 1e-9
    assert params["likelihood"] == {}


def test_padding_weighs_nothing() -> None:
    model, _ = frozen()
    objective, algorithm = Objective(model, 40.0), variational_head(optax.sgd(0.1))
    batch = Batch.of(X, Y)
    padded = batch.padded(44)
    padded = replace(padded, x=padded.x.at[40:].set(jnp.nan), y=padded.y.at[40:].set(jnp.nan))
    state = algorithm.init(jax.random.key(0), objective, batch)
    one, two = (algorithm.step(jax.random.key(0), state, b, objective)[0] for b in (batch, padded))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), one.params, two.params)


@pytest.mark.parametrize("covariance", [DenseHead(), DiagonalHead()], ids=["dense", "diagonal"])
def test_covariances_agree_with_their_precision(covariance: Any) -> None:
    head = {"bias": jnp.zeros(2), "kernel": jnp.zeros((2, 2))}
    raw = covariance.init(head, 0.5)
    start = covariance.precision(raw, head)
    np.testing.assert_allclose(start.dense(head), 4 * np.eye(6), atol=1e-12)
    raw = raw + 0.3 * jax.random.normal(jax.random.key(0), raw.shape)
    precision, phi = covariance.precision(raw, head), jnp.asarray(rng.normal(size=(3, 3)))
    inverse = np.linalg.inv(precision.dense(head)).reshape(3, 2, 3, 2)
    expected = np.einsum("ni,ikjk,nj->nk", phi, inverse, phi)
    np.testing.assert_allclose(covariance.quadratic_form(raw, phi), expected, rtol=1e-9)
    np.testing.assert_allclose(covariance.variance(raw), np.einsum("ikik->ki", inverse), rtol=1e-9)
    entropy = 3 * (1 + np.log(2 * np.pi)) - np.linalg.slogdet(precision.dense(head))[1] / 2
    np.testing.assert_allclose(covariance.entropy(raw), entropy, rtol=1e-10)


@pytest.mark.parametrize("covariance", [DenseHead(), DiagonalHead()], ids=["dense", "diagonal"])
@pytest.mark.stress
def test_classes_train_without_a_draw(covariance: Any) -> None:
    model = Model(MLP((8,), "tanh"), Categorical(3))
    algorithm = variational_head(optax.adam(0.02), covariance)
    found = fit(model, (X, CLASSES), algorithm, steps=300, batch_size=40)
    assert found.history["loss"][-1] < found.history["loss"][0] - 0.3
    assert lamu.scores.accuracy(found.posterior.predict(X), CLASSES) > 0.8
    assert np.isfinite(found.posterior.evidence)
    far = found.posterior.predict(np.array([[30.0, 30.0], [0.0, 0.0]]))
    assert np.all(far.epistemic > 0)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(TypeError, match="not an optax optimiser"):
        variational_head(optimizer=3)
    with pytest.raises(TypeError, match="give an object"):
        variational_head(covariance=DenseHead)
    with pytest.raises(ValueError, match=r"init_scale=-0\.5"):
        variational_head(init_scale=-0.5)
    for network, likelihood, prior, words in (
        (MLP((3,), normalise=BatchNorm()), Gaussian(), Normal(), "without a state"),
        (Linear(), HeteroscedasticGaussian(), Normal(), "not for HeteroscedasticGaussian"),
        (Linear(), Gaussian(), ScaleMixture(), "not SpikeAndSlab"),
    ):
        with pytest.raises(TypeError, match=words):
            fit(Model(network, likelihood, prior), (X, Y), variational_head(), steps=1)


def test_outputs_of_different_units_have_variances_in_their_units() -> None:
    """The sum over rows beside 4,000 draws of the belief; five standard errors, with a fixed seed."""
    network = Standardised(Linear(), np.zeros(2), np.ones(2), level=np.array([1.0, -50.0]), unit=np.array([1.0, 30.0]))
    model, batch = Model(network, Gaussian(2.0)), Batch.of(X, np.stack([Y, 30 * Y], axis=1))
    algorithm, objective = variational_head(init_scale=0.3), Objective(model, 40.0)
    state = algorithm.init(jax.random.key(0), objective, batch)
    posterior = algorithm.posterior(jax.random.key(1), state, objective, None, None)
    value = lambda key: jnp.sum(posterior.model.log_likelihood(posterior.belief.sample(key), {}, batch)[0])
    draws = jax.lax.map(jax.jit(value), jax.random.split(jax.random.key(2), 4000))
    error = 5 * np.std(draws) / 4000**0.5
    np.testing.assert_allclose(algorithm._data(state.params, objective, batch), np.mean(draws), atol=error)
