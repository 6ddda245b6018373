"""Blocks: an algorithm for each part of the parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import graphs
from lamu.algorithms import adam, blocks, ivon, sgd, svi, vmp
from lamu.families import Gamma, Parts
from tests.test_graph_networks import vae

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(48, 3))
Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * RANDOM.normal(size=48)
MODEL = lamu.Model(lamu.networks.MLP((6,)), lamu.likelihoods.Gaussian())


def leaves(tree):
    return jax.tree.leaves(tree)


def fitted(algorithm, **options):
    return lamu.fit(MODEL, (X, Y), algorithm, **({"steps": 30, "batch_size": 16} | options))


@pytest.mark.stress
def test_one_block_is_the_algorithm_itself() -> None:
    alone, within = fitted(ivon(learning_rate=0.1)), fitted(blocks({"*": ivon(learning_rate=0.1)}))
    for one, other in zip(leaves(alone.posterior.belief), leaves(within.posterior.belief), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(alone.history["residual"], within.history["residual"])


def test_two_blocks_of_gradient_descent_are_one() -> None:
    one = fitted(sgd(0.05)).posterior.mean
    two = fitted(blocks({"layers/0/*": sgd(0.05), "*": sgd(0.05)})).posterior.mean
    for first, second in zip(leaves(one), leaves(two), strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-9)


@pytest.mark.stress
def test_each_block_keeps_what_its_algorithm_knows(tmp_path) -> None:
    algorithm = blocks({"layers/1/*": ivon(learning_rate=0.1), "*": adam(1e-2)})
    fit = fitted(algorithm, steps=100, validation=0.25)
    belief = fit.posterior.belief.factors["network"]
    assert isinstance(belief, Parts)
    draws = fit.posterior.sample(jax.random.key(0), 50)["network"]["layers"]
    assert float(jnp.std(draws[1]["kernel"], axis=0).min()) > 0
    assert float(jnp.ptp(draws[0]["kernel"], axis=0).max()) == 0
    assert np.mean(fit.history["loss"][-10:]) < np.mean(fit.history["loss"][:10])
    folder = fit.posterior.save(tmp_path / "parts")
    np.testing.assert_array_equal(lamu.load(folder).predict(X[:4]).mean, fit.posterior.predict(X[:4]).mean)


@pytest.mark.stress
def test_a_run_of_blocks_resumes(tmp_path) -> None:
    algorithm = blocks({"layers/1/*": ivon(learning_rate=0.1), "*": adam(1e-2)})
    whole = fitted(algorithm, steps=20).posterior
    fitted(algorithm, steps=10, checkpoint=tmp_path / "run")
    again = fitted(algorithm, steps=20, checkpoint=tmp_path / "run", resume=True).posterior
    for one, other in zip(leaves(whole.mean), leaves(again.mean), strict=True):
        np.testing.assert_array_equal(one, other)


def sparse(m) -> None:
    tau = m.sample("tau", Gamma(0.5, 0.5 * jnp.ones(5)))
    w = m.sample("w", graphs.Normal(jnp.zeros(5), precision=tau))
    with m.rows():
        m.sample("y", lamu.likelihoods.Gaussian(scale=0.5)(m.data("x") @ w))


@pytest.mark.stress
def test_exact_scales_beside_gradients_are_where_messages_alone_end() -> None:
    """The mean field of weights and scales: von's diagonal Gaussian beside Gamma beliefs, against its fixed point."""
    x = RANDOM.normal(size=(60, 5))
    y = x @ np.array([1.5, -1.0, 0.0, 0.0, 0.0]) + 0.5 * RANDOM.normal(size=60)
    pairs = lamu.expectations.MonteCarlo(2, lamu.expectations.Antithetic())  # exact for what is quadratic
    algorithm = blocks({"w": lamu.algorithms.von(0.5, expectation=pairs), "tau": svi(learning_rate=1.0)})
    posterior = lamu.fit(lamu.Graph(sparse), {"x": x, "y": y}, algorithm, steps=200, batch_size=60).posterior
    found = posterior.belief.factors["network"]
    weights, scales = found.parts[0], found.parts[1].factors["tau"]
    # By hand: S = diag(XᵀX)/σ² + E τ, m = (XᵀX/σ² + diag E τ)⁻¹ Xᵀy/σ², E τ = (a + ½) / (b + (m² + 1/S)/2).
    gram, mean_tau = x.T @ x / 0.25, np.ones(5)
    for _ in range(500):
        m = np.linalg.solve(gram + np.diag(mean_tau), x.T @ y / 0.25)
        variance = 1 / (np.diag(gram) + mean_tau)
        mean_tau = (0.5 + 0.5) / (0.5 + (m**2 + variance) / 2)
    np.testing.assert_allclose(scales.mean, mean_tau, rtol=1e-4)
    np.testing.assert_allclose(weights.mean["w"], m, rtol=1e-4)
    np.testing.assert_allclose(weights.precision.diagonal(weights.mean)["w"], 1 / variance, rtol=1e-4)
    assert posterior.log_prob({"x": x[:3], "y": y[:3]}).shape == (3,)


