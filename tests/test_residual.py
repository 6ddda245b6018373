"""The residual network beside its layers written out with the compiler's convolutions; filter responses row by row."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.networks import BatchNorm, FilterResponse, GroupNorm, ResNet
from lamu.networks.convolutional import convolve
from tests.for_each import for_each

rng = np.random.default_rng(0)
IMAGES = jnp.asarray(rng.normal(size=(3, 8, 8, 3)))
NETWORK = ResNet(depth=8, width=2)


@cache
def started() -> tuple[Any, Any]:
    params, state = NETWORK.init(jax.random.key(0), IMAGES, 4)
    return jax.tree.map(lambda leaf: leaf + 0.1, params), state


def plain(images: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(images, kernel, (stride, stride), "SAME", dimension_numbers=numbers)


def written_out(params: Any, x: jax.Array) -> jax.Array:
    """He et al.'s network, depth 8, with filter responses and SiLU."""

    def norm(at: Any, x: jax.Array) -> jax.Array:
        size = jnp.sqrt((x**2).mean(axis=(1, 2), keepdims=True) + 1e-6)
        return x / size * at["scale"][None, None, None] + at["bias"][None, None, None]

    x = jax.nn.silu(norm(params["stem"]["norm"], plain(x, params["stem"]["kernel"])))
    for index, stride in enumerate((1, 2, 2)):
        at = params["blocks"][index]
        inner = jax.nn.silu(norm(at["norms"][0], plain(x, at["convolutions"][0]["kernel"], stride)))
        inner = norm(at["norms"][1], plain(inner, at["convolutions"][1]["kernel"]))
        x = jax.nn.silu(inner + (x if stride == 1 else plain(x, at["shortcut"]["kernel"], 2)))
    return x.mean(axis=(1, 2)) @ params["layers"][0]["kernel"] + params["layers"][0]["bias"][None]


@pytest.mark.parametrize("size", [7, 8])
@pytest.mark.parametrize("kernel", [1, 2, 3])
def test_strided_patches_are_the_compilers_convolution(size: int, kernel: int) -> None:
    images, weights = jnp.asarray(rng.normal(size=(2, size, size + 1, 2))), rng.normal(size=(kernel, kernel, 2, 3))
    found, expected = convolve(images, jnp.asarray(weights), 2), plain(images, jnp.asarray(weights), 2)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.stress
def test_a_residual_network_is_its_layers() -> None:
    params, state = started()
    assert state == {}
    found = NETWORK.apply(params, state, IMAGES, None, True)[0]
    np.testing.assert_allclose(found, written_out(params, IMAGES), atol=1e-10)
    grey, _ = NETWORK.init(jax.random.key(0), IMAGES[..., 0], 4)
    one, other = (NETWORK.apply(grey, {}, x, None, False)[0] for x in (IMAGES[..., 0], IMAGES[..., :1]))
    np.testing.assert_array_equal(one, other)


def test_the_depth_counts_layers() -> None:
    shapes, _ = jax.eval_shape(lambda key: ResNet().init(key, jnp.zeros((1, 32, 32, 3)), 10), jax.random.key(0))
    kernels = [path for path in lamu.tree.paths(shapes) if path.endswith("kernel") and "shortcut" not in path]
    assert len(kernels) == 20
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 272_282


def test_rows_do_not_meet_in_filter_responses() -> None:
    params, state = started()
    together = NETWORK.apply(params, state, IMAGES, None, True)[0]
    alone = NETWORK.apply(params, state, IMAGES[1:2], None, True)[0]
    np.testing.assert_allclose(alone, together[1:2], rtol=1e-10)


def test_rows_meet_where_the_normaliser_says_so() -> None:
    networks = lamu.networks
    assert not networks.ConvNet((2,), (3,), normalise=FilterResponse()).masked
    assert not networks.ResNet(8, 4).masked
    assert not networks.MLP((4,), normalise=GroupNorm(2)).masked
    assert networks.ResNet(8, 4, normalise=BatchNorm()).masked
    assert networks.MLP((3,), normalise=BatchNorm()).masked


@pytest.mark.stress
def test_what_needs_rows_apart_takes_the_network() -> None:
    model = lamu.Model(NETWORK, lamu.likelihoods.Categorical(4))
    fit = lamu.fit(model, (np.asarray(IMAGES), np.array([0, 1, 3])), lamu.algorithms.vogn(), steps=2)
    assert np.all(np.isfinite(fit.posterior.predict(IMAGES, samples=2).mean))


def test_batch_norm_keeps_its_state_here_too() -> None:
    """Padding is in no statistic, and the running ones move in training only."""
    network = ResNet(depth=8, width=2, normalise=BatchNorm())
    params, state = network.init(jax.random.key(0), IMAGES, 4)
    padded, mask = jnp.concatenate([IMAGES, 9.0 * IMAGES[:1]]), jnp.array([1.0, 1.0, 1.0, 0.0])
    f, new = network.apply(params, state, IMAGES, None, True)
    g, masked = network.apply(params, state, padded, None, True, mask)
    np.testing.assert_allclose(g[:3], f, rtol=1e-9)
    for one, other, old in zip(*map(jax.tree.leaves, (new, masked, state)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
        assert not np.allclose(one, old)
    still = network.apply(params, state, IMAGES, None, False)[1]
    assert all(a is b for a, b in zip(jax.tree.leaves(still), jax.tree.leaves(state), strict=True))


@for_each(
    "make, words",
    [
        (lambda: ResNet(depth=18), "a depth of 18 cannot be built; give 8, 14, 20"),
        (lambda: FilterResponse(eps=0.0), "eps=0.0 must be a small positive number"),
        (lambda: NETWORK.init(jax.random.key(0), jnp.zeros((2, 5)), 3), r"shape \(2, 5\) are not images"),
        (lambda: GroupNorm(0), "groups=0; give a whole number from 1"),
        (lambda: GroupNorm(eps=0.0), "eps=0.0 must be a small positive number"),
        (lambda: GroupNorm(3).init(4, jnp.float32), "4 features cannot be dealt to 3 groups"),
        (lambda: FilterResponse().apply({}, {}, jnp.zeros((2, 5)), True, None), r"shape \(2, 5\) have no positions"),
    ],
)
def test_bad_networks(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
