"""Ready models with latents: beside closed forms, with labels everywhere, corrupted, and with linear decoders."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.special import expit, logsumexp
from scipy.stats import multivariate_normal
from sklearn.decomposition import FactorAnalysis

import lamu
from lamu import latent
from lamu.latent import models
from lamu.networks import MLP, Linear
from lamu.predictives import Sampled
from lamu.record import record

RANDOM = np.random.default_rng(0)
DIGITS, LABELS = (np.asarray(part) for part in lamu.data.load("digits"))
BITS = (DIGITS.reshape(len(DIGITS), -1) > 0.5).astype(np.float32)


def at(graph, params) -> lamu.Posterior:
    return lamu.Posterior(graph, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))


row_values = jax.jit(lambda graph, params, state, batch, key: graph.log_likelihood(params, state, batch, key)[0])


def values(graph, params, state, batch, key):
    return np.asarray(row_values(graph, params, state, batch, key))


# Denoising autoencoders.


def denoising(corruption) -> tuple:
    noise = lamu.likelihoods.Gaussian(scale=0.7)
    graph = models.DenoisingAutoEncoder(2, 3, Linear(bias=False), Linear(bias=False), noise, corruption)
    y = RANDOM.normal(size=(1, 3))
    batch = graph.read({"y": y}).full()
    params, state = graph.init(jax.random.key(0), batch)
    encode = np.asarray(params["network"]["local"]["z"]["layers"][0]["kernel"])
    decode = np.asarray(params["network"]["decode"]["layers"][0]["kernel"])

    def joint(seen):
        z = seen @ encode
        quadratic = np.sum((y - z @ decode) ** 2, -1) / 0.7**2 + np.sum(z**2, -1)
        return -0.5 * quadratic - 3 * np.log(0.7) - 2.5 * np.log(2 * np.pi)

    run = jax.jit(jax.vmap(lambda key: graph.log_likelihood(params, state, batch, key, True)[0][0]))  # in training
    return graph, params, state, batch, y, joint, np.asarray(run(jax.random.split(jax.random.key(1), 3000)))


def test_rows_are_corrupted_in_training_alone() -> None:
    """Masked entries: the mean over the eight masks, within 4 standard errors; evaluation sees the row as it is."""
    graph, params, state, batch, y, joint, found = denoising(latent.Masking(0.3))
    masks = np.array([[(n >> j) & 1 for j in range(3)] for n in range(8)])
    p = np.prod(np.where(masks == 1, 0.7, 0.3), axis=1)
    expected = p @ joint(masks * y)
    assert abs(found.mean() - expected) < 4 * found.std() / np.sqrt(found.size)
    clean = joint(y)
    assert abs(clean - expected) > 20 * found.std() / np.sqrt(found.size)
    np.testing.assert_allclose(values(graph, params, state, batch, jax.random.key(1)), clean, rtol=1e-5)
    plain = models.AutoEncoder(2, 3, Linear(bias=False), Linear(bias=False), lamu.likelihoods.Gaussian(scale=0.7))
    codes = [at(g, params).local({"y": y})["z"].mean for g in (graph, plain)]
    np.testing.assert_allclose(codes[0], codes[1], rtol=1e-6)


@record
class Hidden(latent.Corruption):
    """A corruption of one's own: nothing is left."""

    def apply(self, key, value):
        return jnp.zeros_like(value)


def test_a_corruption_of_ones_own_is_what_the_encoder_sees() -> None:
    *_, joint, found = denoising(Hidden())
    np.testing.assert_allclose(found, joint(np.zeros((1, 3)))[0], rtol=1e-5)


def test_gaussian_noise_is_a_penalty_of_the_weights() -> None:
    """Bishop (1995): the mean over the noise adds s² times squares of the encoder and of the whole map."""
    _, params, _, _, y, joint, found = denoising(latent.GaussianNoise(0.5))
    encode = np.asarray(params["network"]["local"]["z"]["layers"][0]["kernel"])
    whole = encode @ np.asarray(params["network"]["decode"]["layers"][0]["kernel"])
    expected = joint(y)[0] - 0.5 * 0.5**2 * (np.sum(whole**2) / 0.7**2 + np.sum(encode**2))
    assert abs(found.mean() - expected) < 4 * found.std() / np.sqrt(found.size)


