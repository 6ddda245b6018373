"""Decisions against sums by hand, strangeness against closed forms, and false alarms counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lamu
from lamu import scores
from lamu.data import Batch
from lamu.families import Draws, Point
from lamu.likelihoods import Bernoulli, Categorical, Gaussian
from lamu.posterior import Posterior
from lamu.predictives import Deferred, GaussianPredictive, MixturePredictive, Sampled
from lamu.supports import Classes, Real
from tests.for_each import for_each

RANDOM = np.random.default_rng(11)
P = RANDOM.dirichlet(np.ones(3), 40)
U = RANDOM.normal(size=(4, 3))


def classes(p: Any) -> Any:
    return SimpleNamespace(support=Classes(p.shape[-1]), mean=p)


def point(network: Any, likelihood: Any, x: Any, y: Any, seed: int = 0) -> Posterior:
    model = lamu.Model(network, likelihood)
    params, state = model.init(jax.random.key(seed), Batch.of(x, y))
    return Posterior(model, Point(params), state, Sampled(), jax.random.key(9))


def test_expectations_over_classes_are_exact() -> None:
    expected = np.array([[sum(p[k] * U[a, k] for k in range(3)) for a in range(4)] for p in P])
    np.testing.assert_allclose(scores.expected_utility(classes(P), U), expected, rtol=1e-12)
    assert scores.least_expected_loss(classes(P), -U).tolist() == expected.argmax(1).tolist()
    known = np.array([sum(p[k] * U[:, k].max() for k in range(3)) for p in P])
    np.testing.assert_allclose(scores.value_of_information(classes(P), U), known - expected.max(1), rtol=1e-12)
    action = RANDOM.integers(0, 4, 40)
    regret = scores.expected_regret(classes(P), U, action)
    np.testing.assert_allclose(regret, known - expected[np.arange(40), action], rtol=1e-12)
    assert (regret >= scores.value_of_information(classes(P), U) - 1e-12).all()
    y = RANDOM.integers(0, 3, 40)
    by_hand = [U[:, k].max() - U[a, k] for a, k in zip(action, y, strict=True)]
    np.testing.assert_allclose(scores.realised_regret(action, U, y), by_hand)
    np.testing.assert_allclose(scores.realised_regret(action, U, y[:, None]), by_hand)


def test_the_best_action_is_what_a_prediction_decides() -> None:
    pred = MixturePredictive.equal(Categorical(3), {}, jnp.asarray(RANDOM.normal(size=(2, 5, 3))))
    assert scores.least_expected_loss(pred, -U).tolist() == pred.decide(U).tolist()


def test_one_asks_where_knowing_is_worth_more_than_it_costs() -> None:
    asked = scores.with_question(U, 0.3)
    assert asked.shape == (5, 3)
    chosen = scores.least_expected_loss(classes(P), -asked)
    assert ((chosen == 4) == (scores.value_of_information(classes(P), U) > 0.3)).all()
    assert 0 < (chosen == 4).sum() < 40
    with pytest.raises(ValueError, match=r"cost=0\.0 would make asking free"):
        scores.with_question(U, 0.0)


def test_a_regression_decides_by_draws() -> None:
    """Under a loss that is three times steeper above, the best of a grid is a quartile: four standard errors."""
    grid = jnp.linspace(-3.0, 3.0, 61)
    loss = lambda y: jnp.maximum(3 * (y[None] - grid[:, None, None]), grid[:, None, None] - y[None])
    pred = GaussianPredictive(jnp.zeros(2), jnp.ones((2, 1, 1)), jnp.ones(2))
    chosen = np.asarray(grid)[scores.least_expected_loss(pred, loss, samples=4000)]
    np.testing.assert_allclose(chosen, stats.norm.ppf(0.75), atol=4 * 0.0215 + 0.05)
    utility = lambda y: -loss(y)
    worth = scores.value_of_information(pred, utility, samples=4000)
    expected = 4 * stats.norm.pdf(stats.norm.ppf(0.75))  # the expected loss at the quantile
    np.testing.assert_allclose(worth, expected, atol=0.1)
    asked = scores.with_question(utility, 0.5)
    assert scores.least_expected_loss(pred, lambda y: -asked(y)).tolist() == [61, 61]
    assert scores.realised_regret([30, 60], utility, [0.0, 0.0]).tolist() == pytest.approx([0.0, 3.0])


def test_a_deferred_regression_decides_as_one_in_memory() -> None:
    x, y = jnp.asarray(RANDOM.normal(size=(7, 2))), jnp.asarray(RANDOM.normal(size=7))
    posterior = point(lamu.networks.Linear(), Gaussian(scale=1.0), x, y)
    prepared = Sampled().prepare(posterior.model, posterior.belief, {}, samples=1, key=jax.random.key(1))
    utility = lambda y: -((y[None] - jnp.array([-1.0, 0.0, 1.0])[:, None, None]) ** 2)
    whole, parts = (
        scores.expected_utility(pred, utility, jax.random.key(3), samples=8)
        for pred in (prepared.at(x, None), Deferred(prepared, x, None, rows=3))
    )
    np.testing.assert_allclose(parts, whole, rtol=1e-12)


TWO = MixturePredictive.equal(Bernoulli(), {}, jnp.ones((2, 5, 1)))
LINE = GaussianPredictive(jnp.zeros(2), jnp.ones((2, 1, 1)), jnp.ones(2))


def test_truth_values_and_whole_floats_are_classes_and_actions() -> None:
    """Truth values picked rows, so that as many of them as classes were other targets."""
    expected = scores.realised_regret([0, 1], U[:, :2], [1, 1])
    for y in ([True, True], [1.0, 1.0]):
        np.testing.assert_array_equal(scores.realised_regret([False, True], U[:, :2], y), expected)


@for_each(
    "call, match",
    [
        (lambda: scores.expected_utility(classes(P), np.eye(2)), r"\(2, 2\) does not fit; give \[actions, 3\]"),
        (lambda: scores.expected_utility(classes(P), np.full((2, 3), np.nan)), "not a finite table"),
        (lambda: scores.expected_regret(classes(P), U, 4), "4 actions, 0 to 3, and one that was given is 4"),
        (lambda: scores.expected_regret(classes(P), U, -1), "4 actions, 0 to 3, and one that was given is -1"),
        (lambda: scores.realised_regret([0, 1], U, [-1, 1]), "3 classes, 0 to 2, and one that was given is -1"),
        (lambda: scores.realised_regret([0, 1], U, [3, 1]), "3 classes, 0 to 2, and one that was given is 3"),
        (lambda: scores.realised_regret([0, 1], U, ["no", "yes"]), "3 classes, 0 to 2, and one that was given is no"),
        (lambda: TWO.decide([[0.0, np.nan], [1.0, 0.0]]), "not a finite table"),
        (lambda: LINE.decide(lambda y: -(y**2)), r"has the shape \(256, 2\); return \[actions, draws, N\]"),
        (lambda: scores.realised_regret([0, 1], U, [0]), "give one of each a row"),
    ],
)
def test_utilities_that_do_not_fit_are_refused(call: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call()


def test_strangeness_of_a_prediction_is_a_formula_of_its_probabilities() -> None:
    np.testing.assert_allclose(scores.entropy(classes(P)), stats.entropy(P, axis=1), rtol=1e-12)
    np.testing.assert_allclose(scores.least_confidence(classes(P)), 1 - P.max(1))
    f = RANDOM.normal(size=(5, 8, 3))
    pred = MixturePredictive.equal(Categorical(3), {}, jnp.asarray(f))
    p = np.exp(f) / np.exp(f).sum(-1, keepdims=True)
    by_hand = stats.entropy(p.mean(0), axis=1) - stats.entropy(p, axis=2).mean(0)
    np.testing.assert_allclose(scores.mutual_information(pred), by_hand, rtol=1e-9)
    regression = SimpleNamespace(support=Real(), mean=np.zeros(2))
    for score in (scores.entropy, scores.least_confidence, scores.mutual_information):
        with pytest.raises(ValueError, match="for classes"):
            score(regression)


def test_energy_is_of_the_mean_outputs() -> None:
    x, y = RANDOM.normal(size=(6, 2)), RANDOM.integers(0, 3, 6)
    posterior = point(lamu.networks.Linear(), Categorical(3), jnp.asarray(x), jnp.asarray(y))
    weights = posterior.mean["network"]["layers"][0]
    f = x @ np.asarray(weights["kernel"]) + np.asarray(weights["bias"])
    np.testing.assert_allclose(scores.energy(posterior, x, 2.0), -2 * np.log(np.exp(f / 2).sum(1)), rtol=1e-9)
    # Two draws whose mean is the point.
    pair = jax.tree.map(lambda leaf: jnp.stack([leaf - 1.0, leaf + 1.0])[None], posterior.mean)
    drawn = Posterior(posterior.model, Draws(pair), {}, Sampled(), jax.random.key(9))
    np.testing.assert_allclose(scores.energy(drawn, x, 2.0), scores.energy(posterior, x, 2.0), rtol=1e-9)
    binary = point(lamu.networks.Linear(), Bernoulli(), jnp.asarray(x), jnp.asarray(y > 0))
    f = np.asarray(binary.model.outputs(binary.mean, {}, jnp.asarray(x))[0])[:, 0]
    np.testing.assert_allclose(scores.energy(binary, x), -np.log(2 * np.cosh(f / 2)), rtol=1e-9)


def test_features_are_what_the_head_reads() -> None:
    x, y = RANDOM.normal(size=(60, 2)), RANDOM.integers(0, 3, 60)
    posterior = point(lamu.networks.MLP((4,), activation="tanh"), Categorical(3), jnp.asarray(x), jnp.asarray(y))
    first = posterior.mean["network"]["layers"][0]
    hidden = np.tanh(x @ np.asarray(first["kernel"]) + np.asarray(first["bias"]))
    known = scores.mahalanobis(posterior, x, y[:, None])
    assert isinstance(known, scores.Mahalanobis)
    centres = np.stack([hidden[y == c].mean(0) for c in range(3)])
    np.testing.assert_allclose(np.sort(known.centres, axis=0), np.sort(centres, axis=0), rtol=1e-9)
    away = hidden - centres[y]
    from sklearn.covariance import ledoit_wolf

    scale = np.sqrt(np.mean(away**2, 0))
    precision = np.linalg.inv(ledoit_wolf(away / scale, assume_centered=True)[0])
    white = lambda a: np.einsum("...i,ij,...j->...", a / scale, precision, a / scale)
    new = 3 * RANDOM.normal(size=(5, 2))
    features = np.tanh(new @ np.asarray(first["kernel"]) + np.asarray(first["bias"]))
    np.testing.assert_allclose(known.score(new), white(features[:, None] - centres[None]).min(1), rtol=1e-8)
    # A model whose other weights are frozen reads the same features.
    held = posterior.model.freeze(posterior.mean, "layers/0/*")
    free = jax.tree.map(lambda leaf: leaf, posterior.mean)
    free["network"]["layers"] = {0: {"kernel": None, "bias": None}, 1: free["network"]["layers"][1]}
    again = scores.mahalanobis(Posterior(held, Point(free), {}, Sampled(), jax.random.key(9)), x, y)
    np.testing.assert_allclose(again.score(new), known.score(new), rtol=1e-9)


def test_a_regression_has_one_centre_and_redundant_features_no_weight() -> None:
    x = RANDOM.normal(size=(300, 3)) * np.array([1.0, 10.0, 0.0]) + 2.0  # the third column is constant
    y = RANDOM.normal(size=300)
    known = scores.mahalanobis(point(lamu.networks.Linear(), Gaussian(1.0), jnp.asarray(x), jnp.asarray(y)), x, y)
    assert known.centres.shape == (1, 2)
    covariance = np.cov(x[:, :2].T, bias=True)
    away = x[:, :2] - x[:, :2].mean(0)
    by_hand = np.einsum("ni,ij,nj->n", away, np.linalg.inv(covariance), away)
    np.testing.assert_allclose(known.score(x), by_hand, rtol=0.1, atol=0.05)  # shrunk a little
    assert known.score(x + 30.0).min() > known.score(x).max()
    with pytest.raises(ValueError, match="no distance can be told"):
        scores.mahalanobis(
            point(lamu.networks.Linear(), Gaussian(1.0), jnp.asarray(x), jnp.asarray(y)), np.ones((300, 3)), y
        )


def test_no_drift_is_found_as_often_as_allowed() -> None:
    """400 trials of five quantities at the level 0.1: 40 false alarms expected at most, 58 are three σ more."""
    generator = np.random.default_rng(0)
    alarms = sum(
        scores.drift(generator.normal(size=(60, 5)), generator.normal(size=(40, 5)), level=0.1).found
        for _ in range(400)
    )
    assert 10 <= alarms <= 58


def test_drift_is_found_in_what_is_predicted() -> None:
    f = RANDOM.normal(size=(4, 300, 3))
    old, same, flat = (
        MixturePredictive.equal(Categorical(3), {}, jnp.asarray(part))
        for part in (f[:, :150], f[:, 150:], 0.3 * f[:, 150:])
    )
    found = scores.drift(old, flat)
    assert isinstance(found, scores.Drift)
    assert found.names == ("p(class 0)", "p(class 1)", "p(class 2)", "entropy", "epistemic")
    assert found.found
    assert not scores.drift(old, same, level=0.01).found
    by_hand = stats.ks_2samp(np.asarray(old.total), np.asarray(flat.total))
    assert found.statistics[3] == pytest.approx(by_hand.statistic)
    assert found.p_value == pytest.approx(min(1.0, 5 * found.p_values.min()))
    assert str(found).endswith("(5 tests together)")
    assert scores.kernel_drift(old, flat).found
    zeros, ones, matrix = jnp.zeros(50), jnp.ones(50), jnp.ones((50, 1, 1))
    certain, unsure = GaussianPredictive(zeros, matrix, ones), GaussianPredictive(zeros, matrix, zeros)
    assert scores.drift(certain, certain).names == ("mean", "std")
    assert scores.drift(certain, unsure).found
    with pytest.raises(ValueError, match="compare the same things"):
        scores.drift(old, certain)
    with pytest.raises(ValueError, match="sample of 1 rows"):
        scores.drift([1.0], [2.0, 3.0])
    with pytest.raises(ValueError, match=r"level=5\.0 is not a probability"):
        scores.drift([1.0, 2.0], [2.0, 3.0], level=5.0)


def test_permutations_are_exact_under_the_null_and_see_dependence() -> None:
    """Of 150 p values without drift, the share below 0.2 is within 3.5 standard errors of it."""
    generator = np.random.default_rng(1)
    p = np.array(
        [
            scores.kernel_drift(generator.normal(size=(12, 2)), generator.normal(size=(9, 2)), permutations=99).p_value
            for _ in range(150)
        ]
    )
    assert abs(np.mean(p <= 0.2) - 0.2) < 3.5 * np.sqrt(0.16 / 150)
    apart = generator.normal(size=(300, 2))
    first = generator.normal(size=300)
    together = np.stack([first, first], 1)
    for offset in (0.0, 1e9):
        assert scores.kernel_drift(offset + apart, offset + together).found
    assert scores.kernel_drift(np.full(20, 0.1), np.full(15, 0.1)).p_value == 1.0
    assert not scores.drift(apart, together, level=0.001).found
