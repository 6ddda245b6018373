"""The generator of noise, tested as a generator must be: words, streams, and the normals made of them.

Every statistic has a known law under perfect randomness. Together about 4,000 z-scores are asked to stay inside six
standard errors, a false alarm in 130,000 runs; the seeds are fixed.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import lamu
from lamu import tree
from lamu.base import fast_random
from lamu.base.fast_random import bits, normal

SIZE = 2**20
SIX = 6.0


def words(seed: int, size: int = SIZE) -> np.ndarray:
    return np.asarray(bits(jax.random.key(seed), size))


def ones(array: np.ndarray) -> np.ndarray:
    """The 32 bits of every word, `[words, 32]`."""
    return np.unpackbits(array.view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")


def assert_fair(z: np.ndarray) -> None:
    assert np.max(np.abs(z)) < SIX, f"{np.max(np.abs(z)):.1f} standard errors"


def bits_are_fair(array: np.ndarray) -> None:
    """Each of the 32 bits is set half of the time."""
    assert_fair((ones(array).mean(axis=0) - 0.5) * 2 * np.sqrt(len(array)))


def bytes_are_uniform(array: np.ndarray) -> None:
    for place in range(4):
        counts = np.bincount(array.view(np.uint8).reshape(-1, 4)[:, place], minlength=256)
        chi = stats.chisquare(counts).statistic
        assert_fair((chi - 255) / np.sqrt(2 * 255))


def neighbours_are_independent(array: np.ndarray) -> None:
    """Correlation of words at lags 1 to 1,000, and of every pair of bits of successive words."""
    u = array.astype(np.float64) / 2**32 - 0.5
    spectrum = np.fft.rfft(u, 2 * len(u))
    correlation = np.fft.irfft(np.abs(spectrum) ** 2)[1:1001] / np.dot(u, u)
    assert_fair(correlation * np.sqrt(len(u)))
    signs = 2.0 * ones(array[: 2**16]) - 1.0
    assert_fair(signs[:-1].T @ signs[1:] / np.sqrt(len(signs) - 1))


def words_repeat_as_they_should(array: np.ndarray) -> None:
    """Pairs of equal words: a Poisson number, n²/2³³. A permutation of the counter would have none."""
    expected = len(array) * (len(array) - 1) / 2**33
    pairs = len(array) - len(np.unique(array))
    assert_fair(np.array((pairs - expected) / np.sqrt(expected)))


@pytest.mark.parametrize(
    "test", [bits_are_fair, bytes_are_uniform, neighbours_are_independent, words_repeat_as_they_should]
)
def test_words(test) -> None:
    for seed in (0, 12345):
        test(words(seed))


@pytest.mark.parametrize(
    ("test", "twin"),
    [
        (bits_are_fair, lambda: words(0) | np.uint32(4) * (np.arange(SIZE, dtype=np.uint32) % 50 == 0)),
        (bytes_are_uniform, lambda: words(0) % np.uint32(4_000_000_000)),
        (neighbours_are_independent, lambda: np.arange(SIZE, dtype=np.uint32) * np.uint32(2654435761)),
        (words_repeat_as_they_should, lambda: np.random.default_rng(0).permutation(SIZE).astype(np.uint32)),
    ],
)
def test_broken_words_are_seen(test, twin) -> None:
    with pytest.raises(AssertionError):
        test(twin())


def test_streams_of_neighbouring_keys_are_independent() -> None:
    """Split, folded and counted keys: no correlation between streams, word by word or one shifted by another."""
    base = jax.random.key(7)
    keys = [*jax.random.split(base, 4), *(jax.random.fold_in(base, i) for i in range(4, 8))]  # split i is fold_in i
    keys += [jax.random.key(seed) for seed in range(4)]
    streams = np.stack([np.asarray(bits(jax.random.clone(key), 2**16)) for key in keys]).astype(np.float64)
    streams = streams / 2**32 - 0.5
    n = streams.shape[1]
    spectra = np.fft.rfft(streams, axis=1)
    for i in range(len(keys)):
        for j in range(i):
            correlation = np.fft.irfft(spectra[i] * np.conj(spectra[j])) * 12 / np.sqrt(n)
            # 65,536 shifts of 66 pairs: the largest of 4.3 million normals passes 7 once in 90,000 runs.
            assert np.max(np.abs(correlation)) < 7.0


def test_a_flipped_bit_changes_half_of_the_bits() -> None:
    """Of the counter and of both words of the key, the avalanche that a hash must have."""
    key = np.array([0x243F6A88, 0x85A308D3], np.uint32)
    counter = jnp.arange(2**14, dtype=jnp.uint32) * jnp.uint32(977)
    base = ones(np.asarray(fast_random._hashed(jnp.asarray(key), counter)))
    for bit in range(32):
        flips = [fast_random._hashed(jnp.asarray(key), counter ^ jnp.uint32(1 << bit))]
        for word in range(2):
            changed = key.copy()
            changed[word] ^= np.uint32(1 << bit)
            flips.append(fast_random._hashed(jnp.asarray(changed), counter))
        for flipped in flips:
            rate = (ones(np.asarray(flipped)) != base).mean(axis=0)
            assert np.max(np.abs(rate - 0.5)) < 0.035, "at most 9 standard errors of a fair coin"


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_normals_are_normal(dtype) -> None:
    """Four moments, the whole distribution, and the tails."""
    for seed in range(2):
        z = np.asarray(normal(jax.random.key(seed), (SIZE,), dtype), np.float64)
        moments = [z.mean(), (z**2).mean() - 1, (z**3).mean(), (z**4).mean() - 3, (z**6).mean() - 15]
        assert_fair(np.array(moments) * np.sqrt(SIZE / np.array([1, 2, 15, 96, 10170])))
        assert stats.kstest(z, "norm").pvalue > 1e-6
        for far in (2.0, 3.0, 4.0, 4.5):
            for tail in (z > far, z < -far):
                expected = SIZE * stats.norm.sf(far)
                # A Poisson number; the exact tail, since the expected one is small far out.
                assert stats.poisson.cdf(tail.sum(), expected) > 1e-8
                assert stats.poisson.sf(tail.sum() - 1, expected) > 1e-8


def test_normals_are_the_quantiles_of_their_words() -> None:
    """Beside SciPy's quantile, at the smallest words too; symmetric, and finite at both ends."""
    for dtype, tolerance in ((jnp.float32, 1e-6), (jnp.float64, 1e-3)):  # float64 has finer words
        z = np.asarray(normal(jax.random.key(3), (1000,), dtype), np.float64)
        shifted = words(3, 1000).view(np.int32)
        u = ((shifted >> 8) + 0.5) / 2**23
        expected = stats.norm.ppf((1 + u) / 2)
        np.testing.assert_allclose(z, expected, rtol=tolerance, atol=tolerance)
    assert np.all(np.isfinite(normal(jax.random.key(1), (SIZE,), jnp.float32)))


