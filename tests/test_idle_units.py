"""Units of a latent that tell nothing of a row are counted, and a fit says how many."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import latent
from lamu.graphs.queries import idle_units
from lamu.latent import models
from lamu.networks import Linear
from lamu.predictives import Sampled

Y = np.random.default_rng(0).normal(size=(60, 8))


def at_encoder(graph: lamu.Graph, kernel: np.ndarray, bias: np.ndarray) -> tuple[lamu.Graph, dict]:
    """A graph that every run starts from a given linear encoder of its one latent, and these parameters."""
    params = graph.init(jax.random.key(0), graph.read({"y": Y > 0}).full())[0]
    local = params["network"]["local"]
    (name,) = local
    layer = {"layers": {0: {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(bias)}}}
    part = "network" if "network" in local[name] else "encoder"
    network = {**params["network"], "local": {name: {**local[name], part: layer}}}
    params = {**params, "network": network}
    return replace(graph, start=(params, {})), params


def used_units(used: int) -> lamu.Graph:
    """A VAE of twenty units, of which the encoder moves some; the others have their prior in every row."""
    graph = models.VAE(20, 8, Linear(), Linear(), likelihood=lamu.likelihoods.Gaussian(scale=1.0))
    kernel = np.zeros((8, 40))
    kernel[np.arange(used), np.arange(used)] = 1.0
    return at_encoder(graph, kernel, np.zeros(40))[0]


def test_a_fit_says_in_one_sentence_how_many_units_are_idle() -> None:
    still = lamu.algorithms.adam(1e-9)
    fit = lamu.fit(used_units(5), {"y": Y}, still, steps=1, batch_size=60)
    assert fit.warnings == ("15 of the 20 units of z idle (below 0.01 nats a row)",)
    assert fit.warnings[0] in repr(fit)
    assert lamu.fit(used_units(8), {"y": Y}, still, steps=1, batch_size=60).warnings[0].startswith("12 of the 20")


def test_rows_that_do_not_count_are_not_seen() -> None:
    """One row moves the encoder a little: alone it is above the limit, on the average of ten it is not."""
    graph, params = at_encoder(
        models.VAE(1, 8, Linear(), Linear(), likelihood=lamu.likelihoods.Gaussian(scale=1.0)),
        np.eye(8, 2),
        np.zeros(2),
    )
    y = np.zeros((10, 8))
    y[0, 0] = 0.2  # half its square is 0.02 nats
    belief, rows = lamu.families.Point(params), graph.read({"y": y}).full()
    assert idle_units(graph, belief, rows) == {"z": (1, 1)}
    assert idle_units(graph, belief, replace(rows, mask=jnp.asarray(np.arange(10) < 1, rows.mask.dtype))) == {}


def test_several_runs_have_units_of_their_own() -> None:
    graph = used_units(5)
    algorithm = lamu.algorithms.deep_ensemble(lamu.algorithms.adam(1e-9), members=2)
    assert lamu.fit(graph, {"y": Y}, algorithm, steps=1, batch_size=60).warnings == ()


def test_the_divergences_of_bits_are_those_of_coins() -> None:
    kernel, bias = np.random.default_rng(1).normal(size=(8, 3)), np.array([0.5, 0.0, -2.0])
    y = (Y > 0).astype(float)
    graph, params = at_encoder(models.SigmoidBelief((3,), 8), kernel, bias)
    top = {"layers": {0: {"kernel": jnp.asarray([[0.3, -1.0, 2.0]])}}}
    params = {**params, "network": {**params["network"], "top": top}}
    posterior = lamu.Posterior(graph, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))
    found = latent.unit_divergences(posterior, {"y": y}, jax.random.key(1))["b1"].nats
    q, p = (1 / (1 + np.exp(-logits)) for logits in (y @ kernel + bias, np.array([0.3, -1.0, 2.0])))
    expected = q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))
    np.testing.assert_allclose(found, expected.mean(0), rtol=1e-6)
    darn = models.DARN((3,), 8)
    point = lamu.families.Point(darn.init(jax.random.key(0), darn.read({"y": y}).full())[0])
    with pytest.raises(TypeError, match="the divergence of 'b1' has no closed form"):
        latent.unit_divergences(replace(posterior, model=darn, belief=point), {"y": y}, jax.random.key(1))
