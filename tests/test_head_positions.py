"""A last layer at every position of a row: its curvature, gradient and variances beside the rows' Jacobians."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.algorithms import last_layer
from lamu.algorithms.post_hoc import ggn_blocks
from lamu.algorithms.post_hoc.ggn_blocks import batch_curvature, features
from lamu.data import Batch
from lamu.likelihoods import Bernoulli, Categorical, Gaussian, PerPosition
from lamu.networks import Trained, UNet
from lamu.objective import Objective
from lamu.objective.curvature import GaussNewton, SampledGaussNewton
from lamu.operators import Dense, DenseBlocks, Diagonal, KroneckerFactored, OutputEigen
from lamu.predictives import AtPositions, LaplaceBridge, Linearised, LinearisedMarginal, Probit
from lamu.predictives import tangent as tangents
from lamu.priors import LearnedNormal

rng = np.random.default_rng(3)
IMAGES = rng.normal(size=(5, 4, 6, 2))
CLASSES = rng.integers(0, 3, size=(5, 4, 6))
WEIGHTS = np.array([1.0, 2.0, 0.5, 1.0, 3.0])


def normal(*shape: int) -> np.ndarray:
    return rng.normal(size=shape)


def convolved(x: Any, kernel: Any, numbers: tuple[str, str, str], padding: str = "SAME") -> Any:
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), padding, dimension_numbers=numbers)


def of_pixels(theta: Any, x: Any) -> Any:  # a dense layer at every pixel
    hidden = jnp.tanh(x @ theta["trunk"])
    return (hidden @ theta["head"]["kernel"] + theta["head"]["bias"][None, None, None]).reshape(len(x), -1)


def windows(theta: Any, x: Any) -> Any:  # a convolution of windows, channels last
    hidden = jnp.tanh(x @ theta["trunk"])
    f = convolved(hidden, theta["head"]["kernel"], ("NHWC", "HWIO", "NHWC"))
    return (f + theta["head"]["bias"][None, None, None]).reshape(len(x), -1)


def channels_first(theta: Any, x: Any) -> Any:  # as PyTorch has it, with the weight before the bias or none
    hidden = jnp.tanh(x @ theta["trunk"]).transpose(0, 3, 1, 2)
    f = convolved(hidden, theta["head"]["weight"], ("NCHW", "OIHW", "NCHW"))
    if "zero" in theta["head"]:
        f = f + theta["head"]["zero"][None, :, None, None]
    return f.transpose(0, 2, 3, 1).reshape(len(x), -1)


def mirrored(theta: Any, x: Any) -> Any:  # pixels that come out in another order than they went in
    hidden = jnp.tanh(x @ theta["trunk"])
    return (hidden @ theta["head"]["kernel"])[:, ::-1].reshape(len(x), -1)


TRUNK = normal(2, 4)
HEADS: dict[str, tuple[Any, dict[str, np.ndarray]]] = {
    "pixels": (of_pixels, {"kernel": normal(4, 3), "bias": normal(3)}),
    "windows": (windows, {"kernel": normal(3, 3, 4, 3), "bias": normal(3)}),
    "channels first": (channels_first, {"weight": normal(3, 4, 1, 1), "zero": normal(3)}),
    "no bias": (channels_first, {"weight": normal(3, 4, 3, 1)}),
    "mirrored": (mirrored, {"kernel": normal(4, 3)}),
}


def model_of(case: str) -> Any:
    function, head = HEADS[case]
    network = Trained(function, {"trunk": TRUNK, "head": head}, head="head/*")
    return lamu.Model(network, PerPosition(Categorical(3), (4, 6)), lamu.priors.Normal(1.3))


def posterior_of(case: str, structure: Any, rule: Any = None, curvature: Any = None) -> Any:
    data = {"x": IMAGES, "y": CLASSES, "weight": WEIGHTS}
    algorithm = last_layer(structure=structure, rule=rule, curvature=curvature)
    return lamu.fit(model_of(case), data, algorithm, epochs=0).posterior


def without_reading(case: str, monkeypatch: pytest.MonkeyPatch) -> list:
    """Has the head of a case read no more, and returns a list that fills as it is asked for."""
    asked: list = []
    monkeypatch.setattr(ggn_blocks, "features", lambda *_: asked.append("features"))
    monkeypatch.setattr(tangents, "features_of", lambda *_: asked.append("features_of"))
    function, head = HEADS[case]
    monkeypatch.setitem(HEADS, case, (lambda theta, x: function(theta, x), head))  # another one: traced anew
    return asked


def read_head(case: str) -> Any:
    function, head = HEADS[case]
    network = lambda head, x: function({"trunk": TRUNK, "head": head}, x[None])[0]
    return features(network, head, jnp.asarray(IMAGES), 24)


@pytest.mark.parametrize("case", HEADS)
def test_features_give_the_outputs(case: str) -> None:
    head = read_head(case)
    kernel = next(leaf for leaf in HEADS[case][1].values() if leaf.ndim > 1)
    bias = [leaf for leaf in HEADS[case][1].values() if leaf.ndim == 1]
    matrix = kernel.reshape(3, -1).T if head.outputs_first else kernel.reshape(-1, 3)
    expected = head.features @ np.concatenate([*(leaf[None] for leaf in bias), matrix])
    np.testing.assert_allclose(head.outputs.reshape(5 * 24, 3), expected, atol=1e-12)


STRUCTURES = (Dense, DenseBlocks, Diagonal, KroneckerFactored())


@pytest.mark.parametrize(
    ("case", "structure"),
    [  # every head with one structure, and every structure with one head; the others in the long run
        pytest.param(case, structure, marks=[] if case == "windows" or structure is Dense else [pytest.mark.stress])
        for case in HEADS
        for structure in STRUCTURES
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::lamu.Unconverged")
def test_it_is_the_posterior_of_the_jacobians(case: str, structure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = LinearisedMarginal()
    ours = posterior_of(case, structure, rule)
    pred = ours.predict(IMAGES)
    asked = without_reading(case, monkeypatch)
    theirs = posterior_of(case, structure, rule)
    own, other = (each.belief.factors["network"] for each in (ours, theirs))
    np.testing.assert_allclose(own.precision.dense(own.mean), other.precision.dense(other.mean), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.convergence.residual, theirs.convergence.residual, rtol=1e-9)
    expected = theirs.predict(IMAGES)
    assert set(asked) == {"features", "features_of"}
    np.testing.assert_allclose(pred.mean, expected.mean, rtol=1e-9)
    np.testing.assert_allclose(pred.log_prob(CLASSES), expected.log_prob(CLASSES), rtol=1e-9)


@pytest.mark.filterwarnings("ignore::lamu.Unconverged")
def test_draws_of_a_map_keep_the_correlation_between_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = posterior_of("windows", Dense, Linearised()).predict(IMAGES)
    asked = without_reading("windows", monkeypatch)
    theirs = posterior_of("windows", Dense, Linearised()).predict(IMAGES)
    assert set(asked) == {"features"}
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::lamu.Unconverged")
def test_labels_drawn_for_a_row_are_read_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of a row with drawn labels is one vector: its pixels must not be taken for independent rows."""
    ours = posterior_of("pixels", Dense, curvature=SampledGaussNewton(2))
    asked = without_reading("pixels", monkeypatch)
    theirs = posterior_of("pixels", Dense, curvature=SampledGaussNewton(2))
    assert "features" in asked
    own, other = (each.belief.factors["network"] for each in (ours, theirs))
    np.testing.assert_allclose(own.precision.dense(own.mean), other.precision.dense(other.mean), rtol=1e-9)