def test_the_quantile_is_exact_to_the_last_digits_everywhere() -> None:
    """Every 97th of the possible words and the 20,000 largest, beside SciPy's tail functions."""
    places = np.concatenate([np.arange(0, 2**23, 97), 2**23 - 1 - np.arange(20_000)])
    x = ((places + 0.5) * 2.0**-23).astype(np.float32)
    exact = np.where(x > 0.5, special.erfcinv(1 - x.astype(np.float64)), special.erfinv(x.astype(np.float64)))
    found = np.asarray(jax.jit(fast_random._inverse_error_function)(jnp.asarray(x)), np.float64)
    np.testing.assert_allclose(found, exact, rtol=4e-7, atol=0)
    np.testing.assert_array_equal(found, -np.asarray(jax.jit(fast_random._inverse_error_function)(jnp.asarray(-x))))


def test_shape_dtype_and_index() -> None:
    key = jax.random.key(5)
    again = lambda shape, dtype=jnp.float32: normal(jax.random.clone(key), shape, dtype)
    assert again((2, 3)).shape == (2, 3)
    assert again(()).shape == ()
    assert again((0, 4)).shape == (0, 4)
    assert again((2,), jnp.bfloat16).dtype == jnp.bfloat16
    assert normal(jax.random.clone(key), (2,)).dtype == jnp.result_type(float)
    np.testing.assert_array_equal(again((6,)), again((3, 2)).ravel())
    np.testing.assert_array_equal(again((4,)), again((9,))[:4])
    mapped = jax.vmap(lambda k: normal(k, (5,)))(jax.random.split(jax.random.clone(key), 3))
    alone = [normal(k, (5,)) for k in jax.random.split(jax.random.clone(key), 3)]
    np.testing.assert_array_equal(mapped, np.stack(alone))


def test_keys_of_any_implementation() -> None:
    for implementation in ("threefry2x32", "rbg"):
        z = normal(jax.random.key(0, impl=implementation), (2**14,))
        assert abs(float(z.mean())) < 6 / 128


def test_too_many_words() -> None:
    with pytest.raises(ValueError, match="4294967296 words"):
        bits(jax.random.key(0), 2**32)


def test_leaves_of_a_tree_differ() -> None:
    drawn = tree.normal(jax.random.key(0), {"a": jnp.zeros(1000), "b": jnp.zeros(1000)})
    assert abs(float(jnp.mean(drawn["a"] * drawn["b"]))) < 6 / np.sqrt(1000)


@pytest.mark.parametrize("name", ["ivon", "vogn", "bayes_by_backprop"])
def test_a_draw_is_made_once_and_not_at_every_use_of_it(name) -> None:
    """Compilers fuse what is cheap into each of its uses: a bias's noise, into every row that the bias is added to."""
    with jax.enable_x64(False):
        model = lamu.Model(lamu.networks.MLP((8, 8)), lamu.likelihoods.Categorical(3))
        batch = lamu.data.Batch.of(jnp.zeros((32, 4)), jnp.zeros(32, jnp.int32))
        objective, algorithm = lamu.objective.Objective(model, 1000), getattr(lamu.algorithms, name)()

        def steps(state):
            body = lambda state, t: algorithm.step(jax.random.fold_in(jax.random.key(1), t), state, batch, objective)
            return jax.lax.scan(body, state, jnp.arange(5))

        state = algorithm.init(jax.random.key(0), objective, batch)
        program = jax.jit(steps).lower(state).compile().as_text()
    assert program.count("constant(1.50140") == 6, "the first constant of the quantile, once a leaf"
