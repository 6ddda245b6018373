"""Curvature is read from PyTorch's layers as from Flax's, and posteriors are those of the same built-in network."""

from __future__ import annotations

import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import lamu
from lamu.algorithms import adam, kfac, laplace, last_layer, swag, vogn
from lamu.networks import MLP, Torch
from lamu.objective.curvature.reader import squares_and_gradient
from lamu.operators import DenseBlocks, Diagonal, KroneckerFactored, OutputEigen
from lamu.predictives import Linearised, LinearisedMarginal
from tests.modules_of_torch import MODULES

RNG = np.random.default_rng(0)
X = RNG.normal(1.0, 2.0, size=(30, 6)).astype(np.float32)
Y = np.arange(30) % 3
# Linear layers, attention, convolutions and recurrence; the last ones with the long tests.
READ = (
    "Linear",
    "UNet",
    *(pytest.param(name, marks=pytest.mark.stress) for name in ("Transformer", "ConvNet", "LSTM", "GRU")),
)


def network_and_rows(name: str) -> tuple[Torch, np.ndarray]:
    torch.manual_seed(0)
    if name == "Linear":
        return Torch(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), head="2/*"), X[:5]
    make, shape, words = MODULES[name]
    x = RNG.integers(1, 12, size=(5, *shape)) if words else RNG.normal(size=(5, *shape)).astype(np.float32)
    return Torch(make()), x


@pytest.mark.parametrize("name", READ)
def test_every_leaf_is_read_exactly(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Sums of squared gradients of single rows beside the rows' own; none by its own pass."""
    network, x = network_and_rows(name)
    params, state = network.init(jax.random.key(0), jnp.asarray(x), 3)
    y, weights = jnp.arange(5) % 3, jnp.array([1.0, 0.5, 2.0, 0.25, 1.0])
    weights = weights.astype(jax.tree.leaves(params)[0].dtype)

    def loss(params: Any, row: Any) -> Any:
        f, _ = network.apply(params, state, row[0][None], None, True)
        return -jax.nn.log_softmax(f[0])[row[1]]

    rows = (jnp.asarray(x), y)
    with caplog.at_level(logging.INFO, "lamu"):
        found = jax.jit(squares_and_gradient, static_argnums=0)(loss, params, rows, weights)
    assert [each.getMessage() for each in caplog.records if each.name.startswith("lamu")] == []
    gradients = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(params, rows)
    squares = jax.tree.map(lambda leaf: np.tensordot(weights, np.asarray(leaf) ** 2, 1), gradients)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-5), found[2], squares)


@pytest.fixture(scope="module")
def twins() -> tuple[Any, Any]:
    """A module of PyTorch's and the built-in network with its weights, as models."""
    network, _ = network_and_rows("Linear")
    params, _ = network.init(jax.random.key(0), jnp.asarray(X), 3)
    layers = {i: {"kernel": params[str(2 * i)]["weight"].T, "bias": params[str(2 * i)]["bias"]} for i in (0, 1)}
    built_in = lamu.Model(MLP((8,), "tanh"), lamu.likelihoods.Categorical(3))
    theirs = lamu.Model(network, lamu.likelihoods.Categorical(3))
    start = {"network": {"layers": layers}, "likelihood": {}}
    return theirs.standardised(X, Y), built_in.standardised(X, Y).starting_at(start)


def test_last_layer_is_that_of_the_built_in_network(twins: tuple[Any, Any]) -> None:
    """The same function of the same weights: the same predictions, their spread included."""
    theirs, ours = (lamu.fit(model, (X, Y), last_layer(), epochs=0).posterior.predict(X) for model in twins)
    np.testing.assert_allclose(theirs.mean, ours.mean, atol=2e-4)
    np.testing.assert_allclose(theirs.epistemic, ours.epistemic, atol=2e-4)
    assert float(np.max(ours.epistemic)) > 0.01  # else the two agree about nothing


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(laplace(structure=KroneckerFactored()), id="all"),
        pytest.param(last_layer(structure=KroneckerFactored()), id="head"),
        pytest.param(last_layer(structure=OutputEigen), id="head-eigen", marks=pytest.mark.stress),
        pytest.param(last_layer(structure=DenseBlocks), id="head-blocks", marks=pytest.mark.stress),
        pytest.param(last_layer(structure=Diagonal), id="head-diagonal", marks=pytest.mark.stress),
    ],
)
def test_posteriors_of_layers_are_those_of_the_built_in_network(twins: tuple[Any, Any], algorithm: Any) -> None:
    """A kernel that is stored `[out, in]` has its bias for an input as one that is stored `[in, out]`."""
    theirs, ours = posteriors = [lamu.fit(model, (X, Y), algorithm, epochs=0).posterior for model in twins]
    beliefs: list[Any] = [each.belief for each in posteriors]
    precisions = [each.factors["network"].precision for each in beliefs]
    means = [each.mean["network"] for each in (theirs, ours)]
    np.testing.assert_allclose(precisions[0].logdet(means[0]), precisions[1].logdet(means[1]), rtol=1e-5)
    variances = [precision.variance(mean) for precision, mean in zip(precisions, means, strict=True)]
    for theirs_of, ours_of in zip(_kernels(variances[0]), _kernels(variances[1]), strict=True):
        np.testing.assert_allclose(theirs_of.T, ours_of, rtol=1e-4)
    pred, own = (each.with_rule(LinearisedMarginal()).predict(X) for each in (theirs, ours))
    np.testing.assert_allclose(pred.mean, own.mean, atol=1e-5)
    np.testing.assert_allclose(pred.epistemic, own.epistemic, atol=1e-5)
    parts = lambda each: (each.model, each.belief, each.network_state, 1, jax.random.key(0))
    pred, own = (Linearised().outputs(*parts(each)).normal(jnp.asarray(X), None) for each in (theirs, ours))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), pred, own)


def _kernels(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree) if leaf.ndim == 2]


@pytest.mark.stress
@pytest.mark.parametrize("algorithm", [pytest.param(kfac(), id="kfac"), pytest.param(swag(adam(0.01)), id="swag")])
def test_steps_are_those_of_the_built_in_network(twins: tuple[Any, Any], algorithm: Any) -> None:
    theirs, ours = (lamu.fit(model, (X, Y), algorithm, epochs=4) for model in twins)
    np.testing.assert_allclose(theirs.history["loss"], ours.history["loss"], rtol=1e-3)


@pytest.mark.stress
def test_vogn_learns_a_module(twins: tuple[Any, Any]) -> None:
    """Its noise is drawn by leaf, so that no twin takes the same path."""
    fit = lamu.fit(twins[0], (X, Y), vogn(), epochs=30)
    assert fit.history["loss"][-1] < fit.history["loss"][0]
    assert np.isfinite(np.asarray(fit.posterior.predict(X).mean)).all()


def test_predictions_are_tensors_in_one_line(twins: tuple[Any, Any]) -> None:
    """A copy, since JAX's arrays may not be written to, which PyTorch warns of."""
    posterior = lamu.fit(twins[0], (X, Y), last_layer(), epochs=0).posterior
    pred = posterior.predict(torch.as_tensor(X).numpy())
    tensor = torch.tensor(np.asarray(pred.mean))
    assert isinstance(tensor, torch.Tensor)
    assert tensor.shape == (30, 3)
    np.testing.assert_array_equal(tensor.numpy(), np.asarray(pred.mean))
