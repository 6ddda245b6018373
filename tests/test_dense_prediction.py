"""A prediction at every pixel: the U-Net beside its layers written out, its likelihood beside single pixels."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.likelihoods import Categorical, Gaussian, PerPosition
from lamu.networks import BatchNorm, UNet, WideResNet
from lamu.predictives import MixturePredictive
from tests.for_each import for_each

rng = np.random.default_rng(0)
IMAGES = jnp.asarray(rng.normal(size=(3, 8, 4, 2)))
PIXELS = PerPosition(Categorical(3), (2, 2))


def key() -> Any:
    return jax.random.key(0)


def plain(images: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(images, kernel, (stride, stride), "SAME", dimension_numbers=numbers)


def responses(at: Any, x: jax.Array) -> jax.Array:
    size = jnp.sqrt((x**2).mean(axis=(1, 2), keepdims=True) + 1e-6)
    return x / size * at["scale"][None, None, None] + at["bias"][None, None, None]


def shaken(params: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf + 0.1 * jnp.asarray(rng.normal(size=leaf.shape)), params)


@pytest.mark.stress
def test_a_u_net_is_its_layers() -> None:
    network = UNet((2, 3, 4))
    params, state = network.init(key(), IMAGES, 8 * 4 * 5)
    assert state == {}
    params = shaken(params)

    def block(at: Any, x: jax.Array) -> jax.Array:
        for j in range(2):
            x = jax.nn.silu(responses(at["norms"][j], plain(x, at["convolutions"][j]["kernel"])))
        return x

    half = lambda x: x.reshape(3, x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1).mean(axis=(2, 4))
    double = lambda x: jax.image.resize(x, (3, 2 * x.shape[1], 2 * x.shape[2], x.shape[3]), "nearest")
    first = block(params["down"][0], IMAGES)
    second = block(params["down"][1], half(first))
    up = block(params["down"][2], half(second))
    up = block(params["up"][1], jnp.concatenate([second, double(up)], axis=3))
    up = block(params["up"][0], jnp.concatenate([first, double(up)], axis=3))
    expected = up @ params["layers"][0]["kernel"] + params["layers"][0]["bias"][None, None, None]
    found = network.apply(params, state, IMAGES, None, True)[0]
    np.testing.assert_allclose(found.reshape(3, 8, 4, 5), expected, atol=1e-10)


@pytest.mark.stress
def test_a_wide_residual_network_is_its_layers() -> None:
    network = WideResNet(depth=10, widen=1)
    params, state = network.init(key(), IMAGES, 4)
    assert state == {}
    params = shaken(params)
    x = plain(IMAGES, params["stem"]["kernel"])
    for index, stride in enumerate((1, 2, 2)):
        at = params["blocks"][index]
        first = jax.nn.relu(responses(at["norms"][0], x))
        inner = plain(first, at["convolutions"][0]["kernel"], stride)
        inner = plain(jax.nn.relu(responses(at["norms"][1], inner)), at["convolutions"][1]["kernel"])
        x = inner + (x if index == 0 else plain(first, at["shortcut"]["kernel"], 2))
    x = jax.nn.relu(responses(params["norm"], x)).mean(axis=(1, 2))
    expected = x @ params["layers"][0]["kernel"] + params["layers"][0]["bias"][None]
    np.testing.assert_allclose(network.apply(params, state, IMAGES, None, True)[0], expected, atol=1e-10)


def test_the_size_of_a_wide_residual_network_is_the_papers() -> None:
    """WRN-28-10 has 36.5 million parameters (table 4)."""
    params, _ = jax.eval_shape(lambda key: WideResNet(28, 10).init(key, jnp.zeros((1, 32, 32, 3)), 10), key())
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == pytest.approx(36.5e6, rel=2e-3)


@pytest.mark.parametrize(
    "network",
    [
        UNet((2, 3), normalise=BatchNorm()),
        pytest.param(WideResNet(10, 1, normalise=BatchNorm()), marks=pytest.mark.stress),
    ],
)
def test_statistics_move_in_training_and_padding_is_in_none(network: Any) -> None:
    params, state = network.init(key(), IMAGES, 32)
    padded, mask = jnp.concatenate([IMAGES, 9.0 * IMAGES[:1]]), jnp.array([1.0, 1.0, 1.0, 0.0])
    f, new = network.apply(params, state, IMAGES, None, True, None)
    g, masked = network.apply(params, state, padded, None, True, mask)
    np.testing.assert_allclose(g[:3], f, rtol=1e-8, atol=1e-12)
    assert jax.tree.structure(new) == jax.tree.structure(state)
    for one, other, old in zip(*map(jax.tree.leaves, (new, masked, state)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-12)
        assert not np.allclose(one, old)


@pytest.mark.stress
def test_a_row_is_the_product_of_its_positions() -> None:
    f, y = jnp.asarray(rng.normal(size=(2, 12))), jnp.asarray(rng.integers(0, 3, (2, 2, 2)))
    pixels = f.reshape(8, 3)
    one = Categorical(3)
    np.testing.assert_allclose(
        PIXELS.log_prob({}, f, y), one.log_prob({}, pixels, y.ravel()).reshape(2, 4).sum(1), rtol=1e-12
    )
    np.testing.assert_allclose(PIXELS.mean({}, f).reshape(8, 3), one.mean({}, pixels), rtol=1e-12)
    np.testing.assert_allclose(PIXELS.entropy({}, f).ravel(), one.entropy({}, pixels), rtol=1e-12)
    hessian = jax.hessian(lambda f: -PIXELS.log_prob({}, f[None], y[:1])[0])(f[0])
    np.testing.assert_allclose(PIXELS.information({}, f)[0], hessian, atol=1e-12)
    root = PIXELS.information_root({}, f)
    np.testing.assert_allclose(root @ jnp.swapaxes(root, 1, 2), PIXELS.information({}, f), atol=1e-12)


def test_one_noise_is_shared_by_all_positions() -> None:
    likelihood = PerPosition(Gaussian(), (4,))
    y = jnp.asarray(rng.normal(size=(5, 4)))
    params = likelihood.init(y)
    np.testing.assert_allclose(params["log_scale"], [np.log(np.std(y))], rtol=1e-10)
    assert likelihood.dispersion_information(params)["log_scale"].tolist() == [8.0]
    several = Gaussian().log_prob({"log_scale": jnp.repeat(params["log_scale"], 4)}, 0.5 * y, y)
    np.testing.assert_allclose(likelihood.log_prob(params, 0.5 * y, y), several, rtol=1e-12)


def test_uncertainty_is_a_map() -> None:
    """Each pixel's is that of the pixel alone; the density of a row is that of all pixels under one draw."""
    f, y = jnp.asarray(rng.normal(size=(6, 2, 12))), np.asarray(rng.integers(0, 3, (2, 2, 2)))
    whole = MixturePredictive.equal(PIXELS, {}, f)
    alone = MixturePredictive.equal(Categorical(3), {}, f.reshape(6, 8, 3))
    for name in ("total", "aleatoric", "epistemic"):
        np.testing.assert_allclose(getattr(whole, name).ravel(), getattr(alone, name), atol=1e-12)
    np.testing.assert_allclose(lamu.scores.entropy(whole), whole.total, rtol=1e-10)
    assert lamu.scores.accuracy(whole, y) == lamu.scores.accuracy(alone, y.ravel())
    assert lamu.scores.least_confidence(whole).shape == (2, 2, 2)
    draws = jnp.stack([PIXELS.log_prob({}, each, jnp.asarray(y)) for each in f])
    np.testing.assert_allclose(whole.log_prob(y), jax.nn.logsumexp(draws, axis=0) - np.log(6), rtol=1e-10)
    sizes = {whole.sample(key(), 3).shape, (3, *y.shape)}
    assert len(sizes) == 1


