"""Laws of what practical algorithms add to the rule: momenta and metrics, each beside its formula in plain NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.operators import Diagonal
from lamu.update_rules import (
    BiasCorrected,
    ByFanIn,
    Clipped,
    DampedInverse,
    HeavyBall,
    Inverse,
    InverseSquareRoot,
    MovingAverage,
    NoMomentum,
    PlainAverage,
    RootOfSum,
)
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("update_rules", "metric momentum")

LIKE = {"w": jnp.zeros((2, 3)), "b": jnp.zeros(())}
GRADIENTS = [tree.normal(jax.random.key(seed), LIKE) for seed in range(6)]
SCALE = jax.tree.map(lambda leaf: jnp.exp(leaf), tree.normal(jax.random.key(9), LIKE))

RADIUS = 2.5


def flat(a: Any) -> np.ndarray:
    return np.asarray(tree.ravel(a)[0])


def follow(momentum: Any, gradients: list[Any]) -> list[np.ndarray]:
    memory, followed = momentum.init(LIKE), []
    for count, gradient in enumerate(gradients, start=1):
        memory, direction = momentum.follow(memory, gradient, jnp.asarray(count, jnp.int32))
        followed.append(flat(direction))
    return followed


@law("update_rules", when="momentum")
def momentum_is_its_weighted_sum(row: Row) -> None:
    """What is followed at step t is Σ_s weight(t, s) g_s, the weights written out."""
    followed = follow(row.subject, GRADIENTS)
    for t, direction in enumerate(followed, start=1):
        expected = sum(row.extras["weight"](t, s) * flat(GRADIENTS[s - 1]) for s in range(1, t + 1))
        np.testing.assert_allclose(direction, expected, rtol=1e-12, atol=1e-14)


@law("update_rules", when="momentum")
def momentum_declares_whether_its_weights_sum_to_one(row: Row) -> None:
    last = follow(row.subject, [GRADIENTS[0]] * 40)[-1]
    assert row.subject.normalised == bool(np.allclose(last, flat(GRADIENTS[0]), rtol=1e-9))


@law("update_rules", when="metric")
def metric_is_its_formula(row: Row) -> None:
    for count in (1, 7):
        found = row.subject.direction(Diagonal(SCALE), GRADIENTS[0], jnp.asarray(count, jnp.int32), 0.25)
        expected = row.extras["formula"](flat(SCALE), flat(GRADIENTS[0]), count, 0.25)
        np.testing.assert_allclose(flat(found), expected, rtol=1e-12)


@law("update_rules")
def dtypes_are_preserved(row: Row) -> None:
    narrow = lambda a: jax.tree.map(lambda leaf: leaf.astype(jnp.float32), a)
    if "momentum" in row.traits:
        found = row.subject.follow(row.subject.init(narrow(LIKE)), narrow(GRADIENTS[0]), jnp.asarray(1, jnp.int32))
    else:
        found = row.subject.direction(Diagonal(narrow(SCALE)), narrow(GRADIENTS[0]), jnp.asarray(1, jnp.int32), 0.25)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(found))


@law("update_rules", when="metric")
def a_faithful_metric_is_the_inverse_of_a_narrow_belief(row: Row) -> None:
    """Where S is large, S⁻¹ is what a gradient meets: the step of a quadratic with Hessian S lands on its minimum.

    From so near to it that no step is clipped.
    """
    narrow, near = (jax.tree.map(lambda leaf, by=by: by * leaf, of) for by, of in ((1e12, SCALE), (0.1, GRADIENTS[0])))
    found = row.subject.direction(Diagonal(narrow), Diagonal(narrow).matvec(near), jnp.asarray(3, jnp.int32), 0.25)
    assert row.subject.is_precision == bool(np.allclose(flat(found), flat(near), atol=1e-12))


none = row("update_rules", "NoMomentum", NoMomentum(), "momentum", weight=lambda t, s: float(t == s))
trace = row("update_rules", "HeavyBall", HeavyBall(0.7), "momentum", weight=lambda t, s: 0.7 ** (t - s))
average = row(
    "update_rules",
    "MovingAverage",
    MovingAverage(0.7),
    "momentum",
    weight=lambda t, s: 0.3 * 0.7 ** (t - s) / (1 - 0.7**t),
)
plain = row("update_rules", "PlainAverage", PlainAverage(0.7), "momentum", weight=lambda t, s: 0.3 * 0.7 ** (t - s))
inverse = row("update_rules", "Inverse", Inverse(), "metric", formula=lambda s, g, t, r: g / s)
root = row(
    "update_rules",
    "InverseSquareRoot",
    InverseSquareRoot(0.1),
    "metric",
    formula=lambda s, g, t, r: g / (np.sqrt(s) + 0.1),
)
damped = row("update_rules", "DampedInverse", DampedInverse(0.3), "metric", formula=lambda s, g, t, r: g / (s + 0.3))
within = row("update_rules", "RootOfSum", RootOfSum(0.1), "metric", formula=lambda s, g, t, r: g / np.sqrt(s + 0.1))
clipped = row(
    "update_rules",
    "Clipped",
    # Wider than every gradient here, and narrower than some of the directions.
    Clipped(Inverse(), RADIUS),
    "metric",
    formula=lambda s, g, t, r: np.clip(g / s, -RADIUS, RADIUS),
)
BY_INPUTS = flat(jax.tree.map(lambda leaf: jnp.full_like(leaf, RADIUS / math.prod(leaf.shape[:-1])), LIKE))
by_inputs = row(
    "update_rules",
    "Clipped by fan-in",
    Clipped(Inverse(), ByFanIn(RADIUS, inputs=1)),
    "metric",
    formula=lambda s, g, t, r: np.clip(g / s, -BY_INPUTS, BY_INPUTS),
)
corrected = row(
    "update_rules",
    "BiasCorrected",
    BiasCorrected(InverseSquareRoot(0.1)),
    "metric",
    formula=lambda s, g, t, r: g / (np.sqrt(s / (1 - (1 - r) ** t)) + 0.1),
)


@dataclass(frozen=True)
class Changed:
    """A departure of which some answers are other ones."""

    base: Any
    changes: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.changes.get(name) or getattr(self.base, name)


def changed(of: Row, fault: str, laws: str, **changes: Any) -> None:
    twin(of, fault, laws, Changed(of.subject, changes))


def uncorrected(memory: Any, gradient: Any, count: Any) -> Any:
    memory, _ = average.subject.follow(memory, gradient, count)
    return memory, memory


def late(memory: Any, gradient: Any, count: Any) -> Any:
    return average.subject.follow(memory, gradient, count + 1)


def doubled(memory: Any, gradient: Any, count: Any) -> Any:
    return memory, tree.scale(gradient, 2.0)


def widened(memory: Any, gradient: Any, count: Any) -> Any:
    memory, followed = trace.subject.follow(memory, gradient, count)
    return memory, jax.tree.map(lambda leaf: leaf.astype(jnp.float64), followed)


BOTH = "momentum_is_its_weighted_sum momentum_declares_whether_its_weights_sum_to_one"
changed(average, "bias left in", "momentum_is_its_weighted_sum", follow=uncorrected)
changed(average, "count from two", "momentum_is_its_weighted_sum", follow=late)
changed(
    plain,
    "weights the wrong way round",
    "momentum_is_its_weighted_sum",
    follow=lambda v, g, t: (tree.add(tree.scale(g, 0.7), v, 0.3),) * 2,
)
changed(none, "doubled", BOTH, follow=doubled)
changed(trace, "normalised in name", "momentum_declares_whether_its_weights_sum_to_one", normalised=True)
changed(trace, "widened", "dtypes_are_preserved", follow=widened)
changed(
    inverse,
    "variance for precision",
    "metric_is_its_formula a_faithful_metric_is_the_inverse_of_a_narrow_belief",
    direction=lambda p, g, t, r: p.matvec(g),
)
changed(
    root,
    "eps under the root",
    "metric_is_its_formula",
    direction=lambda p, g, t, r: jax.tree.map(lambda s, g: g / jnp.sqrt(s + 0.1), p.values, g),
)
changed(
    clipped,
    "not clipped",
    "metric_is_its_formula",
    direction=lambda p, g, t, r: p.solve(g),
)
changed(by_inputs, "one radius for all leaves", "metric_is_its_formula", direction=clipped.subject.direction)
changed(
    damped,
    "damping in the step alone",
    "metric_is_its_formula",
    direction=lambda p, g, t, r: jax.tree.map(lambda g: g / 1.3, p.solve(g)),
)
changed(
    within,
    "eps outside the root",
    "metric_is_its_formula",
    direction=lambda p, g, t, r: jax.tree.map(lambda s, g: g / (jnp.sqrt(s) + 0.1), p.values, g),
)
changed(
    within,
    "a precision in name",
    "a_faithful_metric_is_the_inverse_of_a_narrow_belief",
    is_precision=True,
)
changed(
    corrected,
    "off by one step",
    "metric_is_its_formula",
    direction=lambda p, g, t, r: corrected.subject.direction(p, g, t + 1, r),
)
changed(
    corrected,
    "decay for rate",
    "metric_is_its_formula",
    direction=lambda p, g, t, r: corrected.subject.direction(p, g, t, 1 - r),
)