def test_a_denoising_autoencoder_trains_and_has_no_density() -> None:
    graph = models.DenoisingAutoEncoder(8, 64, MLP((32,)), MLP((32,)))
    fit = lamu.fit(graph, {"y": BITS[:200]}, lamu.algorithms.adam(1e-2), steps=60, batch_size=64)
    assert fit.posterior.network_state["step"] == 60
    seen = latent.reconstruct(fit.posterior, {"y": BITS[:50]}, jax.random.key(0))["y"]
    assert np.mean((np.asarray(seen) > 0.5) == BITS[:50]) > 0.8
    with pytest.raises(TypeError, match="no density of a row"):
        fit.posterior.log_prob({"y": BITS[:2]})
    with pytest.raises(TypeError, match=r"the corruption is 0\.3; give for instance"):
        latent.Denoising(Linear(), 0.3)
    with pytest.raises(ValueError, match=r"share=1\.0 is not a share of entries to hide"):
        latent.Masking(1.0)
    with pytest.raises(ValueError, match=r"scale=0\.0 must be positive; for no corruption"):
        latent.GaussianNoise(0.0)


# Labels.


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(models.SemiSupervised(2, 3, 64, (8,)), id="M2"),
        pytest.param(models.StackedSemiSupervised(2, 3, 4, 64, (8,)), id="M1+M2", marks=pytest.mark.stress),
    ],
)
def test_rows_that_all_have_labels_count_as_among_others(graph) -> None:
    """A labelled row has one value, whether the rows beside it have labels or not, and teaches the classifier."""
    y, c = BITS[:6], np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0])
    whole, partly = graph.read({"y": y, "c": c}).full(), graph.read({"y": y, "c": [*c[:5], np.nan]}).full()
    params, state = graph.init(jax.random.key(0), whole)
    shapes = [jax.tree.map(jnp.shape, graph.init(jax.random.key(0), batch)[0]) for batch in (whole, partly)]
    assert shapes[0] == shapes[1]
    found = [values(graph, params, state, batch, jax.random.key(1)) for batch in (whole, partly)]
    np.testing.assert_allclose(found[0][:5], found[1][:5], rtol=1e-6)
    gradient = jax.jit(jax.grad(lambda p: jnp.sum(graph.log_likelihood(p, state, whole, jax.random.key(1))[0])))(params)
    assert any(np.any(np.asarray(leaf) != 0) for leaf in jax.tree.leaves(gradient["network"]["local"]["c"]))
    beliefs = at(graph, params).local({"y": y, "c": c})["c"].mean
    np.testing.assert_allclose(beliefs, np.eye(2)[c.astype(int)], atol=1e-6)


@pytest.mark.stress
def test_labels_everywhere_teach_the_classifier() -> None:
    rows = np.flatnonzero(LABELS < 2)[:300]
    y, c = BITS[rows], LABELS[rows].astype(float)
    fit = lamu.fit(
        models.SemiSupervised(2, 3, 64, (16,)), {"y": y[:200], "c": c[:200]}, lamu.algorithms.adam(1e-2), steps=60
    )
    found = np.asarray(fit.posterior.local({"y": y[200:]})["c"].mean)
    assert np.mean(found.argmax(-1) == c[200:]) > 0.95
    assert np.isfinite(fit.posterior.log_prob({"y": y[:3], "c": c[:3]}, samples=3)).all()
    holes = np.where(np.arange(64) < 8, np.nan, y[:3])
    assert latent.impute(fit.posterior, {"y": holes, "c": c[:3]}, jax.random.key(0), draws=2)["y"].shape == (2, 3, 64)


def test_rows_that_all_have_labels_cost_one_pass() -> None:
    """One value of the class is left in each row: less than a third of the work of a batch that misses a label."""
    graph, y = models.SemiSupervised(10, 3, 64, (32,)), BITS[:6]
    params, state = graph.init(jax.random.key(0), graph.read({"y": y, "c": LABELS[:6]}).full())

    def flops(c) -> float:
        batch = graph.read({"y": y, "c": c}).full()
        lowered = row_values.lower(graph, params, state, batch, jax.random.key(1))
        return lowered.cost_analysis()["flops"]

    assert 3 * flops(LABELS[:6].astype(float)) < flops([*LABELS[:5], np.nan])


