"""Keys of rows that are drawn from a model with latents: one for every row, and another for what all rows share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu.graphs import Normal
from lamu.latent import generation
from lamu.record import record


def program(m: Any) -> None:
    mean = m.sample("mean", Normal(0.0, 1.0))
    with m.rows():
        m.sample("y", Normal(mean, 1.0))


GRAPH = lamu.Graph(program)


def apart(*keys: Any) -> bool:
    """Whether no key is there twice."""
    words = np.concatenate([np.asarray(each).reshape(-1, np.shape(each)[-1]) for each in keys])
    return len(np.unique(words, axis=0)) == len(words)


@record
class KeyOfDraw:
    """A belief whose draw is its key."""

    def sample(self, key: Any) -> Any:
        return jax.random.key_data(key)


def test_a_drawn_row_has_its_own_key_and_its_parameters_another(monkeypatch: Any) -> None:
    monkeypatch.setattr(lamu.Graph, "values_of", lambda self, theta: theta)
    monkeypatch.setattr(
        generation, "ancestral", lambda graph, theta, key: ({"theta": theta, "row": jax.random.key_data(key)}, None)
    )
    posterior = SimpleNamespace(model=GRAPH, belief=KeyOfDraw())
    drawn = generation.generate(posterior, 5, jax.random.key(3))
    assert apart(drawn["theta"], drawn["row"])


def test_a_reconstructed_row_has_its_own_key(monkeypatch: Any) -> None:
    posterior = lamu.fit(GRAPH, {"y": jnp.arange(4.0)}, lamu.algorithms.vmp(), steps=2).posterior
    monkeypatch.setattr(generation, "_mean", lambda site, here, key: jax.random.key_data(key))
    assert apart(generation.reconstruct(posterior, {"y": jnp.arange(4.0)}, jax.random.key(3))["y"])
