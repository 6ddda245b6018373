"""Likelihoods whose rows bring more than a value, through `lamu.fit`; and what closed forms for logits refuse."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import special, stats
from scipy.optimize import minimize

import lamu
from lamu.data import Batch
from lamu.likelihoods import (
    Bernoulli,
    Binomial,
    Categorical,
    Gaussian,
    Multinomial,
    Ordinal,
    RightCensored,
    Weibull,
    links,
)
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import GaussNewton, SampledGaussNewton, gauss_newton_product
from lamu.operators import Dense, Diagonal
from lamu.predictives import OfTrials

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 2))
ETA = X @ [0.8, -0.5] + 0.3
TRIALS = RANDOM.integers(1, 9, 40)
SUCCESSES = RANDOM.binomial(TRIALS, special.expit(ETA))
BINOMIAL = {"value": SUCCESSES, "trials": TRIALS}
TOSSES_X = np.repeat(X, TRIALS, axis=0)
TOSSES = np.concatenate([np.arange(n) < k for n, k in zip(TRIALS, SUCCESSES, strict=True)]).astype(int)


def fitted(likelihood, x, y, algorithm, **options):
    model = lamu.Model(lamu.networks.Linear(), likelihood, lamu.priors.Normal(3.0))
    return lamu.fit(model, (x, y), algorithm, **options).posterior


def test_trials_of_a_row_are_so_many_tosses() -> None:
    """Laplace's posterior of rows with trials is that of the tosses one by one."""
    together = fitted(Binomial(), X, BINOMIAL, lamu.algorithms.newton(), steps=30)
    apart = fitted(Bernoulli(), TOSSES_X, TOSSES, lamu.algorithms.newton(), steps=30)
    for mine, theirs in zip(
        jax.tree.leaves(together.sample(jax.random.key(0), 5)),
        jax.tree.leaves(apart.sample(jax.random.key(0), 5)),
        strict=True,
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)


def loss_of(likelihood, x, y):
    model = lamu.Model(lamu.networks.Linear(), likelihood)
    batch = Batch.of(jnp.asarray(x), jax.tree.map(jnp.asarray, y))
    params, state = model.init(jax.random.key(0), batch)
    return (
        BatchLoss(Objective(model, len(x)), batch, state, NetworkParameters(), {}, conjugate=True),
        params["network"],
        len(x),
    )


