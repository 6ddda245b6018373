"""Images drawn step by step: how a step looks and writes, and the bound of a path."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.latent import Amortised, Attention, Drawing, Glimpse, Recurrent, Whole
from lamu.latent.models import DRAW, VAE
from lamu.networks import Linear
from lamu.predictives import Sampled

IMAGE = np.random.default_rng(0).normal(size=(5, 5))
SHARP = jnp.array([0.0, 0.0, -8.0, 0.0, 0.0])


def test_a_sharp_patch_of_all_pixels_is_the_image() -> None:
    """Rows and columns are not exchanged; half a turn to the right sees what stands there; intensity is over again."""
    glimpse = Attention(5, (5, 5))
    assert isinstance(glimpse, Glimpse)
    np.testing.assert_allclose(glimpse.read(SHARP, jnp.asarray(IMAGE).ravel()), IMAGE.ravel(), atol=1e-9)
    np.testing.assert_allclose(glimpse.write(SHARP, jnp.asarray(IMAGE).ravel()), IMAGE.ravel(), atol=1e-9)
    # The centre (A + 1)/2 (g + 1) moves by one column for g = 2/(A + 1), and γ multiplies what is read.
    moved = SHARP.at[0].set(2 / 6).at[4].set(jnp.log(2.0))
    found = np.asarray(glimpse.read(moved, jnp.asarray(IMAGE).ravel())).reshape(5, 5)
    np.testing.assert_allclose(found[:, :4], 2 * IMAGE[:, 1:], atol=1e-9)
    written = glimpse.write(moved, jnp.asarray(found).ravel())
    np.testing.assert_allclose(written[6:9], found[1, :3] / 2, atol=1e-9)


def test_reading_and_writing_are_transposed() -> None:
    """⟨w, read(x)⟩/γ is ⟨write(w), x⟩ γ for any controls, also of an image that is not square."""
    glimpse, random = Attention(3, (4, 6)), np.random.default_rng(1)
    controls, w, x = (jnp.asarray(random.normal(size=n)) for n in (5, 9, 24))
    intensity = jnp.exp(controls[4])
    left, right = (
        jnp.vdot(w, glimpse.read(controls, x)) / intensity,
        jnp.vdot(glimpse.write(controls, w), x) * intensity,
    )
    np.testing.assert_allclose(left, right, rtol=1e-12)


Y = np.array([[1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.0], [1.0, np.nan, 0.0, 1.0]])


@pytest.mark.parametrize("glimpse", [Whole(), Attention(2, (2, 2))], ids=repr)
def test_importance_weights_of_paths_average_to_the_density(glimpse) -> None:
    """Two steps of one number, by a grid: within 4 standard errors of 4,000 paths; the bound has their mean below."""
    graph = DRAW(2, 1, 4, hidden=3, read=glimpse, write=glimpse)
    batch = graph.read({"y": Y}).full()
    params, state = graph.init(jax.random.key(0), batch)
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    leaves = [leaf + 0.7 * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
    params = jax.tree.unflatten(structure, leaves)
    axis = np.linspace(-6, 6, 121)
    z = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2, 1)
    network = Drawing(3, glimpse, glimpse)
    f = np.asarray(jax.jit(lambda z: network.apply(params["network"]["decode"], {}, z, None, False)[0])(jnp.asarray(z)))
    prior = np.exp(-0.5 * (z**2).sum((1, 2))) / (2 * np.pi)
    exact = []
    for y in Y:
        terms = np.where(np.isnan(y), 0.0, np.nan_to_num(y) * f - np.logaddexp(0, f))
        exact.append(np.log(np.sum(prior * np.exp(terms.sum(1))) * (axis[1] - axis[0]) ** 2))
    many = jax.random.split(jax.random.key(2), 4000)
    bounds, weights = (
        np.asarray(
            jax.jit(lambda ks, g=g: jax.lax.map(lambda k: g.log_likelihood(params, state, batch, k)[0], ks))(many)
        )
        for g in (graph, graph.importance_weighted())
    )
    ratios = np.exp(weights - np.array(exact))
    assert np.all(np.abs(ratios.mean(0) - 1) < 4 * ratios.std(0) / np.sqrt(len(ratios)))
    error = np.hypot(bounds.std(0), weights.std(0)) / np.sqrt(len(ratios))
    assert np.all(np.abs(bounds.mean(0) - weights.mean(0)) < 4 * error)
    assert np.all(bounds.mean(0) < np.array(exact))


def test_each_step_sees_the_canvas_before_it() -> None:
    """The second step's belief depends on the first step's draw, and the first one's on none."""
    graph = DRAW(2, 1, 4, hidden=3)
    params, _ = graph.init(jax.random.key(0), graph.read({"y": Y[:2]}).full())
    posterior = lamu.Posterior(graph, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))
    same = {"y": np.tile(Y[:1], (3, 1))}
    means = np.asarray(posterior.local(same)["z"].mean)[:, :, 0]
    assert np.ptp(means[:, 0]) < 1e-12
    assert np.ptp(means[:, 1]) > 1e-6
    canvases = Drawing(3).canvases(params["network"]["decode"], jnp.ones((2, 1)), 4)
    last = Drawing(3).apply(params["network"]["decode"], {}, jnp.ones((1, 2, 1)), None, False)[0]
    np.testing.assert_allclose(canvases[-1], last[0], rtol=1e-12)


def test_what_draws_nothing() -> None:
    with pytest.raises(ValueError, match="DRAW has steps=0; give a whole number from 1"):
        DRAW(0, 2, 4)
    with pytest.raises(ValueError, match="filters=1 must be a whole number from 2"):
        Attention(1, (4, 4))
    with pytest.raises(ValueError, match=r"images have 5 pixels, and shape=\(2, 2\) has 4"):
        Attention(2, (2, 2)).size(5)
    with pytest.raises(ValueError, match="hidden=0; give a whole number from 1"):
        Drawing(0)
    graph = VAE(2, 4, Linear(), Linear())
    wrong = lamu.Graph(graph.sites, local={"z": Recurrent(3)}, networks=graph.networks)
    with pytest.raises(TypeError, match="no Drawing is called with 'z'"):
        wrong.init(jax.random.key(0), wrong.read({"y": Y[:2]}).full())
    assert isinstance(graph.local["z"], Amortised)