def test_what_blocks_refuse() -> None:
    for algorithms, words in (
        ({}, "has no algorithm"),
        ({"*": vmp()}, "not a step on a minibatch"),
        ({"*": lamu.algorithms.deep_ensemble()}, "not a step on a minibatch"),
    ):
        with pytest.raises(ValueError, match=words):
            blocks(algorithms)
    with pytest.raises(TypeError, match="'adam' is not an algorithm"):
        blocks({"*": "adam"})
    for table, words in (
        ({"layers/0/*": adam()}, "no pattern matches the leaf 'layers/1/bias'"),
        ({"*": adam(), "layers/0/*": adam()}, "every leaf of the block 'layers/0/\\*' belongs to a block before it"),
        ({"layres/*": adam(), "*": adam()}, "the pattern 'layres/\\*' matches no leaf"),
    ):
        with pytest.raises(ValueError, match=words):
            fitted(blocks(table), steps=1)


@pytest.mark.stress
def test_a_decoder_by_one_algorithm_and_its_encoder_by_another() -> None:
    y = (RANDOM.normal(size=(40, 5)) > 0).astype(float)
    graph = vae()
    algorithm = blocks({"decode/*": ivon(learning_rate=0.05), "local/*": adam(1e-2)})
    fit = lamu.fit(graph, {"y": y}, algorithm, epochs=20, batch_size=20, validation=0.25)
    assert np.isfinite(fit.history["validation_nll"]).all()
    found = fit.posterior.belief.factors["network"]
    assert found.parts[1].kind == "degenerate"
    assert fit.posterior.local({"y": y[:3]})["z"].mean.shape == (3, 2)


def noisy(m) -> None:
    noise = m.sample("noise", Gamma(1.0, 1.0))
    f = m.network("f", lamu.networks.Linear(), outputs=1)
    with m.rows():
        m.sample("y", graphs.Normal(f(m.data("x")), precision=noise))


def test_conjugate_noise_beside_a_network() -> None:
    x = RANDOM.normal(size=(60, 2))
    y = (x @ np.array([1.0, -1.0]) + 0.5 * RANDOM.normal(size=60))[:, None]
    pairs = lamu.expectations.MonteCarlo(2, lamu.expectations.Antithetic())
    algorithm = blocks({"f/*": lamu.algorithms.von(0.3, expectation=pairs), "noise": svi(learning_rate=0.1)})
    posterior = lamu.fit(lamu.Graph(noisy), {"x": x, "y": y}, algorithm, steps=300, batch_size=60).posterior
    precision = posterior.belief.factors["network"].parts[1].factors["noise"]
    residual = (
        y[:, 0] - np.column_stack([x, np.ones(60)]) @ np.linalg.lstsq(np.column_stack([x, np.ones(60)]), y[:, 0])[0]
    )
    np.testing.assert_allclose(precision.mean, 61 / 2 / (1 + np.sum(residual**2) / 2), rtol=0.1)
    assert posterior.convergence is None