@pytest.mark.stress
def test_a_row_counts_as_often_as_it_has_trials_in_every_curvature() -> None:
    (one, theta, rows), (many, _, tosses) = loss_of(Binomial(), X, BINOMIAL), loss_of(Bernoulli(), TOSSES_X, TOSSES)
    v = jax.tree.map(jnp.ones_like, theta)
    for mine, theirs in zip(
        jax.tree.leaves(gauss_newton_product(one, theta)(v)),
        jax.tree.leaves(gauss_newton_product(many, theta)(v)),
        strict=True,
    ):
        np.testing.assert_allclose(mine * rows, theirs * tosses, rtol=1e-9)
    for structure in (Dense, Diagonal):
        mine, theirs = (GaussNewton().matrix(loss, theta, structure) for loss in (one, many))
        for a, b in zip(jax.tree.leaves(mine.matvec(v)), jax.tree.leaves(theirs.matvec(v)), strict=True):
            np.testing.assert_allclose(a * rows, b * tosses, rtol=1e-9)
    exact = GaussNewton().matrix(one, theta, Diagonal).matvec(v)
    sampled = SampledGaussNewton(samples=2000).matrix(one, theta, Diagonal, jax.random.key(0)).matvec(v)
    for a, b in zip(jax.tree.leaves(sampled), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(a, b, rtol=0.05)


def test_what_rows_count() -> None:
    ones = jnp.ones(2)
    rows = {"value": jnp.array([1, 2]), "trials": jnp.array([3, 4])}
    f, two = jnp.zeros((2, 1)), jnp.zeros((2, 2))
    np.testing.assert_array_equal(Binomial().counted({}, f, rows, ones), [3.0, 4.0])
    np.testing.assert_array_equal(Binomial(9).counted({}, f, jnp.array([1, 2]), ones), ones)
    np.testing.assert_array_equal(Multinomial(2).counted({}, two, jnp.array([[1, 2], [4, 0]]), ones), [3.0, 4.0])
    np.testing.assert_array_equal(Multinomial(2, 3).counted({}, two, jnp.array([[1, 2], [3, 0]]), ones), ones)
    np.testing.assert_array_equal(Gaussian(1.0).counted({}, f, ones, ones), ones)


def test_censored_times_come_to_the_mode_of_scipys() -> None:
    times, ends = RANDOM.weibull(1.5, 40) * np.exp(ETA), RANDOM.exponential(3.0, 40)
    y = {"value": np.minimum(times, ends), "censored": (times > ends).astype(int)}

    def loss(theta: np.ndarray) -> float:
        f, k = X @ theta[:2] + theta[2], np.exp(theta[3])
        z = k * (np.log(y["value"]) - f)
        density = np.where(y["censored"], 0.0, np.log(k) - np.log(y["value"]) + z)
        return -np.sum(density - np.exp(z)) + np.sum(theta[:3] ** 2) / 18 + theta[3] ** 2 / 18

    expected = minimize(loss, np.zeros(4), tol=1e-10).x
    posterior = fitted(RightCensored(Weibull()), X, y, lamu.algorithms.map_estimate(optax.adam(0.02)), steps=1500)
    layer, shape = posterior.mean["network"]["layers"][0], posterior.mean["likelihood"]["log_shape"]
    found = np.concatenate([layer["kernel"][:, 0], layer["bias"], shape])
    np.testing.assert_allclose(found, expected, atol=2e-2)
    lower, upper = posterior.predict(X[:3]).interval(0.9)
    assert np.all((lower > 0) & (lower < upper))


def test_targets_of_minus_one_and_one_are_scored_as_classes() -> None:
    """The same predictions and scores as with zeros and ones, whose log odds are twice f."""
    signs = 2 * TOSSES - 1
    mine = fitted(Bernoulli(links.Tanh()), TOSSES_X, signs, lamu.algorithms.newton(), steps=30).predict(TOSSES_X)
    theirs = fitted(Bernoulli(), TOSSES_X, TOSSES, lamu.algorithms.newton(), steps=30).predict(TOSSES_X)
    np.testing.assert_allclose(mine.mean, theirs.mean, atol=0.02)  # the priors are of f, and of twice f
    assert lamu.scores.accuracy(mine, signs) == lamu.scores.accuracy(theirs, TOSSES)
    np.testing.assert_allclose(lamu.scores.nll(mine, signs), lamu.scores.nll(theirs, TOSSES), rtol=1e-2)
    assert set(np.unique(mine.sample(jax.random.key(0), 3))) == {-1, 1}
    with pytest.raises(ValueError, match="these hold 2"):
        lamu.scores.accuracy(mine, 2 * TOSSES)


@pytest.mark.parametrize("likelihood", [Bernoulli(links.Probit()), Ordinal(2)])
def test_closed_forms_for_logits_refuse_other_outputs(likelihood) -> None:
    assert Bernoulli().logits
    assert Categorical(3).logits
    assert not likelihood.logits
    model = lamu.Model(lamu.networks.Linear(), likelihood)
    with pytest.raises(TypeError, match="not for"):
        lamu.fit(model, (TOSSES_X, TOSSES), lamu.algorithms.variational_head(), steps=1)
    posterior = lamu.fit(model, (TOSSES_X, TOSSES), lamu.algorithms.laplace(), epochs=5).posterior
    with pytest.raises(ValueError, match="energy is for classes"):
        lamu.scores.energy(posterior, X[:2])


def test_censored_rows_count_with_the_information_that_they_have() -> None:
    """Laplace's precision of censored times is the Hessian of their loss, and not that of rows that all ended."""
    times, ends = RANDOM.weibull(1.5, 40) * np.exp(ETA), RANDOM.exponential(1.0, 40)
    y = {"value": np.minimum(times, ends), "censored": (times > ends).astype(int)}
    assert y["censored"].mean() > 0.3
    posterior = fitted(RightCensored(Weibull(1.5)), X, y, lamu.algorithms.laplace(), epochs=40)
    mean = posterior.mean["network"]
    design = np.column_stack([np.ones(40), X])  # the bias comes first
    z = 1.5 * (np.log(y["value"]) - design @ np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(mean)]))
    expected = design.T @ (1.5**2 * np.exp(z)[:, None] * design) + np.eye(3) / 9.0
    found = posterior.belief.factors["network"].precision.dense(mean)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_class_without_a_row_is_refused_where_it_would_be_learned() -> None:
    y = np.arange(40) % 3
    model = lamu.Model(lamu.networks.Linear(bias=False), Ordinal(4))
    with pytest.raises(ValueError, match=r"no row has the category 3, .* take Ordinal\(3\)"):
        lamu.fit(model, (X, y), lamu.algorithms.newton(), steps=1)
    with pytest.raises(ValueError, match="no row has the category 1"):
        model.read((X, np.where(y == 1, 3, y)))
    assert model.rows((X, y)).count == 40  # as rows to be scored they may be of few classes
    lamu.Model(lamu.networks.Linear(), Ordinal(4, cuts=(-1.0, 0.0, 1.0))).read((X, y))