@pytest.mark.filterwarnings("ignore::lamu.Unconverged")
def test_a_map_of_two_classes_is_one_of_probabilities() -> None:
    """The probit of single pixels, written out: the belief's variance of each, and no covariance of two."""
    head = {"kernel": normal(4, 1), "bias": normal(1)}
    network = Trained(of_pixels, {"trunk": TRUNK, "head": head}, head="head/*")
    model = lamu.Model(network, PerPosition(Bernoulli(), (4, 6)), lamu.priors.Normal(1.3))
    posterior: Any = lamu.fit(model, (IMAGES, CLASSES > 1), last_layer(), epochs=0).posterior
    pred, belief = posterior.predict(IMAGES), posterior.belief.factors["network"]
    hidden = np.tanh(IMAGES @ TRUNK).reshape(120, 4)
    features, weights = (
        np.concatenate([np.ones((120, 1)), hidden], axis=1),
        np.concatenate([head["bias"], *head["kernel"]]),
    )
    covariance = np.linalg.inv(belief.precision.dense(belief.mean))
    variance = np.einsum("ni,ij,nj->n", features, covariance, features)
    expected = jax.nn.sigmoid(jnp.asarray(features @ weights / np.sqrt(1 + np.pi / 8 * variance)))
    assert pred.mean.shape == (5, 4, 6)
    np.testing.assert_allclose(pred.mean.reshape(120), expected, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::lamu.Unconverged")
def test_a_map_that_was_learned_here_is_predicted_without_a_covariance_of_its_outputs() -> None:
    function, head = HEADS["pixels"]
    network = Trained(function, {"trunk": TRUNK, "head": head}, head="head/*")
    model = lamu.Model(network, PerPosition(Categorical(3), (4, 6)), lamu.priors.Normal(1.3))
    assert lamu.fit(model, (IMAGES, CLASSES), last_layer(), epochs=1).posterior.rule == LinearisedMarginal()


@pytest.mark.filterwarnings("ignore::lamu.Unconverged")
def test_a_map_of_numbers_has_the_variances_of_its_pixels() -> None:
    """A linear model of every step, by hand: the noise and the variance of the belief, and the density a row."""
    steps = lambda theta, x: (x @ theta["kernel"]).reshape(len(x), -1)
    x, y = IMAGES[:, 0], rng.normal(size=(5, 6))
    model = lamu.Model(
        Trained(steps, {"kernel": normal(2, 1)}), PerPosition(Gaussian(0.5), (6,)), lamu.priors.Normal(2.0)
    )
    pred = lamu.fit(model, (x, y), last_layer(), epochs=1).posterior.predict(x)
    flat = x.reshape(30, 2)
    covariance = np.linalg.inv(4.0 * flat.T @ flat + np.eye(2) / 4.0)
    mean = (flat @ covariance @ (4.0 * flat.T @ y.ravel())).reshape(5, 6)
    variance = 0.25 + np.einsum("ni,ij,nj->n", flat, covariance, flat).reshape(5, 6)
    np.testing.assert_allclose(pred.variance, variance, rtol=1e-9)
    np.testing.assert_allclose(pred.mean, mean, atol=0.05)  # the mode, up to a residual of .05 deviations
    expected = -0.5 * ((y - np.asarray(pred.mean)) ** 2 / variance + np.log(2 * np.pi * variance)).sum(1)
    np.testing.assert_allclose(pred.log_prob(y), expected, rtol=1e-9)


def test_a_head_whose_outputs_are_not_position_by_position_is_not_read() -> None:
    classes_first = lambda w, x: (x @ w["kernel"]).transpose(2, 0, 1).reshape(-1)
    pooled = lambda w, x: (x @ w["kernel"]).mean(0).reshape(-1)
    twice = lambda w, x: jnp.tanh(x @ w["kernel"]).reshape(-1)
    rows = jnp.asarray(IMAGES)
    for function, positions in ((classes_first, 24), (pooled, 6), (twice, 24)):
        assert features(function, {"kernel": jnp.ones((2, 3))}, rows, positions) is None


def test_the_u_net_of_the_library_is_read() -> None:
    network = UNet((2, 3))
    params, _ = network.init(jax.random.key(0), jnp.asarray(IMAGES), 4 * 6 * 3)
    head = params["layers"][0]
    of_row = lambda head, x: network.apply({**params, "layers": [head]}, {}, x[None], None, False)[0][0]
    read: Any = features(of_row, head, jnp.asarray(IMAGES), 24)
    assert read.features.shape == (5 * 24, 3)


def test_the_outputs_of_a_gaussian_at_every_step() -> None:
    """Blocks of an output each, for targets that are numbers: the sums written out."""
    steps = lambda theta, x: (x @ theta["kernel"]).reshape(len(x), -1)
    network = Trained(steps, {"kernel": normal(2, 1)})
    x, y = IMAGES[:, 0], rng.normal(size=(5, 6))
    model = lamu.Model(network, PerPosition(Gaussian(0.5), (6,)), lamu.priors.Normal(1.0))
    params, _ = model.init(jax.random.key(0), Batch.of(jnp.asarray(x), jnp.asarray(y)))
    batch = Batch.of(jnp.asarray(x), jnp.asarray(y))
    objective, key = Objective(model, 5.0), jax.random.key(0)
    sums, f, pull = batch_curvature(OutputEigen, GaussNewton(), objective, params, batch, key)
    flat = x.reshape(30, 2)
    expected = 4.0 * flat.T @ flat / 5
    found = sums.finish(5.0)
    np.testing.assert_allclose(found.dense(params["network"]), expected, rtol=1e-9)
    slope = normal(5, 6)
    np.testing.assert_allclose(f.reshape(30), flat @ np.asarray(params["network"]["kernel"])[:, 0], rtol=1e-9)
    np.testing.assert_allclose(pull(jnp.asarray(slope))["kernel"][:, 0], flat.T @ slope.reshape(30), rtol=1e-9)


@pytest.mark.parametrize("rule", [Probit(temperature=1.7), LaplaceBridge(base=LinearisedMarginal()), LaplaceBridge()])
@pytest.mark.filterwarnings("ignore::lamu.Unconverged")
def test_classes_of_pixels_are_predicted_as_rows_of_their_own(rule: Any) -> None:
    """The network of one pixel, given the same belief about its head, at every pixel of the images."""
    posterior = posterior_of("pixels", Dense, rule)
    pred = posterior.predict(IMAGES)
    assert isinstance(posterior.rule, type(rule))
    assert isinstance(pred, AtPositions)
    function, head = HEADS["pixels"]
    network = Trained(function, {"trunk": TRUNK, "head": head}, head="head/*")
    model = lamu.Model(network, Categorical(3), lamu.priors.Normal(1.3))
    params, _ = model.init(jax.random.key(0), Batch.of(jnp.asarray(IMAGES[:, :1, :1]), jnp.asarray(CLASSES[:, 0, 0])))
    one = replace(posterior, model=model.freeze(params, "trunk"))
    alone = one.predict(IMAGES.reshape(120, 1, 1, 2))
    np.testing.assert_allclose(pred.mean.reshape(120, 3), alone.mean, rtol=1e-9)
    np.testing.assert_allclose(pred.variance.reshape(120, 3), alone.variance, rtol=1e-9)
    np.testing.assert_allclose(pred.aleatoric.reshape(120), alone.aleatoric, rtol=1e-9)
    np.testing.assert_allclose(pred.epistemic.reshape(120), alone.epistemic, rtol=1e-7, atol=1e-12)
    expected = alone.log_prob(CLASSES.reshape(120)).reshape(5, 24).sum(1)
    np.testing.assert_allclose(pred.log_prob(CLASSES), expected, rtol=1e-9)
    drawn = pred.sample(jax.random.key(1), 3)
    np.testing.assert_array_equal(drawn.reshape(3, 120), alone.sample(jax.random.key(1), 3))
    last = posterior.predict(IMAGES[3:]).sample(jax.random.key(1), 3, first=3)
    np.testing.assert_array_equal(last, drawn[:, 3:])
    assert lamu.scores.nll(pred, CLASSES) > 0


@pytest.mark.filterwarnings("ignore::lamu.Unconverged", "ignore:the prior's scale")
def test_pixels_that_were_not_seen_choose_a_temperature() -> None:
    """Logits ten times as large as those that the classes were drawn from: the temperature takes that back."""
    function, head = HEADS["pixels"]
    images = rng.normal(size=(40, 4, 6, 2))
    logits = jnp.asarray(function({"trunk": TRUNK, "head": head}, jnp.asarray(images)))
    classes = np.asarray(jax.random.categorical(jax.random.key(0), logits.reshape(40, 4, 6, 3)))
    steep = {"trunk": TRUNK, "head": {name: 10.0 * leaf for name, leaf in head.items()}}
    model = lamu.Model(Trained(function, steep, head="head/*"), PerPosition(Categorical(3), (4, 6)), LearnedNormal())
    data, kept = (images[:20], classes[:20]), (images[20:], classes[20:])
    posterior = lamu.fit(model, data, last_layer(), epochs=0, validation=kept).posterior
    assert isinstance(posterior.rule, Probit)
    assert 5.0 < float(posterior.rule.temperature) < 15.0
    point = float(jax.nn.log_softmax(10.0 * logits[20:].reshape(-1, 3))[np.arange(480), classes[20:].ravel()].mean())
    assert lamu.scores.nll(posterior.predict(images[20:]), classes[20:]) < -24 * point - 10
