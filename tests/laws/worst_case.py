"""Laws of the worst cases, beside their formulas on a logistic regression whose loss is written by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import likelihoods, networks, tree
from lamu.data import Batch
from lamu.expectations import Delta
from lamu.expectations.worst_case import FenchelRelaxation, WorstCase, WorstCaseOfDraws
from lamu.families import Gaussian
from lamu.model import Model
from lamu.objective import AllParameters, BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import Hessian, NoCurvature, SquaredGradient
from lamu.operators import Diagonal
from lamu.priors import Normal
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("worst_case", "ascent drawn")

RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(7, 2)), np.array([1, 0, 1, 1, 0, 0, 1])
DESIGN = np.column_stack([np.ones(7), X])
N, DELTA = 30.0, 1.7
MODEL = Model(networks.Linear(), likelihoods.Bernoulli(), Normal(DELTA**-0.5))
MEAN = np.array([0.3, -0.8, 0.6])
KEY = jax.random.key(6)


def data_gradient(theta: np.ndarray) -> np.ndarray:
    return DESIGN.T @ (1 / (1 + np.exp(-DESIGN @ theta)) - Y) / len(Y)


def evaluate(row: Row, space: Any, curvature: Any = None) -> tuple[Any, Any]:
    """The evaluation, and the belief's precision a row."""
    params, _ = MODEL.init(jax.random.key(0), Batch.of(X, Y))
    coordinates, rest = space.split(params)
    mean = tree.ravel(coordinates)[1](jnp.asarray(MEAN))
    objective = Objective(MODEL, N, temperature=0.5)
    belief = Gaussian(mean, Diagonal(jax.tree.map(lambda leaf: 2.0 + leaf**2, mean)))
    conjugate = isinstance(space, NetworkParameters)
    loss = BatchLoss(objective, Batch.of(X, Y), {}, space, rest, conjugate=conjugate)
    found = row.subject.evaluate(jax.random.clone(KEY), belief, loss, curvature or NoCurvature(), Diagonal)
    scale = belief.precision.scale(1 / objective.concentration)
    return found, np.asarray(tree.ravel(scale.values)[0])


@law("worst_case")
def gradient_is_that_at_the_worst_point(row: Row) -> None:
    found, scale = evaluate(row, NetworkParameters())
    worst = row.extras["worst"](scale)
    np.testing.assert_allclose(tree.ravel(found.gradient)[0], data_gradient(worst), rtol=1e-10)


@law("worst_case")
def prior_stays_at_the_mean(row: Row) -> None:
    """Where it is a part of the loss, its gradient, value and curvature are added, and it moves no worst point."""
    without, scale = evaluate(row, NetworkParameters(), SquaredGradient())
    found, _ = evaluate(row, AllParameters(), SquaredGradient())
    expected = data_gradient(row.extras["worst"](scale)) + DELTA / N * MEAN
    np.testing.assert_allclose(tree.ravel(found.gradient)[0], expected, rtol=1e-10)
    prior = -float(np.sum(-0.5 * DELTA * MEAN**2 + 0.5 * np.log(DELTA / (2 * np.pi)))) / N
    np.testing.assert_allclose(found.value, without.value + prior, rtol=1e-10)
    more = tree.ravel(found.curvature.values)[0] - tree.ravel(without.curvature.values)[0]
    np.testing.assert_allclose(more, np.full(3, DELTA / N), rtol=1e-9)


@law("worst_case")
def without_a_radius_nothing_is_worse_than_where_the_ascent_starts(row: Row) -> None:
    still = Row(row.kind, row.name, row.extras["at_radius"](row.subject, 0.0), row.traits, row.extras)
    found, scale = evaluate(still, NetworkParameters())
    start = row.extras.get("start", lambda scale: MEAN)(scale)
    np.testing.assert_allclose(tree.ravel(found.gradient)[0], data_gradient(start), rtol=1e-10)


@law("worst_case", when="drawn")
def curvature_is_of_the_draw(row: Row) -> None:
    found, scale = evaluate(row, NetworkParameters(), SquaredGradient())
    drawn = data_gradient(draw(scale))
    np.testing.assert_allclose(tree.ravel(found.curvature.values)[0], drawn**2, rtol=1e-10)


