"""Categories of a row that meet in a factor: their joint belief is enumerated, beside sums written out in NumPy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp
from scipy.stats import bernoulli, multivariate_normal, norm

import lamu
from lamu import graphs
from lamu.families import Beta, Dirichlet, MultivariateNormal

RNG = np.random.default_rng(4)
KNOWN = 1e10  # the precision of known numbers
SHARE, OTHER = np.array([0.3, 0.7]), np.array([0.2, 0.3, 0.5])
LEVEL, EFFECT = np.array([0.0, 3.0]), np.array([-2.0, 0.0, 4.0])
W = np.array([[[2.0, 0.0], [1.0, 1.0], [0.0, -1.0]], [[-1.0, 1.0], [0.0, 2.0], [1.0, 0.0]]])
CENTRE = np.array([[0.0, 0.0, 0.0], [3.0, -3.0, 1.0]])
CHANCE = np.array([[0.05, 0.8], [0.7, 0.95]])
MOVES = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.2, 0.8], [0.7, 0.3]]])


def known(m, name, value, plate):
    return m.sample(name, graphs.Normal(value, precision=KNOWN), plate=plate)


def additive(m):
    level, effect = known(m, "level", LEVEL, 2), known(m, "effect", EFFECT, 3)
    with m.rows():
        k, j = m.sample("k", graphs.Categorical(SHARE)), m.sample("j", graphs.Categorical(OTHER))
        m.sample("y", graphs.Normal(level[k] + effect[j], precision=1.0), plate=2)


def analysers(m):
    spread = jnp.broadcast_to(KNOWN * jnp.eye(2), (2, 3, 2, 2))
    loadings, centre = m.sample("W", MultivariateNormal(jnp.asarray(W), spread)), known(m, "centre", CENTRE, (2, 3))
    with m.rows():
        k = m.sample("k", graphs.Categorical(SHARE))
        x = m.sample("x", graphs.MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
        m.sample("y", graphs.Normal(loadings[k] @ x + centre[k], precision=4.0))


def causes(m):
    chance = m.sample("chance", Beta(1e9 * CHANCE, 1e9 * (1 - CHANCE)))
    with m.rows():
        a, b = m.sample("a", graphs.Categorical(SHARE)), m.sample("b", graphs.Categorical([0.9, 0.1]))
        m.sample("y", graphs.Bernoulli(chance[a, b]), plate=3)


def moving(m):
    move = m.sample("move", Dirichlet(1e8 * MOVES))
    level = known(m, "level", LEVEL, 2)
    with m.rows():
        k = m.sample("k", graphs.Categorical(SHARE))
        z = m.sample("z", graphs.Markov(4, [0.5, 0.5], move[k]))
        m.sample("y", graphs.Normal(level[z], precision=1.0))


def fitted(program, rows):
    return lamu.fit(lamu.Graph(program), rows, lamu.algorithms.vmp(restarts=1), steps=2).posterior


def mixed(log_joint, *values):
    """Returns log p, the weights of the last axis, and means of arrays over it."""
    total = logsumexp(log_joint, axis=-1)
    weights = np.exp(log_joint - total[:, None])
    return total, weights, *(np.einsum("nc,nc...->n...", weights, value) for value in values)


def test_two_categories_in_a_sum() -> None:
    y = RNG.normal(1.0, 4.0, (8, 2))
    y[0, 1], y[1] = np.nan, np.nan
    pairs = list(itertools.product(range(2), range(3)))
    mean = np.array([LEVEL[k] + EFFECT[j] for k, j in pairs])
    prior = np.log([SHARE[k] * OTHER[j] for k, j in pairs])
    terms = np.where(np.isnan(y)[..., None], 0.0, norm.logpdf(np.nan_to_num(y)[..., None], mean))
    every = np.broadcast_to(mean, (8, 6))
    total, weights, first, second = mixed(prior + terms.sum(1), every, every**2 + 1.0)
    posterior = fitted(additive, {"y": y})
    np.testing.assert_allclose(posterior.log_prob({"y": y}), total, atol=1e-3)
    local, told = posterior.local({"y": y}), posterior.predict({"y": y})
    np.testing.assert_allclose(local["k"].mean, weights.reshape(8, 2, 3).sum(2), atol=1e-5)
    np.testing.assert_allclose(local["j"].mean, weights.reshape(8, 2, 3).sum(1), atol=1e-5)
    np.testing.assert_allclose(told.mean, np.where(np.isnan(y), first[:, None], y), atol=1e-4)
    np.testing.assert_allclose(told.std, np.isnan(y) * np.sqrt(second - first**2)[:, None], atol=1e-4)
    draws = np.asarray(told.sample(jax.random.key(0), 2000))[:, 1]  # both entries missing have one pair of categories
    correlation = 1 - 1 / (second - first**2)[1]
    assert abs(np.corrcoef(draws.T)[0, 1] - correlation) < 0.05


def test_a_category_and_factors_below_it() -> None:
    """A mixture of factor analysers: scores and holes are mixtures of Gaussians, with their moments."""
    y = RNG.normal(0.0, 3.0, (6, 3))
    y[0, 1], y[1, :2] = np.nan, np.nan
    posterior = fitted(analysers, {"y": y})
    local, told, log_prob = posterior.local({"y": y}), posterior.predict({"y": y}), posterior.log_prob({"y": y})
    for n, row in enumerate(y):
        seen = ~np.isnan(row)
        terms, scores, squares, filled, filled_squares = ([] for _ in range(5))
        for k in range(2):
            covariance = W[k] @ W[k].T + np.eye(3) / 4
            own = covariance[np.ix_(seen, seen)]
            terms.append(np.log(SHARE[k]) + multivariate_normal(CENTRE[k][seen], own).logpdf(row[seen]))
            of_x, of_y = W[k][seen].T @ np.linalg.inv(own), covariance[:, seen] @ np.linalg.inv(own)
            scores.append(of_x @ (row[seen] - CENTRE[k][seen]))
            squares.append(np.diag(np.eye(2) - of_x @ W[k][seen]) + scores[-1] ** 2)
            filled.append(CENTRE[k] + of_y @ (row[seen] - CENTRE[k][seen]))
            filled_squares.append(np.diag(covariance - of_y @ covariance[seen]) + filled[-1] ** 2)
        total, weights = logsumexp(terms), np.exp(terms - logsumexp(terms))
        np.testing.assert_allclose(log_prob[n], total, atol=1e-3)
        np.testing.assert_allclose(local["k"].mean[n], weights, atol=1e-6)
        np.testing.assert_allclose(local["x"].mean[n], weights @ scores, atol=1e-6)
        np.testing.assert_allclose(local["x"].std[n] ** 2 + (weights @ scores) ** 2, weights @ squares, atol=1e-6)
        np.testing.assert_allclose(told.mean[n], weights @ filled, atol=1e-6)
        np.testing.assert_allclose(told.std[n] ** 2 + told.mean[n] ** 2, weights @ filled_squares, atol=1e-5)


def test_two_causes_of_one_event_and_some_labels() -> None:
    y, a = RNG.integers(0, 2, (6, 3)), np.array([0, -1, 1, -1, -1, -1])
    prior = np.log(np.outer(SHARE, [0.9, 0.1]))
    terms = prior + bernoulli.logpmf(y[:, :, None, None], CHANCE).sum(1)
    terms = np.where((a[:, None, None] >= 0) & (np.arange(2)[:, None] != a[:, None, None]), -np.inf, terms)
    posterior = fitted(causes, {"y": y})
    np.testing.assert_allclose(posterior.log_prob({"y": y, "a": a}), logsumexp(terms, axis=(1, 2)), atol=1e-4)
    shares = np.exp(terms - logsumexp(terms, axis=(1, 2), keepdims=True))
    np.testing.assert_allclose(posterior.local({"y": y, "a": a})["b"].mean, shares.sum(1), atol=1e-5)


def test_a_mixture_of_hidden_markov_models() -> None:
    y = RNG.normal(1.5, 2.0, (3, 4))
    paths = np.array(list(itertools.product(range(2), repeat=4)))
    steps = np.array([np.log(MOVES[k, paths[:, :-1], paths[:, 1:]]).sum(1) for k in range(2)])  # [k, path]
    terms = np.log(0.5 * SHARE)[:, None] + steps + norm.logpdf(y[:, None, None], LEVEL[paths]).sum(-1)
    terms = terms.reshape(3, -1)
    total, weights, second = mixed(terms, np.broadcast_to(np.tile(paths, (2, 1)), (3, 32, 4)))
    posterior = fitted(moving, {"y": y})
    np.testing.assert_allclose(posterior.log_prob({"y": y}), total, atol=1e-4)
    local = posterior.local({"y": y})
    np.testing.assert_allclose(local["k"].mean, weights.reshape(3, 2, 16).sum(2), atol=1e-5)
    np.testing.assert_allclose(np.asarray(local["z"].mean)[..., 1], second, atol=1e-5)


def test_samplers_take_the_sum_and_more_combinations_are_told() -> None:
    graph = lamu.Graph(additive)
    batch = graph.read({"y": np.zeros((2, 2))}).full()
    assert graph.log_likelihood(graph.init(jax.random.key(0), batch)[0], {}, batch)[0].shape == (2,)

    def many(m):
        level, effect = (
            m.sample("level", graphs.Normal(jnp.zeros(20), 1.0)),
            m.sample("effect", graphs.Normal(jnp.zeros(20), 1.0)),
        )
        with m.rows():
            k, j = (m.sample(name, graphs.Categorical(jnp.full(20, 0.05))) for name in "kj")
            m.sample("y", graphs.Normal(level[k] + effect[j], precision=1.0))

    fit = lamu.fit(lamu.Graph(many), {"y": RNG.normal(size=30)}, lamu.algorithms.vmp(restarts=1), steps=1)
    assert "categories k, j of a row at a local optimum" in fit.warnings[0]
