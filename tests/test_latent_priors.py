"""Priors of latents with weights of their own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import graphs, latent
from lamu.graphs.expressions import Environment
from lamu.latent import models
from lamu.networks import MLP, Linear

ENCODER = latent.Amortised(MLP((4,)))
Y = (np.random.default_rng(0).uniform(size=(20, 6)) > 0.5).astype(float)


def moved(weights, key):
    """Weights away from where they start, so that no term is zero by chance."""
    leaves, structure = jax.tree.flatten(weights)
    keys = jax.random.split(key, len(leaves))
    noisy = [leaf + 0.5 * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, noisy)


@lamu.record.record
class Shifted(graphs.LearnedPrior):
    """A prior of one's own: a Gaussian around a learned mean."""

    def first(self, key, dtype):
        return {"mean": jnp.zeros(self.latents, dtype)}

    def log_prob(self, weights, z, at):
        return jnp.sum(jax.scipy.stats.norm.logpdf(z - weights["mean"]))

    def draw(self, key, weights, at):
        return weights["mean"] + jax.random.normal(key, weights["mean"].shape, weights["mean"].dtype)


PRIORS = {
    "of one's own": Shifted(1),
    "mixture": latent.MixturePrior(1, parts=3),
    "vamp": latent.VampPrior(1, ENCODER, jnp.asarray(Y[:3]), name="z"),
    "flow": latent.FlowPrior(1, (latent.InverseAutoregressive((4,)), latent.Planar())),
}


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_a_density_is_normalised_and_is_that_of_its_draws(prior) -> None:
    """Mean and second moment of 4,000 draws within 4 standard errors: a false alarm in 8,000 sets of keys."""
    of_encoder, of_weights, of_draws = jax.random.split(jax.random.key(0), 3)
    network, _ = ENCODER.network.init(of_encoder, jnp.asarray(Y[:1]), 2)
    network = jax.tree.map(lambda leaf: 0.3 * leaf, network)  # scales that the grid resolves
    at = Environment({"local": {"z": {"network": network, "family": {}}}})
    weights = moved(prior.first(of_weights, float), jax.random.key(3))
    grid = np.linspace(-12, 12, 6001)
    density = np.exp(jax.jit(jax.vmap(lambda z: prior.log_prob(weights, z[None], at)))(jnp.asarray(grid)))
    assert abs(np.trapezoid(density, grid) - 1) < 1e-4
    draw = jax.jit(jax.vmap(lambda key: prior.draw(key, weights, at)))
    draws = np.asarray(draw(jax.random.split(of_draws, 4000)))[:, 0]
    for power in (1, 2):
        expected = np.trapezoid(grid**power * density, grid)
        assert abs(np.mean(draws**power) - expected) < 4 * np.std(draws**power) / np.sqrt(draws.size)


def weighed(graph, params, key):
    batch = graph.read({"y": Y}).full()
    return np.asarray(jax.jit(lambda p: graph.importance_weighted().log_likelihood(p, {}, batch, key)[0])(params))


def test_a_mixture_of_one_is_the_standard_prior() -> None:
    plain, mixed = (models.VAE(2, 6, MLP((4,)), MLP((4,)), prior=p) for p in (None, latent.MixturePrior(2, parts=1)))
    params, _ = plain.init(jax.random.key(0), plain.read({"y": Y}).full())
    standard = {"logit": jnp.zeros(1), "mean": jnp.zeros((1, 2)), "log_scale": jnp.zeros((1, 2))}
    beside = {**params, "network": {**params["network"], "z.prior": standard}}
    key = jax.random.key(1)
    np.testing.assert_allclose(weighed(mixed, beside, key), weighed(plain, params, key), rtol=1e-12)
    # The bound of training is by the same draws, its divergence sampled.
    bound = mixed.log_likelihood(beside, {}, mixed.read({"y": Y}).full(), key)[0]
    np.testing.assert_allclose(bound, weighed(mixed, beside, key), rtol=1e-12)


