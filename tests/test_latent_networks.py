"""Ladders, recurrent encoders and transposed convolutions: beside closed forms and JAX's own operations."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import lamu
from lamu import graphs, latent
from lamu.latent import models
from lamu.networks import GRU, MLP, ConvNet, DeconvNet, EveryStep, Linear, holds_convolutions
from lamu.predictives import Sampled

RANDOM = np.random.default_rng(0)
DIGITS, LABELS = (np.asarray(part) for part in lamu.data.load("digits"))
BITS = (DIGITS.reshape(len(DIGITS), -1) > 0.5).astype(np.float32)
row_values = jax.jit(lambda graph, params, state, batch, key: graph.log_likelihood(params, state, batch, key)[0])
layer = lambda kernel, bias=None: {
    "layers": {0: {"kernel": jnp.asarray(kernel), **({} if bias is None else {"bias": jnp.asarray(bias)})}}
}


def test_a_ladder_with_a_layers_likelihood_is_exact() -> None:
    """z1 given z2 has the prior's Gaussian times the likelihood's: every draw weighs the log density of its row."""
    slope, width, W, noise = 0.7, 0.6, np.array([[1.2, -0.5, 0.4]]), 0.5
    y = RANDOM.normal(size=(4, 3))

    def program(m) -> None:
        down = m.network("down", Linear(bias=False), outputs=1)
        decode = m.network("decode", Linear(bias=False), outputs=3)
        with m.rows():
            z2 = m.sample("z2", graphs.Normal(jnp.zeros(1), 1.0))
            z1 = m.sample("z1", graphs.Normal(down(z2), scale=width))
            m.sample("y", lamu.likelihoods.Gaussian(scale=noise)(decode(z1)))

    local = {"z2": latent.Ladder(Linear()), "z1": latent.Ladder(Linear(), given=("z2",))}
    graph = lamu.Graph(program, local=local)
    batch = graph.read({"y": y}).full()
    params, state = graph.init(jax.random.key(0), batch)
    precision = float(np.sum(W**2)) / noise**2
    message = W.T / noise**2 / precision  # y to the mean of what is said of z1
    above = slope**2 / (width**2 + 1 / precision)  # the precision of what is said of z2
    encoder = lambda mean, precision: layer(
        np.concatenate([mean, np.zeros((3, 1))], axis=1), [0.0, -0.5 * np.log(precision)]
    )
    local = {
        "z1": {"network": encoder(message, precision), "family": {}},
        "z2": {"network": encoder(message / slope, above), "family": {}},
    }
    network = {"down": layer([[slope]]), "decode": layer(W), "local": local}
    params = {**params, "network": network}
    exact = multivariate_normal(np.zeros(3), (slope**2 + width**2) * W.T @ W + noise**2 * np.eye(3)).logpdf(y)
    for key in range(2):
        found = row_values(graph.importance_weighted(), params, state, batch, jax.random.key(key))
        np.testing.assert_allclose(found, exact, rtol=1e-9)
    independent = replace(graph, local={**graph.local, "z1": latent.Amortised(Linear())})
    assert (
        np.abs(row_values(independent.importance_weighted(), params, state, batch, jax.random.key(0)) - exact).max()
        > 0.1
    )
    lost = replace(graph, local={**graph.local, "z1": latent.Ladder(Linear())})
    with pytest.raises(ValueError, match=r"depends on 'z2', which has no value before it; give Ladder"):
        lost.init(jax.random.key(0), batch)
    with pytest.raises(TypeError, match="a Ladder joins Gaussians"):
        latent.Ladder(Linear(), latent.Flows((latent.Planar(),)))


@pytest.mark.stress
def test_a_ladder_trains() -> None:
    graph = models.LadderVAE((4, 2), 64, (16,))
    fit = lamu.fit(graph, {"y": BITS[:200]}, lamu.algorithms.adam(1e-2), steps=60, batch_size=64)
    assert lamu.scores.mean_log_prob(fit.posterior, {"y": BITS[200:300]}, samples=4).value > -64 * np.log(2) + 10
    with pytest.raises(ValueError, match=r"latents=\(\) has no layer"):
        models.LadderVAE((), 64)


def series(noise) -> tuple:
    """A linear deep Markov model, its networks, and the exact covariance of its rows."""
    T, d, D, scale = 4, 2, 3, 0.6
    A, W = np.array([[0.9, -0.1], [0.2, 0.8]]), RANDOM.normal(size=(2, 3))
    smoother = latent.Smoother(Linear(), Linear(), width=2 * d)
    likelihood = lamu.likelihoods.Gaussian(scale=noise)
    graph = models.DeepMarkov(T, d, D, likelihood, Linear(), Linear(bias=False), smoother)
    powers = [np.linalg.matrix_power(A.T, n) for n in range(T)]
    L = np.block([[powers[t - s] if t >= s else np.zeros((d, d)) for s in range(T)] for t in range(T)])
    prior = L @ np.diag([1.0] * d + [scale**2] * (d * (T - 1))) @ L.T
    up = np.kron(np.eye(T), W.T)
    covariance = up @ prior @ up.T + noise**2 * np.eye(T * D)
    transition = layer(np.concatenate([A, np.zeros((d, d))], axis=1), [0.0] * d + [np.log(scale)] * d)
    return graph, {"z.prior": transition, "decode": layer(W)}, covariance


def test_a_deep_markov_model_is_its_gaussian() -> None:
    """Importance weights of the recurrent encoder average to the exact density, within 4 standard errors a row."""
    graph, known, covariance = series(noise=1.5)
    y = RANDOM.multivariate_normal(np.zeros(12), covariance, size=3)
    batch = graph.read({"y": y.reshape(3, 4, 3)}).full()
    params, state = graph.init(jax.random.key(0), batch)
    # An encoder near the prior: independent steps of mean zero and unit width.
    calm = jax.tree.map(lambda leaf: 0.1 * leaf, params["network"]["local"])
    params = {**params, "network": {**known, "local": calm}}
    of_key = jax.jit(jax.vmap(lambda key: graph.log_likelihood(params, state, batch, key)[0]))
    log_weights = np.asarray(of_key(jax.random.split(jax.random.key(1), 20_000)))
    exact = multivariate_normal(np.zeros(12), covariance).logpdf(y)
    ratio = np.exp(log_weights - exact)
    assert np.all(np.abs(ratio.mean(0) - 1) < 4 * ratio.std(0) / np.sqrt(len(ratio)))
    assert np.all(log_weights.mean(0) < exact - 0.1)


def test_a_smoother_holds_the_exact_posterior() -> None:
    """q(z_t | z_{t-1}, y_{t:T}) of a linear Gaussian series is linear: with it every path weighs the log density.

    One step's width is that of the stationary smoother only in the last steps, so that a series of two steps is taken.
    """
    T, noise, scale, a, w = 2, 0.5, 0.6, 0.9, 1.3
    smoother = latent.Smoother(Linear(), Linear(), width=2)
    graph = models.DeepMarkov(T, 1, 1, lamu.likelihoods.Gaussian(scale=noise), Linear(), Linear(bias=False), smoother)
    y = RANDOM.normal(size=(3, T, 1))
    batch = graph.read({"y": y}).full()
    params, state = graph.init(jax.random.key(0), batch)
    last = 1 / scale**2 + w**2 / noise**2  # precision of z2 given z1 and y2
    seen = scale**2 * w**2 + noise**2  # variance of y2 given z1
    first = 1 + w**2 / noise**2 + (w * a) ** 2 / seen
    # h of a step: what the data say of the mean, and its log scale; the series comes from its end.
    kernel, bias = np.zeros((2, 4)), np.zeros(4)
    kernel[0, 0], bias[1] = w / noise**2 / last, -0.5 * np.log(last)
    kernel[:, 2], bias[3] = [w * a / seen / first, w / noise**2 / first], -0.5 * np.log(first)
    combine = np.array([[a / scale**2 / last, 0.0], [1.0, 0.0], [0.0, 1.0]])
    local = {"z": {"backward": layer(kernel, bias), "combiner": layer(combine, np.zeros(2))}}
    transition = layer([[a, 0.0]], [0.0, np.log(scale)])
    params = {**params, "network": {"z.prior": transition, "decode": layer([[w]]), "local": local}}
    prior = np.array([[1.0, a], [a, a**2 + scale**2]])
    exact = multivariate_normal(np.zeros(2), w**2 * prior + noise**2 * np.eye(2)).logpdf(y[..., 0])
    for key in range(2):
        found = row_values(graph, params, state, batch, jax.random.key(key))
        np.testing.assert_allclose(found, exact, rtol=1e-9)


@pytest.mark.stress
def test_a_recurrent_encoder_trains_and_new_series_have_the_models_covariance() -> None:
    graph, known, covariance = series(noise=0.5)
    y = RANDOM.multivariate_normal(np.zeros(12), covariance, size=100).reshape(100, 4, 3)
    likelihood = lamu.likelihoods.Gaussian(scale=0.5)
    encoder = latent.Smoother(GRU((8,), EveryStep()), MLP((8,)), width=6)
    deep = models.DeepMarkov(4, 2, 3, likelihood, MLP((8,)), MLP((8,)), encoder)
    batch = deep.read({"y": y}).full()
    first, state = deep.init(jax.random.key(0), batch)
    fit = lamu.fit(deep, {"y": y}, lamu.algorithms.adam(1e-2), steps=100, batch_size=50)
    before, after = (
        float(jnp.mean(row_values(deep, p, state, batch, jax.random.key(1)))) for p in (first, fit.posterior.mean)
    )
    assert after > before + 3
    params = {**graph.init(jax.random.key(0), batch)[0]}
    params["network"] = {**params["network"], **known}
    posterior = lamu.Posterior(graph, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))
    rows = np.asarray(latent.generate(posterior, 4000, jax.random.key(1))["y"]).reshape(4000, -1)
    np.testing.assert_allclose(np.cov(rows.T), covariance, atol=5 * covariance.max() * np.sqrt(2 / 4000))
    with pytest.raises(ValueError, match=r"has the shape \(3, 4\), and 'z' has 4 steps"):
        graph.init(jax.random.key(0), graph.read({"y": y.reshape(100, 3, 4)}).full())
    with pytest.raises(ValueError, match="steps=1 are not a series"):
        latent.TransitionPrior(2, steps=1)
    with pytest.raises(ValueError, match="width=0; give a whole number from 1"):
        latent.Smoother(width=0)


def test_an_enlargement_is_jaxs_transposed_convolution() -> None:
    """The four kernels are parts of one of twice the size, which goes over the image with zeros between its pixels."""
    network = DeconvNet((6, 4), (3,), widths=(), activation="tanh")
    z = jnp.asarray(RANDOM.normal(size=(2, 5)))
    params, state = network.init(jax.random.key(0), z, outputs=6 * 4 * 2)
    found = network.apply(params, state, z, None, False)[0].reshape(2, 6, 4, 2)
    small = jnp.tanh(z @ params["layers"][0]["kernel"] + params["layers"][0]["bias"][None]).reshape(2, 3, 2, 3)
    parts = params["convolutions"][0]["kernel"].reshape(3, 3, 3, 2, 2, 2)
    whole = jnp.zeros((6, 6, 3, 2))
    for a in range(2):
        for b in range(2):
            # Pixel 2i + a sees the image at i + u - 1, which stands at 2i + 2u of the dilated one, padded by two.
            whole = whole.at[1 - a :: 2, 1 - b :: 2].set(parts[:, :, :, a, b])
    names = ("NHWC", "HWIO", "NHWC")
    expected = jax.lax.conv_general_dilated(
        small, whole, (1, 1), [(3, 3), (3, 3)], lhs_dilation=(2, 2), dimension_numbers=names
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert not holds_convolutions(network, z, 48)
    odd = DeconvNet((7, 5), (4, 2), widths=(8,))
    weights, _ = odd.init(jax.random.key(0), z, outputs=35)
    assert odd.apply(weights, {}, z, None, False)[0].shape == (2, 35)
    with pytest.raises(ValueError, match="36 outputs cannot be dealt to 7 by 5 pixels"):
        odd.init(jax.random.key(0), z, outputs=36)
    with pytest.raises(ValueError, match=r"channels=\(\) has no layer"):
        DeconvNet((4, 4), ())


@pytest.mark.stress
def test_a_convolutional_autoencoder_trains() -> None:
    graph = models.VAE(4, 64, DeconvNet((8, 8), (8, 4), widths=(16,)), ConvNet((4,), (16,)))
    images = BITS.reshape(-1, 8, 8)
    fit = lamu.fit(graph, {"y": images[:200]}, lamu.algorithms.adam(1e-2), steps=100, batch_size=64)
    found = lamu.scores.mean_log_prob(fit.posterior, {"y": images[200:300]}, samples=4).value
    assert found > -64 * np.log(2) + 10


@pytest.mark.stress
def test_analogies_sweep_the_class_at_a_fixed_style() -> None:
    """At its own class a row is its reconstruction; the decoder sees the style and each class in turn."""
    graph = models.SemiSupervised(3, 2, 64, (8,))
    y, c = BITS[:4], np.array([0.0, 1.0, 2.0, 1.0])
    params, _ = graph.init(jax.random.key(0), graph.read({"y": y, "c": c}).full())
    posterior = lamu.Posterior(graph, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))
    found = np.asarray(latent.analogies(posterior, {"y": y, "c": c}, jax.random.key(0))["y"])
    z = np.asarray(posterior.local({"y": y, "c": c})["z"].mean)
    for k in range(3):
        both = np.concatenate([np.tile(np.eye(3)[k], (4, 1)), z], axis=1)
        logits, _ = MLP((8,)).apply(params["network"]["decode"], {}, jnp.asarray(both), None, False)
        np.testing.assert_allclose(found[:, k], jax.nn.sigmoid(logits), rtol=1e-5)
    stack = models.StackedSemiSupervised(3, 2, 2, 64, (8,))
    params, _ = stack.init(jax.random.key(0), stack.read({"y": y, "c": c}).full())
    posterior = lamu.Posterior(stack, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))
    assert latent.analogies(posterior, {"y": y, "c": c}, jax.random.key(0))["y"].shape == (4, 3, 64)
    with pytest.raises(ValueError, match="no category 'd'; give one of c"):
        latent.analogies(posterior, {"y": y}, jax.random.key(0), category="d")


def test_a_deviation_is_finite_and_within_reach_of_a_gradient_at_any_output() -> None:
    """Outputs of ±15 and less are log s as they are; at ±1,000 the entropy has a value and a slope of its own sign."""
    ordinary = jnp.array([-15.0, -0.3, 0.0, 2.5, 15.0], jnp.float32)
    entropy = lambda o: latent.MeanField().belief({}, jnp.concatenate([jnp.zeros_like(o), o])).entropy()
    assert latent.MeanField().belief({}, jnp.concatenate([ordinary, ordinary])).precision.values.tolist() == (
        jnp.exp(-2 * ordinary).tolist()
    )
    np.testing.assert_allclose(jax.grad(entropy)(ordinary), np.ones(5), rtol=1e-6)
    for output in (-1000.0, -45.0, 45.0, 1000.0):
        far = jnp.full(2, output, jnp.float32)
        value, slope = jax.value_and_grad(entropy)(far)
        assert np.isfinite(value)
        assert np.all(np.isfinite(slope))
        assert np.all(slope > 0)
        assert abs(value) > abs(entropy(jnp.full(2, np.sign(output) * 15.0, jnp.float32)))


def test_an_encoder_survives_the_first_steps_of_a_large_rate() -> None:
    """They move log s of 64 pixels from -2 to -54, where exp(-2 log s) is infinite in float32."""
    y = (np.asarray(lamu.data.load("digits")[0]).reshape(-1, 64) > 0.5).astype(np.float32)
    graph = models.VAE(2, 64, MLP((300,)), MLP((300,)))
    fit = lamu.fit(graph, {"y": y[:128]}, lamu.algorithms.adam(0.1), steps=30, batch_size=128)
    assert np.isfinite(fit.posterior.log_prob({"y": y[:5]}, samples=5)).all()
