"""Models: parameters, frozen leaves, and scaling as a part of the model."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lamu
from lamu.data import Batch

X = np.random.default_rng(0).normal(3.0, 2.0, size=(8, 3))
Y = X @ np.array([1.0, -1.0, 0.5]) + 7.0
MODEL = lamu.Model(lamu.networks.MLP((4,)), lamu.likelihoods.Gaussian())
BATCH = Batch.of(jnp.asarray(X), jnp.asarray(Y))


def test_parameters_are_the_networks_and_the_likelihoods() -> None:
    params, state = MODEL.init(jax.random.key(0), BATCH)
    assert set(params) == {"network", "likelihood"}
    assert state == {}
    assert lamu.tree.paths(params["likelihood"]) == ["log_scale"]
    known = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
    assert known.init(jax.random.key(0), BATCH)[0]["likelihood"] == {}


def test_log_likelihood_is_one_number_a_row_and_log_prior_one() -> None:
    params, state = MODEL.init(jax.random.key(0), BATCH)
    values, _ = MODEL.log_likelihood(params, state, BATCH)
    f, _ = MODEL.outputs(params, state, BATCH.x)
    scale = np.exp(params["likelihood"]["log_scale"][0])
    np.testing.assert_allclose(values, stats.norm.logpdf(Y, f[:, 0], scale), rtol=1e-10)
    weights = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params["network"])])
    expected = stats.norm.logpdf(weights).sum() + stats.norm.logpdf(params["likelihood"]["log_scale"], scale=3.0).sum()
    np.testing.assert_allclose(MODEL.log_prior(params), expected, rtol=1e-10)


def test_an_offset_is_added_to_the_outputs() -> None:
    """One number a row is for every output."""
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
    y = np.column_stack([Y, Y])
    params, state = model.init(jax.random.key(0), Batch.of(X, y))
    f, _ = model.outputs(params, state, BATCH.x)
    for offset in (np.arange(8.0), np.arange(16.0).reshape(8, 2)):
        values, _ = model.log_likelihood(params, state, Batch.of(X, y, offset))
        expected = stats.norm.logpdf(y, f + offset.reshape(8, -1)).sum(axis=1)
        np.testing.assert_allclose(values, expected, rtol=1e-10)


def test_frozen_leaves_are_constants() -> None:
    params, state = MODEL.init(jax.random.key(0), BATCH)
    frozen = MODEL.freeze(params, "layers/0/*")
    free, _ = frozen.init(jax.random.key(1), BATCH)
    assert lamu.tree.paths(free["network"]) == ["layers/1/bias", "layers/1/kernel"]
    whole = frozen.complete(free["network"])
    np.testing.assert_array_equal(whole["layers"][0]["kernel"], params["network"]["layers"][0]["kernel"])
    gradient = jax.grad(lambda p: jnp.sum(frozen.log_likelihood(p, state, BATCH)[0]))(free)
    assert lamu.tree.paths(gradient["network"]) == lamu.tree.paths(free["network"])
    expected = stats.norm.logpdf(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(free["network"])])).sum()
    dispersion = MODEL.likelihood.log_prior(free["likelihood"])
    np.testing.assert_allclose(frozen.log_prior(free), expected + dispersion, rtol=1e-10)


def test_a_frozen_model_freezes_again() -> None:
    params, _ = MODEL.init(jax.random.key(0), BATCH)
    frozen = MODEL.freeze(params, "layers/0/*")
    free, _ = frozen.init(jax.random.key(1), BATCH)
    more = frozen.freeze(free, "layers/0/*", "layers/1/bias")
    assert lamu.tree.paths(more.init(jax.random.key(2), BATCH)[0]["network"]) == ["layers/1/kernel"]


def test_a_frozen_model_is_saved_and_predicts(tmp_path) -> None:
    params, _ = MODEL.init(jax.random.key(0), BATCH)
    fit = lamu.fit(MODEL.freeze(params, "layers/0/*"), (X, Y), lamu.algorithms.ivon(), steps=3)
    again = lamu.load(fit.posterior.save(tmp_path / "frozen"))
    np.testing.assert_array_equal(again.predict(X).mean, fit.posterior.predict(X).mean)


def test_a_pattern_that_matches_nothing_is_named() -> None:
    params, _ = MODEL.init(jax.random.key(0), BATCH)
    with pytest.raises(ValueError, match="'layer/0' matches no leaf; the leaves are layers/0/bias"):
        MODEL.freeze(params, "layer/0")


def test_standardised_models_see_moments_of_zero_and_one() -> None:
    model = MODEL.standardised(X, Y)
    params, state = model.init(jax.random.key(0), BATCH)
    np.testing.assert_allclose(params["likelihood"]["log_scale"], 0.0, atol=1e-9)
    plain, _ = MODEL.outputs(params, state, (BATCH.x - X.mean(0)[None]) / X.std(0)[None])
    np.testing.assert_allclose(model.outputs(params, state, BATCH.x)[0], plain, rtol=1e-9)
    z = (Y - Y.mean()) / Y.std()
    expected = stats.norm.logpdf(z, plain[:, 0]) - np.log(Y.std())
    np.testing.assert_allclose(model.log_likelihood(params, state, BATCH)[0], expected, rtol=1e-8)


def test_standardised_keeps_classes_and_constant_columns() -> None:
    x = np.column_stack([X, np.full(8, 5.0)])
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 1])
    categorical = lamu.likelihoods.Categorical(3)
    model = lamu.Model(lamu.networks.Linear(), categorical).standardised(x, labels)
    assert model.likelihood == categorical
    params, state = model.init(jax.random.key(0), Batch.of(jnp.asarray(x), jnp.asarray(labels)))
    assert np.all(np.isfinite(model.outputs(params, state, jnp.asarray(x))[0]))


def test_standardised_several_outputs() -> None:
    y = np.column_stack([Y, 100 * Y + 3])
    model = MODEL.standardised(X, y)
    np.testing.assert_allclose(model.likelihood.scale, y.std(axis=0), rtol=1e-9)
    fit = lamu.fit(model, (X, y), lamu.algorithms.adam(), steps=2)
    assert fit.posterior.predict(X).mean.shape == (8, 2)


def test_standardised_whole_numbers() -> None:
    whole = np.arange(24).reshape(8, 3)
    model = MODEL.standardised(whole, np.arange(8))
    fit = lamu.fit(model, (whole, np.arange(8)), lamu.algorithms.adam(), steps=2)
    np.testing.assert_array_equal(fit.posterior.predict(whole).mean, fit.posterior.predict(whole.astype(float)).mean)


def test_the_prior_predictive_draws_the_noise_from_its_prior() -> None:
    """E[σ²] of σ ~ Gamma(6, 12) is 42/144; of 20,000 draws a variance has an error below 2 %, five of them are 0.1."""
    noise = lamu.likelihoods.Gaussian(scale_prior=lamu.likelihoods.GammaDispersion(6.0, 12.0))
    model = lamu.Model(lamu.networks.Linear(), noise, lamu.priors.Normal(0.5))
    draws = np.asarray(model.prior_predictive(jax.random.key(1), 20_000, np.array([[0.0], [1.0]])))
    np.testing.assert_allclose(draws.var(axis=0), np.array([0.25, 0.5]) + 42 / 144, rtol=0.1)
    # A noise of each draw, the same for its rows: the absolute residuals of two rows go together.
    model = lamu.Model(lamu.networks.Linear(), noise, lamu.priors.Normal(1e-9))
    absolute = np.abs(model.prior_predictive(jax.random.key(1), 20_000, np.zeros((2, 1))))
    assert np.corrcoef(absolute.T)[0, 1] > 0.05


@pytest.mark.parametrize(
    "likelihood",
    [
        lamu.likelihoods.NegativeBinomial(),
        lamu.likelihoods.Ordinal(4),
        lamu.likelihoods.RightCensored(lamu.likelihoods.Weibull()),
        lamu.likelihoods.ZeroInflated(lamu.likelihoods.NegativeBinomial()),
    ],
    ids=lambda likelihood: likelihood.name,
)
def test_the_prior_predictive_of_learned_dispersions_is_in_the_support(likelihood) -> None:
    model = lamu.Model(lamu.networks.Linear(), likelihood, lamu.priors.Normal(0.5))
    draws = np.asarray(model.prior_predictive(jax.random.key(1), 50, np.zeros((3, 1))))
    assert draws.shape == (50, 3)
    assert likelihood.support.contains(draws).all()
    assert len(np.unique(draws)) > 2


def test_the_prior_predictive_of_dispersions_without_a_prior_says_what_to_define() -> None:
    class Own(lamu.likelihoods.Likelihood):
        support = lamu.supports.Real()

        def init(self, y):
            return {"log_scale": np.zeros(1)}

    model = lamu.Model(lamu.networks.Linear(), Own())
    with pytest.raises(NotImplementedError, match=r"Own learns \['log_scale'\] and has no `sample_prior`; define it"):
        model.prior_predictive(jax.random.key(0), 2, np.zeros((3, 1)))


def test_the_prior_predictive_has_the_variance_of_prior_and_noise() -> None:
    """y = x w + b + ε: Var = s² (1 + x²) + σ². Of 20,000 draws a variance has an error of 1 %; five of them."""
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5), lamu.priors.Normal(2.0))
    x = np.array([[0.0], [3.0]])
    draws = np.asarray(model.prior_predictive(jax.random.key(1), 20_000, x))
    assert draws.shape == (20_000, 2)
    np.testing.assert_allclose(draws.var(axis=0), 4 * (1 + x[:, 0] ** 2) + 0.25, rtol=0.05)
    np.testing.assert_allclose(np.corrcoef(draws.T)[0, 1], 4 / np.sqrt(4.25 * 40.25), atol=0.04)
    with pytest.raises(ValueError, match="n=0 is not possible"):
        model.prior_predictive(jax.random.key(0), 0, x)


@pytest.mark.parametrize("constant", [np.arange(2), np.ones(2, np.complex64), np.ones(2, bool), 3])
def test_weights_that_are_not_real_are_refused_by_their_path(constant):
    """They were an error of JAX about powers of integers or derivatives of complex numbers, without a name."""

    class Line(lamu.networks.Network):
        def init(self, key, x, outputs):
            return {"slope": jnp.zeros((x.shape[1], outputs), x.dtype), "constant": constant}, {}

        def apply(self, params, state, x, key, train):
            return x @ params["slope"] + jnp.real(params["constant"]).sum().astype(x.dtype), state

    model = lamu.Model(Line(), lamu.likelihoods.Gaussian(0.5))
    batch = lamu.data.Batch.of(jnp.ones((4, 2)), jnp.zeros(4))
    with pytest.raises(TypeError, match=r"the weight 'constant' of Line is .* weights are real numbers"):
        model.init(jax.random.key(0), batch)
    fixed = {"slope": None, "constant": constant}  # where it is fixed, it is no weight
    assert model.conditioned(fixed, {}).init(jax.random.key(0), batch)[0]["network"]["constant"] is None


@pytest.mark.parametrize(
    ("likelihood", "outputs", "y", "words"),
    [
        (lamu.likelihoods.Categorical(2), 1, np.array([0, 1]), r"likelihood Bernoulli\(\)"),
        (lamu.likelihoods.Bernoulli(), 2, np.array([0, 1]), r"likelihood Categorical\(2\)"),
        (lamu.likelihoods.Gaussian(), 2, np.array([0.5, 1.0]), r"likelihood HeteroscedasticGaussian\(\)"),
        (lamu.likelihoods.Bernoulli(), 2, np.array([[0, 1], [1, 1]]), r"2 labels a row take PerPosition\(Bernoulli"),
    ],
)
def test_the_likelihood_that_reads_a_networks_outputs_is_named(
    likelihood: Any, outputs: int, y: np.ndarray, words: str
) -> None:
    function = lambda theta, x: x @ theta["kernel"]
    model = lamu.Model(lamu.networks.Trained(function, {"kernel": np.ones((3, outputs))}), likelihood)
    with pytest.raises(ValueError, match=words):
        lamu.fit(model, (np.ones((2, 3)), y), lamu.algorithms.laplace(), epochs=0)
