"""Bits back: what is pushed is popped, at the length that the model says."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.decomposition import PCA

import lamu
from lamu.families import Gaussian
from lamu.latent import ELBO, BitsBack, RowJoint, Stack
from lamu.operators import Diagonal

RANDOM = np.random.default_rng(0)


def random_words(n: int) -> list[int]:
    return np.random.default_rng(5).integers(0, 1 << 32, n).tolist()


def test_a_stack_gives_back_what_was_pushed() -> None:
    """Symbols of very different probabilities, and in between pops under other distributions."""
    tables = [
        np.concatenate([[0], np.sort(RANDOM.choice(np.arange(1, 4096), 5, replace=False)), [4096]]) for _ in range(50)
    ]
    symbols = [int(RANDOM.integers(0, 6)) for _ in tables]
    stack, before = Stack(random_words(3)), 0.0
    for table, symbol in zip(tables, symbols, strict=True):
        before += 12 - np.log2(table[symbol + 1] - table[symbol])
        stack.push(int(table[symbol]), int(table[symbol + 1] - table[symbol]), 12)
    assert stack.bits == pytest.approx(Stack(random_words(3)).bits + before, abs=1e-3)

    def interval(number: int, table: np.ndarray) -> tuple[int, int]:
        symbol = int(np.searchsorted(table, number, side="right")) - 1
        return int(table[symbol]), int(table[symbol + 1] - table[symbol])

    for table, symbol in list(zip(tables, symbols, strict=True))[::-1]:
        assert stack.pop(12, lambda number, table=table: interval(number, table))[0] == table[symbol]
    assert stack.words == random_words(3)
    assert stack.head == Stack([]).head


def test_popping_is_drawing() -> None:
    """A chi-squared test of 4,000 pops from random words at level 1e-4, the rate of false alarms; fixed words."""
    stack, edges = Stack(random_words(4000)), np.array([0, 1, 4, 16])
    counts = np.zeros(3)
    for _ in range(4000):
        start, _ = stack.pop(
            4,
            lambda n: (int(edges[s := int(np.searchsorted(edges, n, side="right")) - 1]), int(edges[s + 1] - edges[s])),
        )
        counts[list(edges).index(start)] += 1
    assert stats.chisquare(counts, 4000 * np.diff(edges) / 16).pvalue > 1e-4


def test_an_empty_stack_says_so() -> None:
    with pytest.raises(ValueError, match="start it with more random words"):
        Stack([]).pop(16, lambda number: (number, 1))
    with pytest.raises(ValueError, match="frequency 0 cannot be coded"):
        Stack([]).push(0, 0, 4)
    with pytest.raises(ValueError, match="bin_bits=20 is not between 1 and 16"):
        BitsBack(lambda y: (y, y), lambda z: z, latents=1, bin_bits=20)


@pytest.mark.stress
def test_digits_are_coded_at_the_bound() -> None:
    """A linear model of 300 binary digits: lossless, and within 1 % of its evidence lower bound; fixed words."""
    x, _ = lamu.data.load("digits")
    rows = (np.asarray(x) > 0.5 * np.asarray(x).max()).astype(int).reshape(len(x), -1)[:300]
    pca = PCA(8).fit(rows)
    weights = pca.components_ * np.sqrt(pca.explained_variance_)[:, None]
    spread = 0.25

    def log_odds(z):
        return 6.0 * (jnp.asarray(pca.mean_ - 0.5) + z @ jnp.asarray(weights))

    def mean(y):
        return (y - pca.mean_) @ weights.T @ np.linalg.inv(weights @ weights.T + 0.05 * np.eye(8))

    ones = jax.jit(lambda z: jax.nn.sigmoid(log_odds(z)))

    def probabilities(z):
        p = np.asarray(ones(z))
        return np.stack([1 - p, p], axis=-1)

    code = BitsBack(lambda y: (mean(y), np.full(8, spread)), probabilities, latents=8, bin_bits=10)
    words = random_words(200)
    stack = Stack(words)
    before = stack.bits
    code.encode(stack, rows)
    length = (stack.bits - before) * np.log(2) / len(rows)
    np.testing.assert_array_equal(code.decode(stack, len(rows)), rows)
    assert stack.words == words

    def bound(key, y, m):
        prior = Gaussian(jnp.zeros(8), Diagonal(jnp.ones(8)))
        likelihood = lambda z: -jnp.sum(jax.nn.softplus(jnp.where(y > 0, -1.0, 1.0) * log_odds(z)))
        return ELBO(200).of_row(key, RowJoint(prior, likelihood), Gaussian(m, Diagonal(jnp.full(8, spread**-2))))

    keys = jax.random.split(jax.random.key(0), len(rows))
    expected = -float(jnp.mean(jax.jit(jax.vmap(bound))(keys, jnp.asarray(rows), jnp.asarray(mean(rows)))))
    assert abs(length - expected) < 0.01 * expected


def test_a_symbol_that_the_model_lacks() -> None:
    code = BitsBack(lambda y: (np.zeros(1), np.ones(1)), lambda z: np.full((2, 2), 0.5), latents=1)
    with pytest.raises(ValueError, match="the symbol 2 is none of the model's 2"):
        code.encode(Stack(random_words(4)), np.array([[0, 2]]))