@law("worst_case", when="ascent")
def the_loss_is_no_smaller_there(row: Row) -> None:
    """And curvature is taken there too."""
    found, scale = evaluate(row, NetworkParameters(), Hessian())
    worst = row.extras["worst"](scale)
    p = 1 / (1 + np.exp(-DESIGN @ worst))
    value = -np.mean(Y * np.log(p) + (1 - Y) * np.log(1 - p))
    np.testing.assert_allclose(found.value, value, rtol=1e-10)
    hessian = DESIGN.T @ ((p * (1 - p))[:, None] * DESIGN) / len(Y)
    np.testing.assert_allclose(tree.ravel(found.curvature.values)[0], np.diagonal(hessian), rtol=1e-10)
    delta, _ = evaluate(Row(row.kind, "delta", Delta(), row.traits, row.extras), NetworkParameters())
    assert found.value > delta.value


def draw(scale: np.ndarray) -> np.ndarray:
    """The very draw, by a copy of its key."""
    like = {"layers": {0: {"bias": jnp.zeros(1), "kernel": jnp.zeros((2, 1))}}}
    noise = tree.normal(jax.random.split(jax.random.clone(KEY), 3)[0], like)
    return MEAN + np.asarray(tree.ravel(noise)[0]) / np.sqrt(scale * N / 0.5)


def at_norm(scale: np.ndarray) -> np.ndarray:
    g = data_gradient(MEAN)
    return MEAN + 0.4 * g / np.linalg.norm(g)


def at_scaled(scale: np.ndarray) -> np.ndarray:
    return MEAN + 0.2 * data_gradient(draw(scale)) / scale


def above_the_draw(scale: np.ndarray) -> np.ndarray:
    return draw(scale) + 0.2 * data_gradient(draw(scale)) / scale


def at_radius(subject: Any, radius: float) -> Any:
    return replace(subject, radius=radius)


worst = row("worst_case", "WorstCase", WorstCase(0.4), "ascent", worst=at_norm, at_radius=at_radius)
relaxed = row("worst_case", "FenchelRelaxation", FenchelRelaxation(0.2), "drawn", worst=at_scaled, at_radius=at_radius)
of_draws = row(
    "worst_case",
    "WorstCaseOfDraws",
    WorstCaseOfDraws(0.2),
    "drawn",
    worst=above_the_draw,
    start=draw,
    at_radius=at_radius,
)


@dataclass(frozen=True)
class Told:
    """A worst case that is told something else."""

    base: Any
    change: Any
    radius: float = 0.0

    def evaluate(self, key: Any, belief: Any, loss: Any, curvature: Any, structure: Any) -> Any:
        return self.change(self.base, key, belief, loss, curvature, structure)


POINT = "gradient_is_that_at_the_worst_point"


def perturbed_prior(base: Any, key: Any, belief: Any, loss: Any, curvature: Any, structure: Any) -> Any:
    """The maximum of the loss with its prior, as if the prior were data."""
    if loss.conjugate:
        return base.evaluate(key, belief, loss, curvature, structure)
    gradient = loss.gradient(belief.mean, None).coordinates
    norm = jnp.sqrt(tree.dot(gradient, gradient))
    theta = tree.add(belief.mean, gradient, 0.4 / norm)
    return curvature.evaluate(loss, theta, belief, structure, None)


def opposite(base: Any, key: Any, belief: Any, loss: Any, curvature: Any, structure: Any) -> Any:
    gradient = loss.gradient(belief.mean, None).coordinates
    theta = tree.add(belief.mean, gradient, -0.4 / jnp.sqrt(tree.dot(gradient, gradient)))
    return curvature.evaluate(loss, theta, belief, structure, None)


def at_the_draw(base: Any, key: Any, belief: Any, loss: Any, curvature: Any, structure: Any) -> Any:
    """The ascent from the draw and not from the mean, and the curvature of the worst point."""
    noise, _, _ = jax.random.split(key, 3)
    theta = belief.sample(noise)
    away = belief.precision.solve(loss.gradient(theta, None).coordinates)
    there = tree.add(theta, away, base.radius * loss.objective.concentration)
    return curvature.evaluate(loss, there, belief, structure, None)


twin(worst, "descends", f"{POINT} the_loss_is_no_smaller_there", Told(WorstCase(0.4), opposite))
twin(worst, "the prior perturbed", "prior_stays_at_the_mean", Told(WorstCase(0.4), perturbed_prior))
twin(worst, "another radius", f"{POINT} prior_stays_at_the_mean", WorstCase(0.5))
twin(
    worst,
    "a least radius",
    "without_a_radius_nothing_is_worse_than_where_the_ascent_starts",
    WorstCase(0.4),
    at_radius=lambda subject, radius: WorstCase(max(radius, 0.01)),
)
twin(relaxed, "from the draw", f"{POINT} curvature_is_of_the_draw", Told(FenchelRelaxation(0.2), at_the_draw))
twin(of_draws, "from the mean", POINT, FenchelRelaxation(0.2))
