"""Binary latents: models beside sums over all states, baselines, and what cannot be."""

from __future__ import annotations

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import lamu
from lamu import graphs, latent
from lamu.expectations import MovingAverageBaseline, Relaxed, ScoreFunction
from lamu.graphs.expressions import Environment
from lamu.graphs.queries import row_log_weights
from lamu.latent import AmortisedBernoulli, AutoregressiveBernoulli, Baseline, models
from lamu.networks import MLP, Linear
from lamu.predictives import Sampled

RANDOM = np.random.default_rng(0)
Y = (RANDOM.random((3, 4)) < 0.5).astype(float)
DIGITS = np.asarray(lamu.data.load("digits")[0]).reshape(-1, 64)
BITS = (DIGITS > 0.5).astype(np.float32)


def states(count: int) -> np.ndarray:
    return np.array(list(itertools.product((0.0, 1.0), repeat=count)))


def coins(b, logits) -> np.ndarray:
    """Returns the log probabilities of zeros and ones, a sum over the last axis."""
    return np.sum(b * logits - np.logaddexp(0.0, logits), axis=-1)


def at_random(graph, y=Y):
    """A posterior at random parameters, half of unit size."""
    params, _ = graph.init(jax.random.key(0), graph.read({"y": y}).full())
    shaken = jax.tree.map(
        lambda leaf: leaf + 0.5 * jax.random.normal(jax.random.key(leaf.size), leaf.shape), params["network"]
    )
    point = lamu.families.Point({**params, "network": shaken})
    return lamu.Posterior(graph, point, {}, Sampled(), jax.random.key(0)), shaken


def within(posterior, expected) -> None:
    """The mean importance weight within 4 standard errors of each row's density: a false alarm in 5,000 keys."""
    batch = posterior.model.read({"y": Y}).full()
    weights = np.exp(np.asarray(row_log_weights(posterior.model, posterior.belief, batch, 3000, jax.random.key(1))))
    error = weights.std(0) / np.sqrt(len(weights))
    assert np.all(np.abs(weights.mean(0) - np.exp(expected)) < 4 * error)


def linear(x, layer):
    return x @ np.asarray(layer["kernel"]) + np.asarray(layer.get("bias", 0.0))


def test_a_sigmoid_belief_network_is_the_sum_over_its_states() -> None:
    posterior, at = at_random(models.SigmoidBelief((3, 2), 4))
    top, up, decode = (at[name]["layers"][0] for name in ("top", "up1", "decode"))
    expected = []
    for y in Y:
        parts = [
            coins(b2, linear(np.ones(1), top)) + coins(b1, linear(b2, up)) + coins(y, linear(b1, decode))
            for b1 in states(3)
            for b2 in states(2)
        ]
        expected.append(np.logaddexp.reduce(parts))
    within(posterior, np.array(expected))


def autoregressive(b, weights, logits=0.0):
    return coins(b, logits + np.asarray(weights["bias"]) + b @ np.tril(weights["kernel"], -1).T)


def test_a_deep_autoregressive_network_is_the_sum_over_its_states() -> None:
    posterior, at = at_random(models.DARN((3, 2), 4))
    expected = []
    for y in Y:
        parts = [
            autoregressive(b2, at["b2.prior"])
            + autoregressive(b1, at["b1.prior"], linear(b2, at["up1"]["layers"][0]))
            + autoregressive(y, at["y.prior"], linear(b1, at["decode"]["layers"][0]))
            for b1 in states(3)
            for b2 in states(2)
        ]
        expected.append(np.logaddexp.reduce(parts))
    within(posterior, np.array(expected))


def test_an_autoregressive_density_sums_to_one_and_is_that_of_its_draws() -> None:
    """Frequencies of 8 states in 4,000 draws, within 5 standard errors each."""
    factor = AutoregressiveBernoulli(3)
    weights = {"kernel": jnp.asarray(RANDOM.normal(size=(3, 3))), "bias": jnp.asarray(RANDOM.normal(size=3))}
    p = np.exp([float(factor.log_prob(weights, jnp.asarray(b), Environment({}))) for b in states(3)])
    assert abs(p.sum() - 1) < 1e-6
    keys = jax.random.split(jax.random.key(0), 4000)
    draws = np.asarray(jax.jit(jax.vmap(lambda key: factor.draw(key, weights, Environment({}))))(keys))
    frequencies = np.bincount((draws @ np.array([4, 2, 1])).astype(int), minlength=8) / 4000
    assert np.all(np.abs(frequencies - p) < 5 * np.sqrt(p * (1 - p) / 4000))