@record
class SideBySide(MLP):
    """A perceptron that reads data and latents side by side, at every value of the latents anew."""

    def partially_applied(self, params, first):
        """Returns None."""


@pytest.mark.parametrize("make", [models.SemiSupervised, models.StackedSemiSupervised], ids=["M2", "M1+M2"])
def test_an_encoder_reads_a_row_once_for_all_classes(make) -> None:
    """Values and gradients of encoders that read it at each class, to rounding, in under four fifths of the work."""
    numbers = (5, 3, 64) if make is models.SemiSupervised else (5, 3, 4, 64)
    graph = make(*numbers, (16,), 0.1, labelled=0.5)
    anew = replace(graph, local={n: replace(part, network=SideBySide((16,))) for n, part in graph.local.items()})
    y, c = np.where(np.arange(64) % 9, BITS[:6], np.nan), [0.0, 1.0, np.nan, 3.0, np.nan, np.nan]
    batch = graph.read({"y": y, "c": c}).full()
    params, state = graph.init(jax.random.key(0), batch)

    def sides(graph):
        return jax.value_and_grad(lambda p: jnp.sum(graph.log_likelihood(p, state, batch, jax.random.key(1))[0]))

    once, each = (jax.jit(sides(part)) for part in (graph, anew))
    (value, gradient), (value_anew, gradient_anew) = once(params), each(params)
    np.testing.assert_allclose(value, value_anew, rtol=1e-6)
    for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(gradient_anew), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * np.abs(other).max())
    flops = [part.lower(params).cost_analysis()["flops"] for part in (once, each)]
    assert flops[0] < 0.8 * flops[1]


def test_oversampled_labels_leave_every_sum_as_it_was() -> None:
    """A quarter of the rows have a label then; the weighted sum of anything of the rows, here their squares, stays."""
    y, c = RANDOM.normal(size=(400, 3)), np.where(np.arange(400) % 50 == 7, LABELS[:400], np.nan)
    weight = RANDOM.uniform(1.0, 2.0, 400)
    for given, each in (({"y": y, "c": c}, np.ones(400)), ({"y": y, "c": c, "weight": weight}, weight)):
        rows = latent.oversample_labelled(given)
        assert abs(np.mean(~np.isnan(rows["c"])) - 0.25) < 0.01
        for there in (np.isnan, lambda c: ~np.isnan(c)):
            before, after = (each * there(c)) @ y**2, (rows["weight"] * there(rows["c"])) @ rows["y"] ** 2
            np.testing.assert_allclose(after, before, rtol=1e-6)
    assert latent.oversample_labelled({"y": y, "c": LABELS[:400]})["weight"].tolist() == [1.0] * 400
    with pytest.raises(ValueError, match=r"no row has a label in 'c'; give some"):
        latent.oversample_labelled({"y": y, "c": np.full(400, np.nan)})
    with pytest.raises(ValueError, match=r"share=1\.0 is not a share of a batch"):
        latent.oversample_labelled({"y": y, "c": c}, share=1.0)
    with pytest.raises(ValueError, match=r"no category 'label'; give one of 'y', 'c'"):
        latent.oversample_labelled({"y": y, "c": c}, "label")


def objective_of_m2(params, y, c, alpha: float, share: float, entropy: float = 1.0):
    """Kingma et al. (2014), equations 6 to 9, with linear networks, unit classes and the Gaussian integrals done."""
    network, K, variance = params["network"], 3, 8.0**2
    decode, classify, encode = (
        part["layers"][0] for part in (network["decode"], network["local"]["c"], network["local"]["z"]["network"])
    )
    total = 0.0
    for row, label in zip(y, c, strict=True):
        log_q = jax.nn.log_softmax(row @ classify["kernel"] + classify["bias"])
        bounds = []
        for one_hot in jnp.eye(K):
            mean, log_scale = jnp.split(jnp.concatenate([row, one_hot]) @ encode["kernel"] + encode["bias"], 2)
            spread = jnp.exp(2 * log_scale)
            f = jnp.concatenate([one_hot, mean]) @ decode["kernel"] + decode["bias"]
            square = jnp.sum((row - f) ** 2) + jnp.sum(spread @ decode["kernel"][K:] ** 2)
            log_likelihood = -square / (2 * variance) - len(row) / 2 * jnp.log(2 * jnp.pi * variance)
            bounds.append(log_likelihood - jnp.sum(spread + mean**2 - 1 - 2 * log_scale) / 2 - jnp.log(K))
        bounds = jnp.stack(bounds)
        if np.isnan(label):
            total += jnp.sum(jnp.exp(log_q) * (bounds - entropy * log_q))
        else:
            total += bounds[int(label)] + alpha / share * log_q[int(label)]
    return total


