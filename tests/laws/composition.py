"""Laws of composition: weights are on the simplex, the best there, and a weight of two is the row written twice.

A row's subject makes weights of members, or a posterior of one; predictions and evidences are stubs.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize, stats

import lamu
from lamu.composition import Composition, average, sandwich, stack
from lamu.families import Point
from lamu.posterior import Posterior
from lamu.predictives import GaussianPredictive, Sampled
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("composition", "rows evidence weights point")

RNG = np.random.default_rng(6)
X = RNG.normal(size=(7, 2))
Y = X @ np.array([1.0, -0.5]) + 0.5 * RNG.normal(size=7)
COUNTS = np.array([1.0, 3.0, 0.0, 2.0, 1.0, 1.0, 4.0])
CENTRES = ((1.2, -0.4, 0.4), (0.0, 0.0, 1.5), (0.4, 1.0, 0.8))


class Member:
    """A stub of a posterior: normal predictions about a line; it notes what it is asked."""

    def __init__(self, centre: tuple[float, ...], evidence: float = 0.0) -> None:
        *self.slopes, self.scale = centre
        self.evidence, self.temperature, self.data_size = evidence, 1.0, None
        self.model = SimpleNamespace(likelihood=lamu.likelihoods.Gaussian(self.scale))
        self.asked: list[Any] = []

    def mean(self, x: Any, offset: Any) -> Any:
        return np.asarray(x) @ np.array(self.slopes) + (0.0 if offset is None else np.asarray(offset))

    def predict(self, x: Any, samples: int = 32, key: Any = None, offset: Any = None) -> GaussianPredictive:
        self.asked.append((samples, key))
        centre = jnp.asarray(self.mean(x, offset))
        variance = jnp.full_like(centre, self.scale**2)
        return GaussianPredictive(centre, variance, variance)

    def density(self, x: Any, y: Any, offset: Any = None) -> Any:
        return stats.norm.pdf(y, self.mean(x, offset), self.scale)


def members() -> list[Member]:
    return [Member(centre, evidence) for centre, evidence in zip(CENTRES, (-3.0, -2.2, -4.0), strict=True)]


OFFSET = np.linspace(-0.5, 0.5, 7)


def stacked(strength: float, x: Any, y: Any, weight: Any, offset: Any) -> np.ndarray:
    return stack(members(), x, y, strength=strength, weight=weight, offset=offset).weights


STACKED = {
    strength: row(
        "composition",
        f"stacked, a pull of {strength:g} rows",
        lambda *data, strength=strength: stacked(strength, *data),
        "rows weights",
        strength=strength,
    )
    for strength in (0.0, 1.0, 5.0)
}


@law("composition", when="weights")
def weights_are_on_the_simplex_and_the_best_there(row: Row) -> None:
    """By another optimiser: sequential quadratic programming over the simplex."""
    found = row.subject(X, Y, COUNTS, OFFSET)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(), 1.0, rtol=1e-12)
    densities = np.stack([member.density(X, Y, OFFSET) for member in members()], axis=1)
    strength = row.extras["strength"]

    def loss(w: np.ndarray) -> float:
        return -float(COUNTS @ np.log(densities @ w) + strength / 3 * np.log(np.maximum(w, 1e-12)).sum())

    simplex = {"type": "eq", "fun": lambda w: w.sum() - 1}
    best = optimize.minimize(
        loss, np.full(3, 1 / 3), bounds=[(1e-9, 1)] * 3, constraints=[simplex], options={"ftol": 1e-12}
    )
    assert loss(np.maximum(found, 1e-9)) <= best.fun + 1e-6
    np.testing.assert_allclose(found, best.x, atol=2e-3)


@law("composition", when="rows")
def a_weight_of_two_is_the_row_written_twice(row: Row) -> None:
    repeated = np.repeat(np.arange(7), COUNTS.astype(int))
    found = row.subject(X, Y, COUNTS, OFFSET)
    expected = row.subject(X[repeated], Y[repeated], np.ones(len(repeated)), OFFSET[repeated])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@law("composition", when="rows")
def the_offset_is_a_part_of_the_prediction(row: Row) -> None:
    """With a known part taken from the targets in its place the weights are the same."""
    expected = row.subject(X, Y - OFFSET, COUNTS, None)
    np.testing.assert_allclose(row.subject(X, Y, COUNTS, OFFSET), expected, rtol=1e-5, atol=1e-7)


twin(
    STACKED[1.0],
    "of rows of equal weight",
    "weights_are_on_the_simplex_and_the_best_there a_weight_of_two_is_the_row_written_twice",
    lambda x, y, weight, offset: stacked(1.0, x, y, None, offset),
)
twin(
    STACKED[5.0],
    "without the offset",
    "the_offset_is_a_part_of_the_prediction",
    lambda x, y, weight, offset: stacked(5.0, x, y, weight, None),
)


# Evidence.

AVERAGED = row("composition", "averaged by evidence", average, "evidence")


@law("composition", when="evidence")
def weights_are_prior_times_evidence(row: Row) -> None:
    for prior in (None, (1.0, 2.0, 5.0)):
        odds = np.exp([-3.0, -2.2, -4.0]) * (1.0 if prior is None else np.array(prior))
        found = row.subject(members(), prior=prior)
        np.testing.assert_allclose(found.weights, odds / odds.sum(), rtol=1e-5)


@law("composition", when="evidence")
def a_composition_predicts_the_weighted_average(row: Row) -> None:
    """Members without weight are not asked, the others with keys of their own, and for as many samples."""
    given = [*members(), Member((9.0, 9.0, 1.0), evidence=-60.0)]
    found = row.subject(given)
    pred = found.predict(X, samples=5, key=jax.random.key(0), offset=OFFSET)
    density = sum(w * member.density(X, Y, OFFSET) for w, member in zip(found.weights, given, strict=True))
    np.testing.assert_allclose(np.exp(pred.log_prob(jnp.asarray(Y))), density, rtol=1e-5)
    assert [len(member.asked) for member in given] == [1, 1, 1, 0]
    assert {samples for member in given for samples, _ in member.asked} == {5}
    keys = {tuple(np.asarray(jax.random.key_data(key)).tolist()) for member in given for _, key in member.asked}
    assert len(keys) == 3


def equal_weights(posteriors: Any, prior: Any = None) -> Composition:
    found = average(posteriors, prior=prior)
    return Composition(found.posteriors, jnp.full(len(found.posteriors), -np.log(len(found.posteriors))))


twin(
    AVERAGED,
    "of equal weights",
    "weights_are_prior_times_evidence a_composition_predicts_the_weighted_average",
    equal_weights,
)


# The sandwich.


def sandwiched(x: Any, y: Any, weight: Any, offset: Any) -> np.ndarray:
    """The covariance of a linear model's two weights about a fixed point."""
    model = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(0.7), lamu.priors.Normal(2.0))
    point = Point({"network": {"layers": {0: {"kernel": jnp.array([[0.9], [-0.3]])}}}, "likelihood": {}})
    posterior = Posterior(model, point, {}, Sampled(), jax.random.key(0))
    data = {"x": x, "y": y, "weight": weight} | ({} if offset is None else {"offset": offset})
    network = sandwich(posterior, data).belief.factors["network"]
    return np.linalg.inv(network.precision.dense(network.mean))


SANDWICH = row("composition", "sandwich", sandwiched, "rows point")


@law("composition", when="point")
def the_covariance_is_hubers(row: Row) -> None:
    away = Y - OFFSET - X @ np.array([0.9, -0.3])
    H = (X * COUNTS[:, None]).T @ X / 0.49 + np.eye(2) / 4.0
    scores = X * away[:, None] / 0.49
    G = (scores * COUNTS[:, None]).T @ scores
    expected = np.linalg.inv(H) @ G @ np.linalg.inv(H)
    np.testing.assert_allclose(row.subject(X, Y, COUNTS, OFFSET), expected, rtol=1e-5)


twin(
    SANDWICH,
    "of squared weights",
    "the_covariance_is_hubers",
    lambda x, y, weight, offset: sandwiched(x, y, np.asarray(weight) ** 2, offset),
)