def test_bits_that_meet_nothing_leave_in_closed_form() -> None:
    def program(m) -> None:
        with m.rows():
            m.sample("b", graphs.Bernoulli(jnp.array([0.3, 0.6])))
            m.sample("y", graphs.Normal(0.0, 1.0))

    graph = lamu.Graph(program)
    nothing = lamu.families.Point({"network": {}, "likelihood": {}})
    posterior = lamu.Posterior(graph, nothing, {}, Sampled(), jax.random.key(0))
    y = np.array([0.5, -1.0])
    np.testing.assert_allclose(posterior.predict({"y": y}).mean["b"], [[0.3, 0.6]] * 2, rtol=1e-6)
    np.testing.assert_allclose(posterior.log_prob({"y": y}), norm.logpdf(y), rtol=1e-6)
    rows = np.asarray(latent.generate(posterior, 2000, jax.random.key(0))["b"])
    np.testing.assert_allclose(rows.mean(0), [0.3, 0.6], atol=5 * np.sqrt(0.25 / 2000))


@pytest.mark.parametrize("network", [pytest.param(Linear(), id="NVIL"), pytest.param(None, id="moving average")])
def test_a_baseline_is_learned_by_regression(network) -> None:
    """Its mean gradient is the regression's, zero where it is the mean signal of a row, and there noise is lowest."""
    graph = models.SigmoidBelief((3,), 4, estimator=ScoreFunction(1, Baseline(network)))
    _, at = at_random(graph)
    batch = graph.read({"y": Y[:1]}).full()
    keys = jax.random.split(jax.random.key(2), 2000)

    def value(own, key):
        network = {**at, "local": {"b1": own}}
        return graph.log_likelihood({"network": network, "likelihood": {}}, {}, batch, key)[0][0]

    both = jax.jit(jax.vmap(jax.value_and_grad(value), in_axes=(None, 0)))
    own = at["local"]["b1"]
    of_row = 0.0 if network is None else linear(Y[0], own["baseline"]["network"]["layers"][0])[0]
    values, gradients = both(own, keys)
    expected = float(own["baseline"]["offset"] + of_row)
    np.testing.assert_allclose(gradients["baseline"]["offset"], values / 4 - expected, rtol=1e-4, atol=1e-5)
    best = {**own["baseline"], "offset": own["baseline"]["offset"] + jnp.mean(values) / 4 - expected}
    quiet = both({**own, "baseline": best}, keys)[1]["encoder"]
    noise = lambda tree: sum(float(jnp.sum(jnp.var(leaf, axis=0))) for leaf in jax.tree.leaves(tree))
    plain = both(jax.tree.map(jnp.zeros_like, {"baseline": own["baseline"]}) | {"encoder": own["encoder"]}, keys)[1]
    assert noise(quiet) < 0.5 * noise(plain["encoder"])


@pytest.mark.parametrize(
    "estimator",
    [
        pytest.param(ScoreFunction(1, Baseline(MLP((8,)))), id="NVIL"),
        pytest.param(ScoreFunction(3), id="plain", marks=pytest.mark.stress),
        pytest.param(Relaxed(0.5), id="Relaxed", marks=pytest.mark.stress),
    ],
)
def test_binary_codes_train_and_answer(estimator) -> None:
    graph = models.SigmoidBelief((8, 4), 64, estimator=estimator)
    fit = lamu.fit(graph, {"y": BITS[:200]}, lamu.algorithms.adam(3e-2), steps=100, batch_size=64)
    found = fit.posterior.local({"y": BITS[:3]})
    assert found["b1"].mean.shape == (3, 8)
    assert found["b2"].mean.shape == (3, 4)
    rows = latent.generate(fit.posterior, 4, jax.random.key(0))
    assert set(np.unique(rows["b1"])) <= {0.0, 1.0}
    assert lamu.scores.mean_log_prob(fit.posterior, {"y": BITS[200:300]}, samples=4).value > -64 * np.log(2) + 5


def test_what_cannot_be_a_binary_latent() -> None:
    with pytest.raises(TypeError, match=r"give ScoreFunction\(draws, control\) or Relaxed"):
        AmortisedBernoulli(Linear(), 3)
    with pytest.raises(TypeError, match=r"give latent\.Baseline\(\), a number that follows the average signal"):
        AmortisedBernoulli(Linear(), ScoreFunction(1, MovingAverageBaseline()))
    with pytest.raises(ValueError, match=r"the floor 0\.1"):
        AmortisedBernoulli(Linear(), Relaxed(0.5, floor=0.1))
    with pytest.raises(TypeError, match=r"take LeaveOneOut\(\)"):
        Baseline().weights(jnp.zeros(2), lambda: jnp.eye(2))
    with pytest.raises(ValueError, match=r"latents=\(\) has no layer"):
        models.SigmoidBelief((), 4)
    with pytest.raises(ValueError, match=r"3 entries have logits of the shape \(2,\)"):
        AutoregressiveBernoulli(3, jnp.zeros(2))
    with pytest.raises(ValueError, match="y is 2 in a row; give 0 and 1"):
        models.DARN((2,), 4).read({"y": 2.0 * np.ones((2, 4))})
    graph = models.VAE(2, 4)
    wrong = replace(graph, local={"z": AmortisedBernoulli(Linear())})
    with pytest.raises(TypeError, match=r"use Amortised\(network\) for numbers"):
        wrong.init(jax.random.key(0), wrong.read({"y": Y}).full())