def test_draws_of_pixels_have_their_probabilities() -> None:
    """16 cells of joint draws of two pixels; each within five standard errors, a false alarm at 1e-5."""
    pair = PerPosition(Categorical(2), (2,))
    f = jnp.array([[0.3, -0.2, 1.0, 0.0]])
    draws = np.asarray(jax.vmap(lambda key: pair.sample(key, {}, f))(jax.random.split(key(), 4000)))[:, 0]
    for y in itertools.product((0, 1), repeat=2):
        p = float(jnp.exp(pair.log_prob({}, f, jnp.array([y])))[0])
        assert abs(np.mean((draws == y).all(axis=1)) - p) < 5 * np.sqrt(p * (1 - p) / 4000)


@for_each(
    "make, error, words",
    [
        (lambda: UNet((4,)), ValueError, "hold no coarser level"),
        (lambda: UNet((4, 0)), ValueError, r"channels=\(4, 0\); give whole numbers from 1"),
        (lambda: UNet((2, 3)).init(key(), IMAGES, 33), ValueError, "33 outputs cannot be dealt to 32 pixels"),
        (lambda: UNet((2, 3, 4, 5)).init(key(), IMAGES, 32), ValueError, "8 by 4 pixels cannot be halved 3 times"),
        (lambda: WideResNet(12), ValueError, "a depth of 12 cannot be built; give 10, 16"),
        (lambda: WideResNet(widen=0), ValueError, "widen=0; give a whole number from 1"),
        (lambda: PerPosition(Categorical(3), ()), ValueError, r"positions=\(\) have no targets"),
        (lambda: PerPosition(Categorical, (2,)), TypeError, "give one of lamu.likelihoods"),
        (lambda: PIXELS.check(np.zeros((2, 4), int)), ValueError, r"shape \(2, 4\).* takes \[batch, 2, 2\]"),
        (lambda: PIXELS.check(np.array([[[0, 1], [2, 1]], [[0, 3], [0, 0]]])), ValueError, "target in row 1 is 3"),
    ],
)
def test_mistakes_are_said_in_a_sentence(make: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        make()


@for_each("classes", [2, 4])
def test_scores_of_maps_are_those_of_their_positions(classes: int) -> None:
    random = np.random.default_rng(1)
    base = lamu.likelihoods.Bernoulli() if classes == 2 else Categorical(classes)
    x, y = random.normal(size=(30, 2)), random.integers(0, classes, (30, 3))
    model = lamu.Model(lamu.networks.Linear(), PerPosition(base, (3,)))
    pred = lamu.fit(model, (x, y), lamu.algorithms.adam(1e-2), steps=50).posterior.predict(x)
    p, one_hot = np.asarray(pred.mean), np.eye(classes)[y]
    p = np.stack([1 - p, p], axis=-1) if classes == 2 else p
    distances = ((p - one_hot) ** 2).sum(axis=-1) / (2 if classes == 2 else 1)
    np.testing.assert_allclose(lamu.scores.brier(pred, y), distances.mean())
    by_row = lamu.scores.with_error(lamu.scores.brier, pred, y).error
    np.testing.assert_allclose(by_row, distances.mean(axis=1).std(ddof=1) / 30**0.5)
    np.testing.assert_allclose(lamu.scores.accuracy(pred, y), (p.argmax(axis=-1) == y).mean())
    inside = np.asarray(pred.prediction_set(0.9))[np.arange(30)[:, None], np.arange(3)[None], y]
    np.testing.assert_allclose(lamu.scores.coverage(pred, y), inside.mean())
    flat = SimpleNamespace(support=lamu.supports.Classes(classes), mean=p.reshape(90, classes))
    np.testing.assert_allclose(lamu.scores.ece(pred, y), lamu.scores.ece(flat, y.ravel()), atol=1e-12)
    assert lamu.scores.ece_if_calibrated(pred) == lamu.scores.ece_if_calibrated(flat)
    with pytest.raises(ValueError, match="30 rows of 3 labels each has no standard error"):
        lamu.scores.with_error(lamu.scores.ece, pred, y)
    calibrated = lamu.calibration.conformal(pred, y)
    told = calibrated.prediction_set(pred, 0.9)[np.arange(30)[:, None], np.arange(3)[None], y]
    np.testing.assert_allclose(told.mean(axis=0), 28 / 30)  # the 28th smallest distance of every position
    with pytest.raises(ValueError, match=r"one class a row, .* the shape \(30, 3\); take conformal"):
        lamu.calibration.temperature_scaling(pred, y)


def test_outputs_with_an_axis_of_positions_are_told_how_to_be_flat():
    weights = {"w": np.ones((2, 12), np.float32)}
    network = lamu.networks.Trained(lambda params, x: (x @ params["w"]).reshape(-1, 4, 3), weights)
    model = lamu.Model(network, lamu.likelihoods.PerPosition(lamu.likelihoods.Categorical(3), (4,)))
    rows = np.ones((5, 2), np.float32), np.zeros((5, 4), int)
    with pytest.raises(ValueError, match=r"flatten it, with the 3 outputs of a position .*f\.flatten\(1\) of"):
        lamu.fit(model, rows, lamu.algorithms.laplace(), epochs=0)
