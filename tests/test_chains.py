"""Chains beside what they replace: a Kalman filter and RTS smoother, and the sum over all sequences, in NumPy."""

from __future__ import annotations

import itertools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from lamu.families import GaussianChain, MarkovChain, NaturalParameters, ParallelGaussianChain, ParallelMarkovChain
from tests.for_each import for_each

T, D, SEEN = 40, 2, 3
RNG = np.random.default_rng(0)
TURN = np.array([[0.9, 0.3], [-0.2, 0.8]])
STEP = np.array([[0.5, 0.1], [0.1, 0.3]])  # the covariance of a step
FIRST = np.array([[2.0, -0.3], [-0.3, 1.0]])  # and of the first state
START = np.array([0.5, -1.0])
C = RNG.normal(size=(SEEN, D))
NOISE = np.diag([0.3, 0.5, 0.8])


def series(missing: float) -> np.ndarray:
    """Rows that the model makes, a share of the entries NaN."""
    rng = np.random.default_rng(1)
    x, rows = START + np.linalg.cholesky(FIRST) @ rng.normal(size=D), []
    for _ in range(T):
        rows.append(C @ x + np.sqrt(np.diag(NOISE)) * rng.normal(size=SEEN))
        x = TURN @ x + np.linalg.cholesky(STEP) @ rng.normal(size=D)
    return np.where(rng.random((T, SEEN)) < missing, np.nan, np.array(rows))


