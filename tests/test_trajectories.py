"""Chains over what is missing in rows move where an encoder's proposals are never accepted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import graphs, latent
from lamu.graphs.elimination import trajectory
from lamu.networks import Linear
from lamu.predictives import Sampled

D, K, NOISE = 40, 2, 0.1
RANDOM = np.random.default_rng(0)
LOADINGS = RANDOM.normal(size=(D, K))


def test_trajectories_leave_a_density_as_it_is() -> None:
    """4,000 chains of 20 trajectories from a skewed density's own draws: its moments within 5 standard errors."""
    random = np.random.default_rng(1)
    first = jnp.asarray(random.gumbel(size=4000))
    log_density = lambda z: -z - jnp.exp(-z)

    def chain(z, key):
        log_step = jnp.log(jnp.asarray(0.9, z.dtype))
        step = lambda z, number: trajectory(log_density, z, log_step, jax.random.fold_in(key, number))
        z, chances = jax.lax.scan(step, z, jnp.arange(20))
        return z, jnp.mean(chances)

    z, chances = jax.jit(jax.vmap(chain))(first, jax.random.split(jax.random.key(0), 4000))
    assert 0.3 < float(jnp.mean(chances)) < 0.95  # so that the rule matters
    assert np.mean(np.asarray(z) == np.asarray(first)) < 0.01
    mean, variance = np.euler_gamma, np.pi**2 / 6
    np.testing.assert_allclose(np.mean(z), mean, atol=5 * np.sqrt(variance / 4000))
    np.testing.assert_allclose(np.var(z), variance, atol=5 * variance * np.sqrt(4.4 / 4000))  # its kurtosis is 5.4


@pytest.mark.stress
def test_a_chain_moves_whatever_the_encoder_says() -> None:
    """The encoder of a linear-Gaussian model says N(0, 1) of every row; half of its 40 entries are missing.

    Proposals are accepted about once in a hundred thousand. The mean of 200 draws of each of 20 rows is that of the
    exact conditional to a tenth of what the entries vary by.
    """

    def program(m):
        decode = m.network("decode", Linear(bias=False), outputs=D)
        with m.rows():
            z = m.sample("z", graphs.Normal(jnp.zeros(K), 1.0))
            m.sample("y", lamu.likelihoods.Gaussian(scale=NOISE)(decode(z)))

    graph = lamu.Graph(program, local={"z": latent.Amortised(Linear())})
    y = RANDOM.normal(size=(20, K)) @ LOADINGS.T + NOISE * RANDOM.normal(size=(20, D))
    params = graph.init(jax.random.key(0), graph.read({"y": y}).full())[0]
    still = jax.tree.map(jnp.zeros_like, params["network"]["local"])
    decode = {"layers": {0: {"kernel": jnp.asarray(LOADINGS.T)}}}
    params = {**params, "network": {"decode": decode, "local": still}}
    posterior = lamu.Posterior(graph, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))
    seen = np.arange(D) < D // 2
    draws = latent.impute(posterior, {"y": np.where(seen, y, np.nan)}, jax.random.key(0), draws=200, warmup=100)["y"]
    W, rest = LOADINGS[seen], LOADINGS[~seen]
    exact = y[:, seen] @ W @ np.linalg.inv(W.T @ W + NOISE**2 * np.eye(K)) @ rest.T
    error = np.sqrt(np.mean((np.mean(np.asarray(draws)[:, :, ~seen], axis=0) - exact) ** 2))
    assert error < 0.1 * np.sqrt(np.mean(exact**2)), error
    np.testing.assert_allclose(np.std(np.asarray(draws)[:, :, ~seen], axis=0).mean(), NOISE, rtol=0.2)
