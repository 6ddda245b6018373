"""Dropout layers of one network draw independently, in every adapter, and so do its rows."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import lamu
from lamu.networks import NNX, Equinox, Linen, Torch

ROWS = 4000


class OfLinen(linen.Module):
    @linen.compact
    def __call__(self, x: Any, deterministic: bool = False) -> Any:
        for _ in range(2):
            x = linen.Dropout(0.5, deterministic=deterministic)(x)
        return linen.Dense(1)(x)


class OfNNX(nnx.Module):
    def __init__(self, rngs: Any) -> None:
        self.first, self.second = (nnx.Dropout(0.5, rngs=rngs) for _ in range(2))
        self.last = nnx.Linear(1, 1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.last(self.second(self.first(x)))


def of_equinox(key: Any) -> Any:
    return eqx.nn.Sequential([eqx.nn.Dropout(0.5), eqx.nn.Dropout(0.5), eqx.nn.Linear(1, 1, key=key)])


NETWORKS = {
    "Torch": lambda: Torch(torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Dropout(0.5), torch.nn.Linear(1, 1))),
    "Linen": lambda: Linen(OfLinen()),
    "NNX": lambda: NNX(lambda rngs: OfNNX(rngs)),
    "Equinox": lambda: Equinox(of_equinox),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_dropout_layer_draws_its_own_units(name: str) -> None:
    """A quarter passes two layers that drop a half; by one key for both it would be a half."""
    network, x = NETWORKS[name](), jnp.ones((ROWS, 1), jnp.float32)
    params, state = network.init(jax.random.key(0), x, 1)
    params = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1.0 if leaf.ndim == 2 else 0.0), params)
    passed = np.asarray(network.apply(params, state, x, jax.random.key(1), False)[0])[:, 0] > 0
    assert abs(passed.mean() - 0.25) < 0.034  # five standard errors
    assert abs(np.mean(passed[1:] & passed[:-1]) - 0.0625) < 0.02  # rows beside each other


def test_the_layers_of_a_built_in_network_draw_their_own_units() -> None:
    network = lamu.networks.MLP((1, 1), dropout=lamu.networks.Dropout(0.5))
    x = jnp.ones((ROWS, 1))
    params, state = network.init(jax.random.key(0), x, 1)
    params = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1.0 if leaf.ndim == 2 else 0.0), params)
    passed = np.asarray(network.apply(params, state, x, jax.random.key(1), False)[0])[:, 0] != 0
    assert abs(passed.mean() - 0.25) < 0.034


def test_rows_of_every_block_have_keys_of_their_own() -> None:
    """Blocks of rows change nothing: a row's key is that of its number, and not that of its place in a block."""
    graph = lamu.latent.models.VAE(1, 2, lamu.networks.Linear(), lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
    rows = graph.rows({"y": jnp.ones((12, 2))}).full()
    params = graph.init(jax.random.key(0), rows)[0]
    belief = lamu.families.Point(params)
    weights = lambda: np.asarray(lamu.graphs.queries.row_log_weights(graph, belief, rows, 2, jax.random.key(1)))
    whole = weights()
    with lamu.memory.within("1KB"):
        blocks = weights()
    np.testing.assert_allclose(blocks, whole, rtol=1e-6)
    assert len(np.unique(whole[0].round(9))) == 12  # all rows are alike, and their draws are not


def test_a_topic_models_score_is_the_sum_over_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `sklearn.decomposition.LatentDirichletAllocation.score` has it."""
    model = lamu.sklearn.TopicModel(2)
    monkeypatch.setattr(lamu.sklearn.TopicModel, "_asked_words", lambda self, X: X)
    monkeypatch.setattr(lamu.sklearn.TopicModel, "_asked", lambda self, of: np.array([-1.0, -2.0, -4.5]))
    assert model.score(np.ones((3, 2))) == -7.5