@pytest.mark.stress
def test_the_gradient_of_m2_is_the_papers() -> None:
    """Of 5,000 keys on average, within 5 standard errors an entry; a dropped entropy and another α are refused."""
    alpha, share = 0.5, 0.25
    graph = models.SemiSupervised(3, 2, 4, (), alpha, lamu.likelihoods.Gaussian(scale=8.0), share)
    y, c = np.random.default_rng(3).normal(size=(4, 4)), np.array([1.0, np.nan, np.nan, 2.0])
    batch = graph.read({"y": y, "c": c}).full()
    params, state = graph.init(jax.random.key(0), batch)
    keys = iter(jax.random.split(jax.random.key(1), len(jax.tree.leaves(params))))
    params = jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(next(keys), leaf.shape, leaf.dtype), params)
    sum_of_rows = lambda params, key: jnp.sum(graph.log_likelihood(params, state, batch, key)[0])
    draws = jax.jit(jax.vmap(jax.grad(sum_of_rows), (None, 0)))(params, jax.random.split(jax.random.key(2), 5000))
    draws = jax.vmap(lambda leaf: ravel_pytree(leaf)[0])(draws)
    error = np.std(draws, axis=0) / np.sqrt(len(draws)) + 1e-5 * (1 + np.abs(draws).max(0))

    def deviation(**settings) -> float:
        expected = jax.grad(objective_of_m2)(params, y, c, **{"alpha": alpha, "share": share, **settings})
        return float(np.max(np.abs(np.mean(draws, axis=0) - ravel_pytree(expected)[0]) / error))

    assert deviation() < 5
    assert min(deviation(entropy=0.0), deviation(share=1.0), deviation(alpha=1.0)) > 5


def test_a_stack_is_the_paper() -> None:
    """Importance weights of linear Gaussian parts average to the density, within 4 standard errors a row."""
    graph = models.StackedSemiSupervised(2, 1, 2, 3, (), 0.1, lamu.likelihoods.Gaussian(scale=0.8))
    y = RANDOM.normal(size=(3, 3))
    params, _ = graph.init(jax.random.key(0), graph.read({"y": y}).full())
    up, decode = (params["network"][name]["layers"][0] for name in ("up", "decode"))
    up["kernel"] = up["kernel"].at[:, 2:].set(0.0)  # the precisions of the code are one
    # Beliefs that no row moves are as wide as the priors: weights without heavy tails.
    params["network"]["local"] = jax.tree.map(jnp.zeros_like, params["network"]["local"])
    W, b = np.asarray(up["kernel"])[:, :2], np.asarray(up["bias"])[:2]
    V, d = np.asarray(decode["kernel"]), np.asarray(decode["bias"])
    parts = []
    for c in range(2):
        covariance = V.T @ (np.outer(W[2], W[2]) + np.eye(2)) @ V + 0.8**2 * np.eye(3)
        parts.append(np.log(0.5) + multivariate_normal((W[c] + b) @ V + d, covariance).logpdf(y))
    batch = graph.read({"y": y}).full()
    weights = np.exp(
        np.asarray(
            lamu.graphs.queries.row_log_weights(graph, lamu.families.Point(params), batch, 4000, jax.random.key(1))
        )
    )
    error = weights.std(0) / np.sqrt(len(weights))
    assert np.all(np.abs(weights.mean(0) - np.exp(logsumexp(parts, axis=0))) < 4 * error)


# Linear decoders.


