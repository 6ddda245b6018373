"""Deep latent-variable models refuse what they cannot read in a sentence, and answer what they can."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import lamu
from lamu import graphs, latent
from lamu.graphs.expressions import Environment
from lamu.graphs.reading import read
from lamu.graphs.statistics import Observed
from lamu.latent import models
from lamu.networks import MLP
from lamu.predictives import Sampled
from tests.for_each import for_each

Y = (np.random.default_rng(0).uniform(size=(20, 6)) < 0.5).astype(float)


def at_first_weights(graph: lamu.Graph, data) -> lamu.Posterior:
    params = graph.init(jax.random.key(0), graph.read(data).full())[0]
    return lamu.Posterior(graph, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))


def test_a_number_that_others_depend_on_is_there_or_not() -> None:
    """Its neutral value, zero, would stand in the decoder of the rows that lack it."""

    def program(m):
        decode = m.network("decode", MLP((4,)), outputs=6)
        with m.rows():
            x = m.sample("x", graphs.Normal(jnp.zeros(2), 1.0))
            m.sample("y", lamu.likelihoods.Bernoulli()(decode(x)))

    graph = lamu.Graph(program, local={"x": latent.Amortised(MLP((4,)))})
    x = np.random.default_rng(1).normal(size=(20, 2))
    graph.read({"x": x, "y": Y})
    x[5, 1] = np.nan
    with pytest.raises(
        ValueError,
        match=r"x is NaN in row 5, and y depends on it; give .* to impute it, sample it with y as one vector",
    ):
        graph.read({"x": x, "y": Y})


def test_a_category_that_is_missing_in_some_rows_is_summed_out() -> None:
    graph = models.SemiSupervised(3, 2, 6, (4,))
    graph.read({"y": Y, "c": np.where(np.arange(20) < 9, 1.0, np.nan)})


@for_each(
    "likelihood, outputs, needed",
    [
        (lamu.likelihoods.Bernoulli(), 1, 6),
        (lamu.likelihoods.Bernoulli(), 7, 6),
        (lamu.likelihoods.Categorical(2), 2, 12),
        (lamu.likelihoods.Gaussian(), 1, 6),
    ],
)
def test_a_decoder_of_another_width_is_refused(likelihood, outputs: int, needed: int) -> None:
    graph = models.VAE(2, outputs, MLP((4,)), MLP((4,)), likelihood=likelihood)
    with pytest.raises(ValueError, match=f"a row of y has 6 entries, .* give the network outputs={needed}"):
        read({"y": Y.astype(int) if needed == 12 else Y}, graph.in_rows, ())


def test_outputs_of_one_target_are_as_many_as_its_likelihood_takes() -> None:
    """One rate for a zero-inflated count, which also takes the chance of a zero, was an error about a reshape."""

    def program(m: Any) -> None:
        rate = m.sample("rate", graphs.Normal(jnp.zeros(3), precision=1.0))
        with m.rows():
            m.sample("y", lamu.likelihoods.ZeroInflated(lamu.likelihoods.Poisson())(rate[m.data("group")]))

    with pytest.raises(ValueError, match=r"a row of y has 1 entries, .* given 1 outputs for them; .* outputs=2, or a"):
        lamu.Graph(program).read({"y": np.arange(3), "group": np.arange(3)})


def test_outputs_of_one_target_are_one_value() -> None:
    """A pair of them was an error about known numbers of the network, which are to become a variable."""

    def program(m: Any) -> None:
        decode = m.network("decode", MLP((4,)), outputs=(6, 6))
        with m.rows():
            rate, zero = decode(m.sample("z", graphs.Normal(jnp.zeros(2), 1.0)))
            m.sample("y", lamu.likelihoods.ZeroInflated(lamu.likelihoods.Poisson())((rate, zero)))

    with pytest.raises(TypeError, match=r"ZeroInflated\(Poisson\) takes its outputs as one value, and got 2; give"):
        lamu.Graph(program)


def test_a_decoder_of_whole_rows_is_as_wide_as_they_are() -> None:
    likelihood = lamu.likelihoods.PerPosition(lamu.likelihoods.Bernoulli(), (6,))
    graph = models.VAE(2, 6, MLP((4,)), MLP((4,)), likelihood=likelihood)
    assert read({"y": Y}, graph.in_rows, ()).count == 20


@pytest.mark.stress
def test_one_noise_is_shared_by_entries_of_which_some_are_missing() -> None:
    """Of the observed entries alone, which have the density of the base at one scale."""
    likelihood = lamu.likelihoods.PerPosition(lamu.likelihoods.Gaussian(), (3,))
    f, y, params = jnp.array([0.5, -1.0, 2.0]), jnp.array([0.0, 1.0, 3.0]), {"log_scale": jnp.array([0.3])}
    factor = graphs.Potential(likelihood, f, name="y")
    at = Environment({"likelihood": {"y": params}})
    exact = norm.logpdf(y, f, np.exp(0.3))
    np.testing.assert_allclose(factor.log_density(Observed(y), at), exact.sum(), rtol=1e-5)
    seen = jnp.array([True, False, True])
    np.testing.assert_allclose(factor.log_density(Observed(y), at, seen), exact[0] + exact[2], rtol=1e-5)
    assert factor.predicted(at)[1].tolist() == pytest.approx([np.exp(0.6)] * 3, rel=1e-5)
    graph = models.VAE(2, 3, MLP((4,)), MLP((4,)), likelihood=likelihood)
    holes = np.where(np.eye(20, 3, dtype=bool), np.nan, Y[:, :3]).astype(np.float32)
    posterior = at_first_weights(graph, {"y": holes})
    assert posterior.belief.mean["likelihood"]["y"]["log_scale"].shape == (1,)
    filled = latent.impute(posterior, {"y": holes}, jax.random.key(0), draws=2, warmup=0)["y"]
    assert filled.shape == (2, 20, 3)


def test_outputs_of_an_entry_stand_side_by_side_whether_or_not_some_are_missing() -> None:
    """The density is that of the entries as they are drawn: mean and noise of the first, mean and noise of the next."""
    f, y = jnp.array([1.0, -2.0, -1.0, 3.0, 0.0, 0.5]), jnp.array([1.2, 0.0, 0.3])
    factor, at = graphs.Potential(lamu.likelihoods.HeteroscedasticGaussian(), f, name="y"), Environment({})
    mean, variance = factor.predicted(at)
    np.testing.assert_allclose(mean, f[::2])
    exact = norm.logpdf(y, mean, np.sqrt(variance)).sum()
    np.testing.assert_allclose(factor.log_density(Observed(y), at, jnp.ones(3, bool)), exact, rtol=1e-5)
    np.testing.assert_allclose(factor.log_density(Observed(y), at), exact, rtol=1e-5)


def test_entries_that_depend_on_each_other_are_reconstructed_by_draws() -> None:
    """Of a chain of two entries the mean of the second is exact in closed form: 100 draws, 5 standard errors."""
    posterior = at_first_weights(models.DARN((3,), 2), {"y": Y[:, :2]})
    network = posterior.belief.mean["network"]
    prior = {"kernel": jnp.asarray([[0.0, 0.0], [4.0, 0.0]]), "bias": jnp.asarray([0.5, -2.0])}
    decode = jax.tree.map(jnp.zeros_like, network["decode"])
    params = {**posterior.belief.mean, "network": {**network, "y.prior": prior, "decode": decode}}
    posterior = lamu.Posterior(posterior.model, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))
    found = latent.reconstruct(posterior, {"y": Y[:, :2]}, jax.random.key(1))["y"]
    sigma = lambda x: 1 / (1 + np.exp(-x))
    first = sigma(0.5)
    exact = [first, first * sigma(2.0) + (1 - first) * sigma(-2.0)]
    np.testing.assert_allclose(np.mean(found, axis=0), exact, atol=5 * 0.5 / np.sqrt(20 * 100))
    with pytest.raises(TypeError, match=r"'y' is missing, .* draw it by lamu\.latent\.generate"):
        posterior.predict(3)


def test_no_draw_is_no_density() -> None:
    posterior = at_first_weights(models.VAE(2, 6, MLP((4,)), MLP((4,))), {"y": Y})
    with pytest.raises(ValueError, match="samples=0 cannot be averaged"):
        posterior.log_prob({"y": Y}, samples=0)


def test_targets_whose_entries_are_tied_are_refused() -> None:
    with pytest.raises(TypeError, match="ties the entries of a target together"):
        graphs.Potential(lamu.likelihoods.MultivariateGaussian(), [0.0, 0.0])
