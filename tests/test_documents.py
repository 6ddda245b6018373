"""Documents of many lengths: blocks change what a sweep costs, and not what it finds."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, logsumexp

import lamu
from lamu import graphs
from lamu.families import Dirichlet
from lamu.graphs.reading import over_rows

RANDOM = np.random.default_rng(3)
V, T, DOCUMENTS, SWEEPS, SHARE, WORD = 40, 4, 150, 7, 0.3, 0.2
LENGTHS = RANDOM.integers(1, 25, DOCUMENTS)
IDS = np.zeros((DOCUMENTS, 24), np.int32)
COUNTS = np.zeros((DOCUMENTS, 24), np.int32)
for _row, _length in enumerate(LENGTHS):
    IDS[_row, :_length] = RANDOM.choice(V, _length, replace=False)
    COUNTS[_row, :_length] = RANDOM.integers(1, 5, _length)
GRAPH = lamu.Graph(
    graphs.models.Topics(T, V, share=SHARE, word=WORD).sites, local={"share": graphs.Coordinate(SWEEPS, tolerance=0.0)}
)


def by_the_book(log_topic: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Blei, Ng & Jordan (2003), equations 6 and 7, a document after the other: their shares, and the words' topics."""
    shares, topic = np.zeros((DOCUMENTS, T)), np.full((T, V), WORD)
    for row, length in enumerate(LENGTHS):
        ids, counts, gamma = IDS[row, :length], COUNTS[row, :length], np.full(T, SHARE)
        for sweep in range(SWEEPS + 1):
            log = (digamma(gamma) - digamma(gamma.sum()))[:, None] + log_topic[:, ids]
            phi = counts * np.exp(log - logsumexp(log, axis=0))
            if sweep < SWEEPS:
                gamma = SHARE + phi.sum(axis=1)
        np.add.at(topic.T, ids, phi.T)
        shares[row] = gamma
    return shares, topic


@pytest.mark.parametrize("temperature", [pytest.param(1.0, marks=pytest.mark.stress), 2.0])
def test_a_sweep_in_blocks_is_that_of_the_book(temperature: float) -> None:
    belief = Dirichlet(jnp.asarray(RANDOM.gamma(1.0, 1.0, (T, V))))
    statistics = GRAPH.moments({"topic": belief})
    batch = GRAPH.read({"words": (IDS, COUNTS)}).full()
    latents = jax.jit(lambda s: GRAPH.row_latents(s, batch.y, temperature))(statistics)
    slope = jax.jit(jax.grad(lambda s: jnp.sum(GRAPH.row_bounds(s, batch, temperature)) + GRAPH.shared_log_joint(s)))(
        statistics
    )
    if temperature == 1.0:
        shares, topic = by_the_book(np.asarray(statistics["topic"].log))
        np.testing.assert_allclose(latents["share"].log + 1.0, shares, rtol=1e-9)
        np.testing.assert_allclose(slope["topic"].log + 1.0, topic, rtol=1e-9, atol=1e-9)
    else:  # each document for itself has no blocks
        one = [
            GRAPH.row_latents(statistics, jax.tree.map(lambda leaf, r=r: leaf[r : r + 1], batch.y), 2.0)
            for r in (0, 99)
        ]
        np.testing.assert_allclose(
            latents["share"].log[jnp.array([0, 99])], [o["share"].log[0] for o in one], rtol=1e-9
        )


def test_blocks_of_rows_come_back_in_their_order() -> None:
    data = {"words.ids": jnp.asarray(IDS), "words.counts": jnp.asarray(COUNTS), "y": jnp.arange(DOCUMENTS)}
    total = lambda row: (jnp.sum(row["words.counts"] * (1 + row["words.ids"])), row["y"])
    sums, places = jax.jit(lambda d: over_rows(total, d))(data)
    np.testing.assert_array_equal(sums, np.sum(COUNTS * (1 + IDS), axis=1))
    np.testing.assert_array_equal(places, np.arange(DOCUMENTS))