@pytest.mark.parametrize("isotropic", [pytest.param(True, marks=pytest.mark.stress), False])
def test_the_bound_of_a_linear_encoder_is_the_log_density_at_the_optimum(isotropic) -> None:
    """At principal axes, where the posterior is independent by coordinates, in every row; off them it is below."""
    D, K = 5, 2
    graph = models.FactorAnalysis(K, D, isotropic)
    y = RANDOM.normal(size=(20, D))
    batch = graph.read({"y": y}).full()
    noise = np.full(D, 0.6) if isotropic else np.linspace(0.3, 0.9, D)
    W = RANDOM.normal(size=(D, K))
    axes = np.linalg.eigh(W.T @ (W / noise[:, None]))[1]
    expected = multivariate_normal(np.ones(D), W @ W.T + np.diag(noise)).logpdf(y)
    for turn, exact in ((axes, True), (axes @ np.array([[0.8, -0.6], [0.6, 0.8]]), False)):
        loadings = W @ turn
        precision = np.eye(K) + loadings.T @ (loadings / noise[:, None])
        means = (loadings / noise[:, None]) @ np.linalg.inv(precision)
        kernel = np.concatenate([means, np.zeros((D, K))], axis=1)
        bias = np.concatenate([-np.ones(D) @ means, -0.5 * np.log(np.diag(precision))])
        params, state = graph.init(jax.random.key(0), batch)
        at_noise = {"noise": jnp.asarray(1 / (noise[0] if isotropic else noise))}
        network = {
            **graph.constraints.unconstrain(at_noise),
            "decode": {"layers": {0: {"kernel": jnp.asarray(loadings.T), "bias": jnp.ones(D)}}},
            "local": {
                "z": {
                    "network": {"layers": {0: {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(bias)}}},
                    "family": {},
                }
            },
        }
        params = {**params, "network": network}
        weighed = values(graph.importance_weighted(), params, state, batch, jax.random.key(1))
        bounds = [values(graph, params, state, batch, jax.random.key(k)).mean() for k in range(10)]
        if exact:
            np.testing.assert_allclose(weighed, expected, rtol=1e-6)
        assert (np.mean(bounds) < expected.mean() - 0.01) is not exact


@pytest.mark.stress
def test_trained_factor_analysis_has_the_largest_density() -> None:
    """That of scikit-learn's maximum likelihood, within 0.01 nats a row."""
    W = RANDOM.normal(size=(6, 2))
    y = RANDOM.normal(size=(400, 2)) @ W.T + np.linspace(0.3, 0.9, 6) * RANDOM.normal(size=(400, 6)) + 2.0
    exact = FactorAnalysis(2, tol=1e-6, max_iter=5000).fit(y).score(y)
    rate = lamu.rate.Annealed(0.03)
    fit = lamu.fit(models.FactorAnalysis(2, 6), {"y": y}, lamu.algorithms.adam(rate), steps=4000, batch_size=400)
    network = fit.posterior.mean["network"]
    layer = network["decode"]["layers"][0]
    covariance = np.asarray(layer["kernel"]).T @ np.asarray(layer["kernel"]) + np.diag(1 / np.asarray(network["noise"]))
    density = multivariate_normal(np.asarray(layer["bias"]), covariance).logpdf(y).mean()
    assert abs(density - exact) < 0.01


def test_exponential_components_are_below_their_integral() -> None:
    """One factor: the density by quadrature, which importance weights average to within 4 standard errors."""
    graph = models.ExponentialPCA(1, 4)
    y = BITS[:5, 18:22]
    params, _ = graph.init(jax.random.key(0), graph.read({"y": y}).full())
    layer = params["network"]["decode"]["layers"][0]
    nodes, mass = np.polynomial.hermite_e.hermegauss(60)
    chance = expit(nodes[:, None] * np.asarray(layer["kernel"]) + np.asarray(layer["bias"]))
    parts = np.log(np.where(y[:, None] == 1, chance, 1 - chance)).sum(-1) + np.log(mass / mass.sum())
    weights = np.exp(
        np.asarray(
            lamu.graphs.queries.row_log_weights(
                graph, lamu.families.Point(params), graph.read({"y": y}).full(), 3000, jax.random.key(1)
            )
        )
    )
    error = weights.std(0) / np.sqrt(len(weights))
    assert np.all(np.abs(weights.mean(0) - np.exp(logsumexp(parts, axis=1))) < 4 * error)
