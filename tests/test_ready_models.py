"""Every ready model after a fit: each question of a posterior has an answer, and one number a model has a reference."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from scipy.special import digamma, gammaln
from sklearn.decomposition import LatentDirichletAllocation

import lamu
from lamu.graphs import models
from tests.for_each import for_each

NAN, RANDOM = np.nan, np.random.default_rng(0)
GROUP = RANDOM.integers(0, 2, 60)
Y = np.where(GROUP[:, None] == 1, 2.0, -1.0) * np.array([1.0, 0.7, -0.5]) + 0.5 * RANDOM.normal(size=(60, 3))
Y = (Y - Y.mean(axis=0)) / Y.std(axis=0)
BITS = (Y + 0.3 * RANDOM.normal(size=Y.shape) > 0).astype(float)
SERIES = np.cumsum(0.5 * RANDOM.normal(size=(6, 8)), axis=1) + 0.3 * RANDOM.normal(size=(6, 8))
X = RANDOM.normal(size=(60, 2))
T = X @ [1.0, -2.0] + 0.3 * RANDOM.normal(size=60)
V, K, SAMPLES = 12, 2, 200
COUNTS = np.stack([RANDOM.multinomial(20, RANDOM.dirichlet(np.full(V, 0.3))) for _ in range(40)])
DOCUMENTS = np.tile(np.arange(V), (40, 1)), COUNTS


def holed(y: np.ndarray) -> np.ndarray:
    """Three rows: one hole, all but one, nothing."""
    rows = np.array(y[:3])
    rows[0, 1], rows[1, :-1], rows[2] = NAN, NAN, NAN
    return rows


# The model, the data, the rows that are asked, and the latents of a row.
READY: dict[str, tuple[Any, Any, Any, tuple[str, ...]]] = {
    "mixture": (lambda: models.GaussianMixture(2, 3, 1.0), {"y": Y}, {"y": holed(Y)}, ("z",)),
    "mixture of bits": (lambda: models.BernoulliMixture(2, 3), {"y": BITS}, {"y": holed(BITS)}, ("z",)),
    "circuit": (lambda: models.SumProduct(2, 3), {"y": BITS}, {"y": holed(BITS)}, ()),
    "factors": (lambda: models.FactorAnalysis(1, 3), {"y": Y}, {"y": holed(Y)}, ("z",)),
    "logistic components": (lambda: models.ExponentialPCA(1, 3), {"y": BITS}, {"y": holed(BITS)}, ("z",)),
    "matrix": (
        lambda: models.MatrixFactorisation(6, 5, 2),
        {"row": np.arange(60) % 6, "column": np.arange(60) % 5, "y": T},
        {"row": np.arange(3), "column": np.arange(3)},
        (),
    ),
    "classes": (
        lambda: models.LatentClass(2, (2, 3)),
        {"y0": BITS[:, 0], "y1": (GROUP + RANDOM.integers(0, 2, 60)).astype(float)},
        {"y0": np.array([1.0, NAN, NAN]), "y1": np.array([NAN, 1.0, NAN])},
        ("z",),
    ),
    "naive Bayes": (
        lambda: models.NaiveBayes(2, 3),
        {"x": Y, "c": GROUP.astype(float)},
        {"x": holed(Y), "c": np.full(3, NAN)},
        ("c",),
    ),
    "regression": (lambda: models.LinearRegression(2), {"x": X, "y": T}, {"x": X[:3]}, ()),
    "hierarchical": (
        lambda: models.HierarchicalRegression(3, 2),
        {"x": X, "group": np.arange(60) % 3, "y": T},
        {"x": X[:3], "group": np.arange(3)},
        (),
    ),
    "hidden Markov": (lambda: models.HiddenMarkov(2, 8), {"y": SERIES}, {"y": holed(SERIES)}, ("z",)),
    "level": (lambda: models.StateSpace(8), {"y": SERIES}, {"y": holed(SERIES)}, ("x",)),
    "topics": (
        lambda: models.Topics(K, V),
        {"words": DOCUMENTS},
        {"words": tuple(part[:3] for part in DOCUMENTS)},
        ("share",),
    ),
}
OF_CLASSES = {"mixture of bits", "circuit", "logistic components", "topics"}  # whose targets have no interval


@cache
def fitted(name: str) -> Any:
    make, data, _, _ = READY[name]
    return lamu.fit(make(), data, lamu.algorithms.vmp(), steps=15).posterior


def finite(found: Any) -> Any:
    for leaf in jax.tree.leaves(found):
        assert np.all(np.isfinite(np.asarray(leaf, float)))
    return found


def entries(found: Any) -> list[tuple[int, ...]]:
    return [np.shape(leaf) for leaf in jax.tree.leaves(found)]


def answers_every_question(name: str) -> None:
    _, _, rows, latents = READY[name]
    posterior = fitted(name)
    predicted = posterior.predict(rows, samples=SAMPLES)
    mean, std = finite(predicted.mean), finite(predicted.std)
    assert entries(mean) == entries(std)
    by_draws = predicted.drawn
    for a, b, sd, other in zip(*map(jax.tree.leaves, (mean, by_draws.mean, std, by_draws.std)), strict=True):
        np.testing.assert_allclose(a, b, atol=0.3 * float(np.max(sd)) + 1e-6)  # of draws that are finite
        np.testing.assert_allclose(sd, other, rtol=0.4, atol=0.1)
    drawn = finite(predicted.sample(jax.random.key(0), 4))
    assert all(shape[:2] == (4, 3) for shape in entries(drawn))
    if name in OF_CLASSES:
        with pytest.raises(TypeError, match="classes have no interval"):
            predicted.interval(0.9)
    else:
        low, high = finite(predicted.interval(0.9))
        assert all(np.all(a <= b) for a, b in zip(jax.tree.leaves(low), jax.tree.leaves(high), strict=True))
    one = jax.tree.map(lambda leaf: leaf[0], drawn)
    assert finite(predicted.log_prob(one)).shape == (3,)
    local = posterior.local(rows)
    assert set(local) == set(latents)
    for belief in local.values():
        shape = entries(finite(belief.mean))
        assert entries(finite(belief.std)) == shape
        low, high = finite(belief.interval(0.9))
        assert entries(low) == entries(high) == shape
        assert entries(finite(belief.sample(jax.random.key(0)))) == shape
    assert finite(posterior.log_prob(rows, samples=SAMPLES)).shape == (3,)
    theta = entries(finite(posterior.std))
    low, high = finite(posterior.interval(0.9))
    assert theta == entries(low) == entries(high) == entries(finite(posterior.mean))
    assert entries(finite(posterior.sample(jax.random.key(0), 2))) == [(2, *shape) for shape in theta]
    if name == "topics":
        return
    filled = finite(lamu.latent.impute(posterior, rows, jax.random.key(0), draws=2, warmup=2))
    holes = {key for key, part in rows.items() if np.isnan(np.asarray(part, float)).any()} or {"y"}
    assert set(filled) == holes
    assert all(shape[:2] == (2, 3) for shape in entries(filled))


# The others take a minute to compile; what mixtures, factors and series answer has exact values in test_graph_queries.
QUICK = ("circuit", "topics")


@pytest.mark.stress
@for_each("name", QUICK)
def test_a_fitted_model_answers_every_question(name: str) -> None:
    answers_every_question(name)


@pytest.mark.stress
@for_each("name", [name for name in READY if name not in QUICK])
def test_every_fitted_model_answers_every_question(name: str) -> None:
    answers_every_question(name)


STATES = np.array(list(itertools.product((0.0, 1.0), repeat=3)))
PAIRS = np.array(list(itertools.product(range(2), range(3))), float)


ALL_ROWS = {
    "mixture of bits": {"y": STATES},
    "circuit": {"y": STATES},
    "classes": {"y0": PAIRS[:, 0], "y1": PAIRS[:, 1]},
}


@pytest.mark.stress
@for_each("name", ALL_ROWS)
def test_probabilities_of_all_rows_sum_to_one(name: str) -> None:
    total = np.exp(fitted(name).log_prob(ALL_ROWS[name], samples=SAMPLES)).sum()
    np.testing.assert_allclose(total, 1.0, rtol=1e-5)


def test_entries_that_are_there_are_told_as_they_are() -> None:
    """Of a label that is there the probability is one; draws of a label that is missing have its probabilities."""
    rows = READY["classes"][2]
    mean = fitted("classes").predict(rows, samples=SAMPLES).mean
    np.testing.assert_array_equal(mean["y0"][0], [0.0, 1.0])
    np.testing.assert_array_equal(mean["y1"][1], [0.0, 1.0, 0.0])
    bayes = {"x": Y[:3], "c": np.array([1.0, NAN, NAN])}
    drawn = lamu.latent.impute(fitted("naive Bayes"), bayes, jax.random.key(0), draws=300)["c"]
    assert np.all(drawn[:, 0] == 1)
    np.testing.assert_allclose(np.mean(drawn, axis=0), fitted("naive Bayes").local(bayes)["c"].mean[:, 1], atol=0.1)


def test_a_line_has_the_variance_of_its_coefficients_and_of_the_noise() -> None:
    posterior = fitted("regression")
    belief = posterior.belief.factors["network"].factors
    predicted = posterior.predict({"x": X[:3]})
    np.testing.assert_allclose(predicted.mean, X[:3] @ belief["w"].mean, rtol=1e-5)
    covariance, noise = np.linalg.inv(belief["w"].precision), belief["noise"]
    expected = np.sum(X[:3] @ covariance * X[:3], axis=1) + noise.rate / (noise.shape - 1)
    np.testing.assert_allclose(predicted.variance, expected, rtol=1e-4)


@pytest.mark.stress
def test_members_that_inputs_pick_predict_by_their_means() -> None:
    groups, matrix = fitted("hierarchical"), fitted("matrix")
    own, factors = groups.mean["network"], matrix.mean["network"]
    np.testing.assert_allclose(
        groups.predict(READY["hierarchical"][2]).mean, np.sum(X[:3] * own["coefficients"], axis=1), rtol=1e-4
    )
    np.testing.assert_allclose(
        matrix.predict(READY["matrix"][2]).mean, np.sum(factors["u"][:3] * factors["v"][:3], axis=1), rtol=1e-4
    )


@pytest.mark.stress
def test_new_documents_are_those_of_scikit_learn() -> None:
    """Shares, bound and the next word at the same topics, of documents that the fit has not seen."""
    posterior = fitted("topics")
    topic = np.asarray(posterior.belief.factors["network"].factors["topic"].concentration, float)
    new = np.stack([RANDOM.multinomial(15, RANDOM.dirichlet(np.full(V, 0.3))) for _ in range(5)])
    rows = {"words": (np.tile(np.arange(V), (5, 1)), new)}
    peer = LatentDirichletAllocation(
        K, doc_topic_prior=0.1, topic_word_prior=0.05, max_doc_update_iter=500, mean_change_tol=1e-9
    ).fit(COUNTS)
    peer.components_ = topic
    peer.exp_dirichlet_component_ = np.exp(digamma(topic) - digamma(topic.sum(axis=1, keepdims=True)))
    share = peer.transform(new)
    found = posterior.local(rows)["share"]
    np.testing.assert_allclose(found.mean, share, atol=2e-3)
    predicted = posterior.predict(rows, samples=SAMPLES)
    word = found.mean @ (topic / topic.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(predicted.mean, word, atol=5e-3)  # at E[topic], and not E[log topic]
    asked = new.argmax(axis=1)
    np.testing.assert_allclose(predicted.log_prob(asked), np.log(np.asarray(word)[range(5), asked]), atol=0.3)
    gamma = np.asarray(found.concentration)
    log_share = digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True))
    log_topic = np.log(peer.exp_dirichlet_component_)
    a = 0.1
    kl = gammaln(gamma.sum(axis=1)) - gammaln(gamma).sum(axis=1) - gammaln(K * a) + K * gammaln(a)
    kl += np.sum((gamma - a) * log_share, axis=1)
    bound = np.sum(new * np.log(np.exp(log_share) @ np.exp(log_topic)), axis=1) - kl
    # At draws of the topics the bound is that of each, and at least as good on average as at their expectation.
    log_prob = posterior.log_prob(rows, samples=SAMPLES)
    assert np.all(log_prob > bound - 0.5)
    assert np.all(log_prob < bound + 6.0)
    assert finite(posterior.predict(2, samples=SAMPLES).mean).shape == (2, V)
    with pytest.raises(TypeError, match="how many words a document has is not a part"):
        lamu.latent.generate(posterior, 2, jax.random.key(0))


def test_rows_far_from_unit_scale_are_warned_of_where_priors_are_of_it() -> None:
    for graph, data in (
        (models.GaussianMixture(2, 3), {"y": 70.0 + Y}),
        (models.HiddenMarkov(2, 8), {"y": SERIES / 100}),
        (models.NaiveBayes(2, 3), {"x": Y * [1.0, 50.0, 1.0], "c": GROUP.astype(float)}),
        (models.LinearRegression(2), {"x": X, "y": 1000.0 * T}),
        (models.HierarchicalRegression(3, 2), {"x": X, "group": GROUP, "y": 1000.0 * T}),
        (models.FactorAnalysis(2, 3), {"y": Y + 1.0}),  # the model has no means
        (models.FactorAnalysis(2, 3), {"y": 1000.0 * Y}),
        (models.MatrixFactorisation(6, 5, 2), {"row": np.arange(60) % 6, "column": np.arange(60) % 5, "y": 3.5 + T}),
    ):
        with pytest.warns(lamu.data.UnscaledRows, match="is not standardised, and (the priors of )?this model"):
            graph.read(data)
        graph.rows(data)  # which asks and does not learn
    models.FactorAnalysis(2, 3).read({"y": Y})
    models.GaussianMixture(2, 3).read({"y": BITS})  # columns of zeros and ones have no scale
    models.GaussianMixture(2, 3).read({"y": np.where(RANDOM.random(Y.shape) < 0.3, NAN, Y)})


def test_common_coefficients_of_groups_have_the_error_that_the_groups_leave() -> None:
    """Of 30 groups that 20 rows tell: the deviation of their coefficients over the root of 30, within a quarter."""
    random, group = np.random.default_rng(5), np.repeat(np.arange(30), 20)
    x = np.column_stack([np.ones(600), random.normal(size=600)])
    coefficients = [0.5, -1.0] + 0.5 * random.normal(size=(30, 2))
    y = np.sum(x * coefficients[group], axis=1) + random.normal(size=600)
    fit = lamu.fit(models.HierarchicalRegression(30, 2), {"x": x, "group": group, "y": y}, lamu.algorithms.vmp())
    belief = fit.posterior.belief.factors["network"].factors["w"]
    deviation = 1 / np.sqrt(np.asarray(belief.precision.values))
    np.testing.assert_allclose(deviation, coefficients.std(axis=0, ddof=1) / np.sqrt(30), rtol=0.25)