def smoother(y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """The textbook's: filter forward with gains, then Rauch, Tung and Striebel's pass back."""
    m, P, log_likelihood = START, FIRST, 0.0
    predicted, filtered = [], []
    for t in range(len(y)):
        if t:
            m, P = TURN @ m, TURN @ P @ TURN.T + STEP
        predicted.append((m, P))
        seen = ~np.isnan(y[t])
        if seen.any():
            H, R = C[seen], NOISE[np.ix_(seen, seen)]
            S, away = H @ P @ H.T + R, y[t, seen] - H @ m
            gain = P @ H.T @ np.linalg.inv(S)
            log_likelihood -= (away @ np.linalg.solve(S, away) + np.linalg.slogdet(2 * np.pi * S)[1]) / 2
            m, P = m + gain @ away, P - gain @ S @ gain.T
        filtered.append((m, P))
    means, covariances, crosses = [m], [P], []
    for t in range(len(y) - 2, -1, -1):
        (f, F), (p, Q) = filtered[t], predicted[t + 1]
        G = F @ TURN.T @ np.linalg.inv(Q)
        crosses.append(G @ covariances[-1])
        means.append(f + G @ (means[-1] - p))
        covariances.append(F + G @ (covariances[-1] - Q) @ G.T)
    return np.array(means[::-1]), np.array(covariances[::-1]), np.array(crosses[::-1]), log_likelihood


def prior(cls: type[GaussianChain] = GaussianChain, steps: int = T) -> GaussianChain:
    return cls.homogeneous(steps, START, np.linalg.inv(FIRST), TURN, np.linalg.inv(STEP))


def sites(y: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """What the observations add to λ, nothing where they are missing, and to the log likelihood."""
    seen, weight = ~np.isnan(y), 1 / np.diag(NOISE)
    known = np.where(seen, y, 0.0)
    linear = known @ (weight[:, None] * C)
    diagonal = -np.einsum("tk,k,ki,kj->tij", seen, weight, C, C) / 2
    constant = -np.sum(np.where(seen, weight * known**2 + np.log(2 * np.pi / weight), 0.0)) / 2
    return linear, diagonal, constant


@jax.jit
def smooth(chain: GaussianChain, to_linear: jax.Array, to_diagonal: jax.Array) -> tuple:
    """What is added to the log partition function, and the posterior's μ, means and covariances."""
    linear, diagonal, coupling = chain.natural().values
    posterior = NaturalParameters((linear + to_linear, diagonal + to_diagonal, coupling), None, type(chain))
    belief, normaliser = posterior.family(), posterior.log_partition() - chain.log_partition()
    return normaliser, posterior.expectation().values, belief.mean, belief.covariance


@pytest.mark.sampled
@pytest.mark.parametrize("cls", [GaussianChain, ParallelGaussianChain])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_chain_is_the_kalman_smoother(cls: type[GaussianChain], missing: float) -> None:
    y = series(missing)
    to_linear, to_diagonal, constant = sites(y)
    means, covariances, crosses, log_likelihood = smoother(y)
    normaliser, mu, mean, covariance = smooth(prior(cls), to_linear, to_diagonal)
    np.testing.assert_allclose(normaliser + constant, log_likelihood, atol=1e-8)
    outer = lambda a, b: np.einsum("ti,tj->tij", a, b)
    np.testing.assert_allclose(mu[0], means, atol=1e-8)
    np.testing.assert_allclose(mu[1] - outer(mu[0], mu[0]), covariances, atol=1e-8)
    np.testing.assert_allclose(mu[2] - outer(mu[0][:-1], mu[0][1:]), crosses, atol=1e-8)
    np.testing.assert_allclose(mean, means, atol=1e-8)
    np.testing.assert_allclose(covariance, covariances, atol=1e-8)


@jax.jit
def questions(q: GaussianChain | MarkovChain, p: GaussianChain | MarkovChain, x: jax.Array) -> tuple:
    mu, again = q.expectation(), q.natural().family()
    values = q.entropy(), q.log_partition(), q.kl(p), q.log_prob(x), mu.family().log_prob(x), again.entropy()
    return values, mu.values, q.sample(jax.random.key(0))


@pytest.mark.parametrize("family", ["gaussian", "markov"])
def test_padding_counts_for_nothing(family: str) -> None:
    """A batch of a series of three times and one of five, whatever stands in the padding."""
    rng = np.random.default_rng(2)
    if family == "gaussian":
        make = lambda t: GaussianChain(rng.normal(size=(t, D)), rng.normal(size=(t - 1, D, D)), np.stack([FIRST] * t))
        rows = lambda t: rng.normal(size=(t, D))
    else:
        make = lambda t: MarkovChain(rng.normal(size=3), rng.normal(size=(t - 1, 3, 3)))
        rows = lambda t: np.eye(3)[rng.integers(3, size=t)]
    long, short, others, x = (make(5), make(3), (make(5), make(3)), (rows(5), rows(3)))

    def pair(first: GaussianChain | MarkovChain, second: GaussianChain | MarkovChain) -> GaussianChain | MarkovChain:
        filled = jax.tree.map(lambda a, b: a.at[tuple(map(slice, b.shape))].set(b), first, second)
        both = jax.tree.map(lambda a, b: jnp.stack([a, b]), first, filled)
        fields = {name: getattr(both, name) for name in type(first).domains}
        return type(first)(**fields, length=jnp.array([5, 3]))

    batch, other = pair(long, short), pair(*others)
    padded = jnp.stack([x[0], np.concatenate([x[1], np.zeros((2, x[1].shape[1]))])])
    values, mu, draw = questions(batch, other, padded)
    one, two = (questions(q, p, z) for q, p, z in zip((long, short), others, map(jnp.asarray, x), strict=True))
    for a, b, c in zip(values, one[0], two[0], strict=True):
        np.testing.assert_allclose(a, b + c, rtol=1e-8)
    for part, a, b in zip(mu, one[1], two[1], strict=True):
        np.testing.assert_allclose(part[0], a, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(part[1][: len(b)], b, rtol=1e-8, atol=1e-10)
        np.testing.assert_array_equal(part[1][len(b) :], 0.0)
    assert np.any(draw[1, :3])
    assert not np.any(draw[1, 3:])


@pytest.mark.parametrize("cls", [MarkovChain, ParallelMarkovChain])
def test_markov_chain_is_the_sum_over_all_sequences(cls: type[MarkovChain]) -> None:
    """A hidden Markov model of three states and six rows with a missing one: evidence, states and pairs to 1e-10."""
    steps, K = 6, 3
    initial, transition = RNG.dirichlet(np.ones(K)), RNG.dirichlet(np.ones(K), size=K)
    evidence = np.log(RNG.random((steps, K)))
    evidence[2] = 0.0
    chain = cls.homogeneous(steps, initial, transition)

    @jax.jit
    def answers(added: jax.Array) -> tuple:
        single, pair = chain.natural().values
        posterior = chain.with_natural((single + added, pair))
        normaliser = posterior.log_partition() - chain.log_partition()
        return normaliser, posterior.mean, posterior.expectation().values, posterior.entropy()

    normaliser, mean, mu, entropy = answers(evidence[:, :-1] - evidence[:, -1:])
    paths = np.array(list(itertools.product(range(K), repeat=steps)))
    score = np.log(initial)[paths[:, 0]] + sum(
        np.log(transition)[paths[:, t], paths[:, t + 1]] for t in range(steps - 1)
    )
    score += sum(evidence[t, paths[:, t]] for t in range(steps))
    log_likelihood = special.logsumexp(score)
    p = np.exp(score - log_likelihood)
    states = np.array([[p @ (paths[:, t] == k) for k in range(K)] for t in range(steps)])
    both = np.array(
        [[[p @ ((paths[:, t] == j) & (paths[:, t + 1] == k)) for k in range(2)] for j in range(2)] for t in range(5)]
    )
    np.testing.assert_allclose(normaliser + evidence[:, -1].sum(), log_likelihood, atol=1e-10)
    np.testing.assert_allclose(mean, states, atol=1e-10)
    np.testing.assert_allclose(mu[0], states[:, :-1], atol=1e-10)
    np.testing.assert_allclose(mu[1], both, atol=1e-10)
    np.testing.assert_allclose(entropy, -p @ np.log(p), atol=1e-10)


@for_each(
    "make, words",
    [
        (lambda: GaussianChain(jnp.zeros((3, 2)), jnp.zeros((3, 2, 2)), jnp.eye(2)), r"\(3, 2\), \(3, 2, 2\)"),
        (
            lambda: GaussianChain(jnp.zeros((1, 1)), jnp.zeros((0, 1, 1)), -jnp.ones((1, 1, 1))),
            "least eigenvalue is -1",
        ),
        (lambda: GaussianChain(jnp.zeros((1, 1)), jnp.zeros((0, 1, 1)), jnp.ones((1, 1, 1)), length=2), "length 2"),
        (lambda: MarkovChain(jnp.zeros(3), jnp.zeros((4, 2, 2))), r"3 categories .* \(2, 2\)"),
        (
            lambda: MarkovChain(jnp.zeros(3), jnp.zeros((4, 3, 3)), length=jnp.array(0)),
            "length 0 is not a whole number",
        ),
    ],
)
def test_what_is_no_chain_is_refused(make, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_a_single_time_is_the_first_vector() -> None:
    means = jax.jit(lambda chain: (chain.natural().family().mean[0], chain.expectation().values[0][0]))
    for cls in (GaussianChain, ParallelGaussianChain):
        for mean in means(cls(START[None], np.zeros((0, D, D)), FIRST[None])):
            np.testing.assert_allclose(mean, START, rtol=1e-12)
    asked = jax.jit(lambda one: (one.entropy(), one.mean, one.sample(jax.random.key(0))))
    for alone in (MarkovChain, ParallelMarkovChain):
        entropy, mean, draw = asked(alone(np.zeros(2), np.zeros((0, 2, 2))))
        np.testing.assert_allclose(entropy, np.log(2), rtol=1e-12)
        np.testing.assert_allclose(mean, [[0.5, 0.5]], rtol=1e-12)
        assert draw.shape == (1, 2)


@pytest.mark.stress
def test_fifty_thousand_steps_take_less_than_three_seconds() -> None:
    """The smoother of a series in the plane; compilation apart."""
    chain = prior(steps=50_000)
    linear, diagonal, coupling = chain.natural().values
    values = (linear + 1.0, diagonal - 0.5 * jnp.eye(D)[None], coupling)
    smooth = jax.jit(lambda values: NaturalParameters(values, None, GaussianChain).expectation().values)
    jax.block_until_ready(smooth(values))
    start = time.perf_counter()
    jax.block_until_ready(smooth(values))
    assert time.perf_counter() - start < 3.0