@pytest.fixture(scope="module")
def of_trials():
    return fitted(Binomial(), X, BINOMIAL, lamu.algorithms.laplace(), epochs=30)


@pytest.mark.stress
def test_a_prediction_is_of_the_trials_that_it_is_told(of_trials) -> None:
    """Beside quadrature over the probability, of which a prediction of one trial has the nodes."""
    pred, one = of_trials.predict({"x": X, "trials": TRIALS}), of_trials.predict(X)
    nodes = special.expit(np.asarray(one.f)[:, :, 0])
    weights = np.exp(np.asarray(one.log_weights))[:, None]
    assert isinstance(pred, OfTrials)
    mass = lambda k: np.sum(weights * stats.binom.pmf(k, TRIALS, nodes), axis=0)
    table = np.stack([mass(k) for k in range(9)])
    np.testing.assert_allclose(pred.log_prob(SUCCESSES), np.log(mass(SUCCESSES)), rtol=1e-4)
    np.testing.assert_allclose(pred.log_prob(SUCCESSES), pred.log_prob(BINOMIAL), rtol=1e-6)
    mean = np.arange(9) @ table
    np.testing.assert_allclose(pred.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(pred.variance, np.arange(9) ** 2 @ table - mean**2, rtol=1e-3)
    below = np.cumsum(table, axis=0)
    lower, upper = (np.asarray(end) for end in pred.interval(0.9))
    for k, column in enumerate(below.T):
        before = np.concatenate([[0.0], column])  # P(Y < k)
        expected = np.argmax(column >= 0.9 + before[np.argmax(column >= 0.05)])
        assert (lower[k], upper[k]) == (np.argmax(column > column[expected] - 0.9), expected)
    draws = np.asarray(pred.sample(jax.random.key(0), 4000))
    # Five standard errors of 40 means; a failure in 40,000 seeds.
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - mean), 5 * np.sqrt(np.asarray(pred.variance) / 4000))
    assert (draws <= TRIALS).all()
    np.testing.assert_allclose(of_trials.predict({"x": X, "trials": 1}).mean, one.mean)


def test_a_prediction_of_trials_says_what_it_needs(of_trials) -> None:
    with pytest.raises(ValueError, match=r"a prediction of Binomial needs 'x' and 'trials'"):
        of_trials.predict({"x": X, "n": TRIALS})
    with pytest.raises(ValueError, match=r"the trials have the shape \(3,\) and x 40 rows"):
        of_trials.predict({"x": X, "trials": TRIALS[:3]})
    with pytest.raises(ValueError, match="row 0 is -1, and the trials of Binomial takes whole numbers"):
        of_trials.predict({"x": X, "trials": -1})
    plain = fitted(Bernoulli(), TOSSES_X, TOSSES, lamu.algorithms.newton(), steps=5)
    with pytest.raises(ValueError, match="a prediction of Bernoulli needs x alone"):
        plain.predict({"x": X, "trials": TRIALS})
