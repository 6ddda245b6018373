"""What encoders read: counts on the scale of their logarithms."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import graphs
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row
from lamu.latent.locals.encoder import encoded
from lamu.likelihoods import Binomial, Gaussian, NegativeBinomial, Poisson
from lamu.networks import MLP, Trained

SEEN = Trained(lambda w, y: y + w["zero"][None], {"zero": jnp.zeros(3)})
COUNTS = np.array([0.0, 9.0, 99999.0])


def read(likelihood):
    """What reaches the network of an encoder."""
    graph = lamu.latent.models.VAE(2, 3, MLP((2,)), SEEN, likelihood)
    row = Row.of(graph.in_rows, graph.columns, graph.rows({"y": COUNTS[None] % 10}).full().y, 1.0, jnp.float64)
    row = Row.of(graph.in_rows, graph.columns, {"y": jnp.asarray(COUNTS)}, 1.0, jnp.float64)
    return encoded(SEEN, SEEN.params, "z", (), row, Environment({}))


@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(2.0), Binomial(10**6)])
def test_an_encoder_reads_the_logarithm_of_counts(likelihood):
    """A count of 10⁵ as it is would give log scales of that size."""
    np.testing.assert_allclose(read(likelihood), np.log1p(COUNTS), rtol=1e-6)


def test_it_reads_other_numbers_as_they_are():
    np.testing.assert_allclose(read(Gaussian(1.0)), COUNTS)


def test_so_does_the_encoder_of_a_poisson_factor():
    def program(m):
        rate = m.sample("rate", lamu.families.Gamma(1.0, 1.0))
        with m.rows():
            m.sample("z", graphs.Normal(jnp.zeros(2), 1.0))
            m.sample("y", graphs.Poisson(rate), plate=3)

    graph = lamu.Graph(program)
    row = Row.of(graph.in_rows, graph.columns, {"y": jnp.asarray(COUNTS)}, 1.0, jnp.float64)
    np.testing.assert_allclose(encoded(SEEN, SEEN.params, "z", (), row, Environment({})), np.log1p(COUNTS), rtol=1e-6)


def test_inputs_that_are_not_scaled_are_named():
    rng = np.random.default_rng(0)
    x, y = 1e4 * rng.normal(size=(30, 2)), rng.normal(size=30)
    model = lamu.Model(MLP((3,)), Gaussian(1.0))
    rows = lamu.data.Batch.of(jnp.asarray(x), jnp.asarray(y))
    assert "not scaled (up to" in model.unscaled_inputs(rows)
    assert "model.standardised(x, y)" in model.unscaled_inputs(rows)
    assert model.standardised(x, y).unscaled_inputs(rows) == ""
    graph = lamu.latent.models.VAE(2, 3, likelihood=Gaussian(1.0))
    assert "divide the columns" in graph.unscaled_inputs(graph.rows({"y": 1e4 * np.ones((4, 3))}).full())
    counts = lamu.latent.models.VAE(2, 3, likelihood=Poisson())
    assert counts.unscaled_inputs(counts.rows({"y": 1e4 * np.ones((4, 3))}).full()) == ""
