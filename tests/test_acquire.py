"""Acquisition functions: mutual information by brute force, Thompson's probabilities, quadrature, and refusals."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import entr

import lamu
from lamu.acquire import (
    Chosen,
    _drawn_configurations,
    _joint_classes,
    _joint_numbers,
    bald,
    batch_bald,
    expected_improvement,
    function_draws,
    information,
    thompson,
    thompson_arms,
)
from lamu.families import Ensemble, Gaussian, Point, Product
from lamu.operators import Dense
from lamu.posterior import Posterior
from lamu.predictives import Linearised, MixturePredictive, Pooling, Sampled
from tests.for_each import for_each

NUMBERS = np.random.default_rng(0)
X6 = np.arange(6.0)[:, None, None]
WEIGHTS = np.array([0.5, 0.2, 0.2, 0.1])
ERRORS = 5.0  # standard errors of a frequency: one number fails by chance once in two million


def key() -> Any:
    """The same key, which JAX has not seen used."""
    return jax.random.key(0)


def discrete(likelihood: Any, outputs: int, rule: Any) -> tuple[Posterior, np.ndarray]:
    """Returns a posterior of four sets of weights with unequal probabilities, and five rows."""
    x = NUMBERS.normal(size=(5, 2))
    kernel = jnp.asarray(2 * NUMBERS.normal(size=(4, 2, outputs)))
    model = lamu.Model(lamu.networks.Linear(bias=False), likelihood)
    params = {"network": {"layers": [{"kernel": kernel}]}, "likelihood": {}}
    shapes = model.init(key(), lamu.data.Batch.of(jnp.asarray(x), jnp.zeros(5, int)))[0]
    params = jax.tree.unflatten(jax.tree.structure(shapes), jax.tree.leaves(params))
    return Posterior(model, Ensemble(Point(params), jnp.log(jnp.asarray(WEIGHTS))), {}, rule, key()), x


def mutual_information(p: np.ndarray) -> float:
    """I(y₁, …, y_b; θ) of probabilities `[θ, b, classes]`, by the table of all θ and all labels."""
    table = np.array(
        [
            [w * np.prod([own[i, y] for i, y in enumerate(labels)]) for labels in product(p)]
            for w, own in zip(WEIGHTS, p, strict=True)
        ]
    )
    independent = table.sum(1, keepdims=True) * table.sum(0, keepdims=True)
    return float(np.sum(table * np.log(table / independent)))


def product(p: np.ndarray) -> list[tuple[int, ...]]:
    return list(itertools.product(range(p.shape[2]), repeat=p.shape[1]))


def probabilities(posterior: Posterior, x: np.ndarray) -> np.ndarray:
    """p(y | x, θ) of every θ, `[θ, N, classes]`."""
    kernel = np.asarray(jax.tree.leaves(posterior.belief.stacked)[0])
    logits = np.einsum("ni,sik->snk", x, kernel)
    logits = np.concatenate([np.zeros_like(logits), logits], 2) if logits.shape[2] == 1 else logits
    return np.exp(logits) / np.exp(logits).sum(2, keepdims=True)


@for_each("likelihood, outputs", [(lamu.likelihoods.Categorical(3), 3), (lamu.likelihoods.Bernoulli(), 1)])
def test_bald_is_the_mutual_information_of_a_discrete_posterior(likelihood: Any, outputs: int) -> None:
    posterior, x = discrete(likelihood, outputs, Sampled())
    p = probabilities(posterior, x)
    expected = [mutual_information(p[:, i : i + 1]) for i in range(5)]
    chosen = bald(posterior, x, 2, key=key())
    np.testing.assert_allclose(chosen.scores, expected, rtol=1e-5)
    assert chosen.indices.tolist() == np.argsort(expected)[::-1][:2].tolist()


def test_a_batch_has_the_largest_joint_information_step_by_step() -> None:
    posterior, x = discrete(lamu.likelihoods.Categorical(3), 3, Sampled())
    p = probabilities(posterior, x)
    taken: list[int] = []
    for _ in range(4):
        left = [i for i in range(5) if i not in taken]
        taken.append(max(left, key=lambda i: mutual_information(p[:, [*taken, i]])))
    found = _joint_classes(np.moveaxis(p, 0, 1), WEIGHTS, 4, np.random.default_rng(0), 1000)
    assert found.indices.tolist() == taken
    np.testing.assert_allclose(found.scores, [mutual_information(p[:, [i]]) for i in range(5)], rtol=1e-6)
    twice = np.concatenate([x, x])  # a copy says less than another row does, and no row is taken twice
    assert len(set(batch_bald(posterior, twice, 10, key=key()).indices.tolist())) == 10


def test_drawn_configurations_estimate_the_sum_over_all() -> None:
    """H(y₁, y₂, y₃) by 20,000 drawn labels of the first two, within five standard errors of the sum over 27."""
    posterior, x = discrete(lamu.likelihoods.Categorical(3), 3, Sampled())
    p = probabilities(posterior, x)
    exact = p[:, 0, :, None, None] * p[:, 1, None, :, None] * p[:, 2, None, None]
    due = entr(np.einsum("s,sabc->abc", WEIGHTS, exact)).sum()
    joint = _drawn_configurations(np.random.default_rng(0), np.moveaxis(p[:, :2], 0, 1), WEIGHTS, 20_000)
    each = entr((joint * WEIGHTS) @ p[:, 2]).sum(axis=1) / (joint @ WEIGHTS)
    assert abs(each.mean() - due) <= ERRORS * each.std() / np.sqrt(len(each)), (each.mean(), due)
    few = _joint_classes(np.moveaxis(p, 0, 1), WEIGHTS, 4, np.random.default_rng(0), 3)
    assert len(set(few.indices.tolist())) == 4


def test_a_batch_of_numbers_has_the_largest_determinant_step_by_step() -> None:
    root, noise = NUMBERS.normal(size=(3, 6, 2)), NUMBERS.uniform(0.5, 2.0, size=(6, 1))
    single = root[..., :1]
    covariance = np.einsum("sn,sm->nm", single[..., 0], single[..., 0])

    def gain(rows: list[int]) -> float:
        s2 = np.diag(noise[rows, 0])
        return float(np.linalg.slogdet(covariance[np.ix_(rows, rows)] + s2)[1] - np.linalg.slogdet(s2)[1]) / 2

    taken: list[int] = []
    for _ in range(4):
        taken.append(max((i for i in range(6) if i not in taken), key=lambda i: gain([*taken, i])))
    found = _joint_numbers(single, noise, 4)
    assert found.indices.tolist() == taken
    np.testing.assert_allclose(found.scores, [gain([i]) for i in range(6)], rtol=1e-6)


def gaussian(mean: np.ndarray, covariance: np.ndarray, noise: float = 0.5) -> Posterior:
    """Returns the posterior of a linear function of two inputs without a bias."""
    model = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(noise))
    start = model.init(key(), lamu.data.Batch.of(jnp.ones((1, 2)), jnp.zeros(1)))[0]["network"]
    weights = jax.tree.map(lambda leaf: jnp.asarray(mean).reshape(leaf.shape), start)
    belief = Product(
        {"network": Gaussian(weights, Dense(jnp.asarray(np.linalg.inv(covariance)))), "likelihood": Point({})}
    )
    return Posterior(model, belief, {}, Linearised(), key())


MEAN, COVARIANCE = np.array([0.3, -0.2]), np.array([[0.6, 0.25], [0.25, 0.3]])
X = np.array([[1.0, 0.0], [0.0, 1.5], [1.0, 1.0], [-0.5, 0.5]])


def test_information_of_a_linear_function_is_that_of_normals() -> None:
    variance = np.einsum("ni,ij,nj->n", X, COVARIANCE, X)
    found = information(gaussian(MEAN, COVARIANCE).predict(X))
    np.testing.assert_allclose(found, np.log1p(variance / 0.25) / 2, rtol=1e-5)


def test_thompson_sampling_takes_the_best_of_a_draw_and_no_row_twice() -> None:
    posterior = gaussian(MEAN, COVARIANCE)
    chosen = thompson(posterior, X, 4, key=key())
    assert isinstance(chosen, Chosen)
    assert sorted(chosen.indices.tolist()) == [0, 1, 2, 3]
    assert chosen.indices[0] == jnp.argmax(chosen.scores[0])
    np.testing.assert_allclose(chosen.scores, function_draws(posterior, X, 4, key=key()), rtol=1e-6)


def test_a_candidate_is_the_best_of_a_draw_with_its_posterior_probability() -> None:
    """Two million draws of the weights by NumPy say how often each of four candidates is best, from 1 % to 60 %."""
    draws = 4000
    values = function_draws(gaussian(MEAN, COVARIANCE), X, draws, key=key())
    found = np.bincount(np.argmax(values, axis=1), minlength=4) / draws
    weights = np.random.default_rng(1).multivariate_normal(MEAN, COVARIANCE, 2_000_000)
    due = np.bincount(np.argmax(weights @ X.T, axis=1), minlength=4) / len(weights)
    assert (np.abs(found - due) <= ERRORS * np.sqrt(due * (1 - due) / draws) + 1 / draws).all(), (found, due)


def test_an_arm_is_tried_with_the_probability_that_it_is_best() -> None:
    """P(f₁ > f₂) = Φ((m₁ − m₂) / √(v₁ + v₂)) of two arms whose draws are independent, at two contexts."""
    arms = [gaussian(MEAN, COVARIANCE), gaussian(np.array([-0.4, 0.5]), COVARIANCE / 4)]
    rows = 2000
    for x in X[:2]:
        tried = np.asarray(thompson_arms(arms, np.repeat(x[None], rows, 0), key=key()))
        variance = x @ COVARIANCE @ x
        away = x @ (np.array([-0.4, 0.5]) - MEAN)
        due = stats.norm.cdf(away / np.sqrt(variance * 1.25))
        assert abs(tried.mean() - due) <= ERRORS * np.sqrt(due * (1 - due) / rows), (tried.mean(), due)


def test_expected_improvement_is_that_of_quadrature() -> None:
    posterior, best = gaussian(MEAN, COVARIANCE), 0.4
    mean, deviation = X @ MEAN, np.sqrt(np.einsum("ni,ij,nj->n", X, COVARIANCE, X))
    gain = lambda f, m, s: (f - best) * stats.norm.pdf(f, m, s)
    due = [integrate.quad(gain, best, m + 12 * s, (m, s))[0] for m, s in zip(mean, deviation, strict=True)]
    chosen = expected_improvement(posterior, X, best, 2, key=key())
    np.testing.assert_allclose(chosen.scores, due, rtol=1e-5)
    assert chosen.indices.tolist() == np.argsort(due)[::-1][:2].tolist()


def test_draws_are_functions_of_the_belief() -> None:
    """The same key is the same function at other rows; of a chain and an ensemble draws are random, each time."""
    posterior = gaussian(MEAN, COVARIANCE)
    whole = function_draws(posterior, X, 3, key=key())
    np.testing.assert_allclose(function_draws(posterior, X[1:3], 3, key=key()), whole[:, 1:3], rtol=1e-6)
    weights = WEIGHTS
    for rule in (Sampled(), Pooling(Sampled())):
        posterior, x = discrete(lamu.likelihoods.Gaussian(1.0), 1, rule)
        kernel = np.asarray(jax.tree.leaves(posterior.belief.stacked)[0])[..., 0]
        values = np.asarray(function_draws(posterior, x, 2000, key=key()))
        member = np.argmin(np.abs(values[:, None] - (kernel @ x.T)[None]).sum(2), axis=1)
        np.testing.assert_allclose(values, (kernel @ x.T)[member], atol=1e-5)
        found = np.bincount(member, minlength=4) / 2000
        assert (np.abs(found - weights) <= ERRORS * np.sqrt(weights * (1 - weights) / 2000)).all(), found


class Unnamed:
    """A posterior of another library, of which only predictions are known: six draws that are all alike."""

    def __init__(self, posterior: Posterior) -> None:
        self.posterior = posterior

    def predict(self, x: Any, samples: int, key: Any) -> Any:
        (_, part), *_ = self.posterior.predict(x, samples=samples, key=key).chunks()
        return MixturePredictive.equal(part.likelihood, {}, jnp.repeat(part.f, 6, axis=0) * (1 + 1e-15 * X6), True)


def test_what_cannot_be_chosen_is_refused() -> None:
    posterior = gaussian(MEAN, COVARIANCE)
    classes, x = discrete(lamu.likelihoods.Categorical(3), 3, Sampled())
    point = Posterior(classes.model, Point(classes.belief.member(0).mean), {}, Sampled(), key())
    one, x_one = discrete(lamu.likelihoods.Gaussian(1.0), 1, Sampled())
    numbers = replace(one, belief=Ensemble(Point(jax.tree.map(lambda leaf: leaf[None], one.belief.member(0).mean))))
    graph = lamu.ConjugateModel(lamu.observations.Bernoulli(), lamu.families.Beta(1.0, 1.0))
    without = lamu.fit(graph, np.array([1, 0, 1]), lamu.algorithms.conjugate(), progress=False).posterior
    for error, text, asked in (
        (ValueError, "ask for 1 to 4", lambda: thompson(posterior, X, 5, key=key())),
        (
            ValueError,
            "n=0 is not possible; give a whole number of at least 1",
            lambda: bald(posterior, X, 0, key=key()),
        ),
        (ValueError, "ask for 1 to 4", lambda: bald(posterior, X, 5, key=key())),
        (ValueError, "best=nan is not a finite", lambda: expected_improvement(posterior, X, np.nan, key=key())),
        (ValueError, "best=.* is not a finite", lambda: expected_improvement(posterior, X, MEAN, key=key())),
        (ValueError, "the posterior is one point", lambda: bald(point, x, key=key())),
        (ValueError, "the posterior is one point", lambda: bald(Unnamed(point), x, key=key())),
        (ValueError, "the posterior is one point", lambda: batch_bald(point, x, 2, key=key())),
        (ValueError, "the posterior is one point", lambda: thompson(numbers, x_one, key=key())),
        (TypeError, "no largest", lambda: thompson(classes, x, key=key())),
        (TypeError, "no largest", lambda: expected_improvement(classes, x, 0.5, key=key())),
        (TypeError, "a model with inputs", lambda: function_draws(without, 3, 2, key=key())),
        (ValueError, "between 1 arms", lambda: thompson_arms([posterior], X, key=key())),
    ):
        with pytest.raises(error, match=text):
            asked()