def test_an_encoder_that_tells_nothing_is_its_own_prior() -> None:
    """With equal beliefs of all inputs the divergence is zero draw by draw, and what is left is log p(y | z)."""
    encoder = latent.Amortised(Linear())
    graph = models.VAE(2, 6, Linear(bias=False), Linear(), prior=latent.VampPrior(2, encoder, Y[:3]))
    params, _ = graph.init(jax.random.key(0), graph.read({"y": Y}).full())
    own = {"kernel": jnp.zeros((6, 4)), "bias": jnp.array([0.7, -0.2, -30.0, -30.0])}
    local = {"z": {"network": {"layers": {0: own}}, "family": {}}}
    params = {**params, "network": {**params["network"], "local": local}}
    logits = jnp.array([0.7, -0.2]) @ params["network"]["decode"]["layers"][0]["kernel"]
    expected = np.sum(Y * np.asarray(logits) - np.logaddexp(0, np.asarray(logits)), axis=-1)
    np.testing.assert_allclose(weighed(graph, params, jax.random.key(1)), expected, rtol=1e-6)


@pytest.mark.stress
def test_a_prior_trains_draws_rows_and_comes_back(tmp_path) -> None:
    graph = models.VAE(2, 6, MLP((4,)), MLP((4,)), prior=latent.VampPrior(2, latent.Amortised(MLP((4,))), Y[:3]))
    posterior = lamu.fit(graph, {"y": Y}, lamu.algorithms.adam(0.01), steps=5, batch_size=10).posterior
    assert latent.generate(posterior, 4, jax.random.key(0))["y"].shape == (4, 6)
    found = lamu.load(posterior.save(tmp_path / "posterior"))
    np.testing.assert_array_equal(found.log_prob({"y": Y}, samples=2), posterior.log_prob({"y": Y}, samples=2))


def test_what_is_no_prior() -> None:
    with pytest.raises(ValueError, match="latents=0 is not a number of latents"):
        latent.MixturePrior(0, parts=2)
    with pytest.raises(ValueError, match="parts=0; give a whole number from 1"):
        latent.MixturePrior(2, parts=0)
    with pytest.raises(TypeError, match="the encoder is 3; give the Amortised"):
        latent.VampPrior(2, 3, Y)
    with pytest.raises(TypeError, match="the encoder reads c beside the data"):
        latent.VampPrior(2, latent.Amortised(Linear(), given=("c",)), Y)
    with pytest.raises(ValueError, match=r"the pseudo-inputs have the shape \(6,\)"):
        latent.VampPrior(2, ENCODER, Y[0])
    with pytest.raises(ValueError, match="FlowPrior without flows"):
        latent.FlowPrior(2, ())

    def alone(m) -> None:
        with m.rows():
            z = m.sample("z", latent.MixturePrior(6, parts=2))
            m.sample("y", graphs.Normal(z, 1.0))

    graph = lamu.Graph(alone)
    batch = graph.read({"y": Y}).full()
    params, state = graph.init(jax.random.key(0), batch)
    with pytest.raises(TypeError, match=r"networks \(z.prior\) depend on the latents z of a row"):
        graph.log_likelihood(params, state, batch)
    with pytest.raises(TypeError, match="no closed form under a MixturePrior; name a local that draws it"):
        graph.row_bounds(graph.values_of(params), batch)


def test_a_vamp_prior_is_of_the_locals_own_encoder() -> None:
    """Its weights are the local's: another network would read them as its own, and return some number."""

    def vae(encoder, local):
        def program(m) -> None:
            decode = m.network("decode", MLP((3,)), outputs=5)
            with m.rows():
                z = m.sample("z", latent.VampPrior(2, encoder, jnp.eye(5)[:3]))
                m.sample("y", lamu.likelihoods.Bernoulli()(decode(z)))

        return lamu.Graph(program, local={"z": local})

    encoder = latent.Amortised(MLP((8,)))
    for local in (encoder, latent.Amortised(MLP((8,)), bound=latent.Importance(3)), latent.Refined(encoder, 2)):
        assert vae(encoder, local).networks
    for local in (latent.Amortised(MLP((8,), activation="tanh")), latent.Delta(MLP((8,)))):
        with pytest.raises(
            TypeError, match=r"the prior of 'z' is an average of beliefs of .* give both the same encoder"
        ):
            vae(encoder, local)
