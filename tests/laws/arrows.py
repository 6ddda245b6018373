"""Laws of arrows: how a precision moves towards its target, and how far a belief moves in a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.families import Gaussian
from lamu.geometry import (
    Accumulation,
    Bounded,
    Compressed,
    Factorwise,
    Guarded,
    Retraction,
    Shifted,
    Shortened,
    Straight,
)
from lamu.operators import (
    Dense,
    Diagonal,
    Kronecker,
    KroneckerFactored,
    LowRank,
    LowRankStructure,
    Scalar,
    StaleFactors,
)
from lamu.update_rules import Inverse
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("arrows", "arrow bounded damped factors metric positive projecting structure unforgetting")


@dataclass(frozen=True)
class Arrow:
    """A geometry, as the subject of the laws about how a precision moves."""

    move: Callable[[Any, Any, Any], Any]


def operators(structure: Any) -> tuple[Any, Any]:
    generator = np.random.default_rng(3)
    root, other = generator.normal(size=(2, 4, 4))
    precision, target = root @ root.T + np.eye(4), other + other.T
    if structure is Dense:
        return Dense(jnp.asarray(precision)), Dense(jnp.asarray(target))
    if structure is Diagonal:
        return Diagonal(jnp.asarray(np.diag(precision))), Diagonal(jnp.asarray(np.diag(target)))
    return Scalar(jnp.asarray(precision[0, 0])), Scalar(jnp.asarray(target[0, 0]))


LIKE = jnp.zeros(4)
STRUCTURES = (Dense, Diagonal, Scalar)


@law("arrows", when="arrow")
def the_arrow_is_the_rule_to_first_order(row: Row) -> None:
    for structure in STRUCTURES:
        precision, target = operators(structure)
        gaps = []
        for rate in (1e-2, 5e-3):
            moved = row.subject.move(precision, target, rate).dense(LIKE)
            straight = (1 - rate) * precision.dense(LIKE) + rate * target.dense(LIKE)
            gaps.append(float(jnp.max(jnp.abs(moved - straight))))
        assert gaps[1] <= gaps[0] / 3.9 + 1e-14  # halving the rate quarters a second-order difference


@law("arrows", when="arrow positive")
def the_arrow_stays_in_the_cone(row: Row) -> None:
    """At every rate, also where the straight step leaves it (which is checked too, so that the law says something)."""
    for structure in STRUCTURES:
        precision, target = operators(structure)
        target = jax.tree.map(lambda h: -50.0 * jnp.abs(h), target)
        straight = Straight().move(precision, target, 0.9).dense(LIKE)
        assert np.linalg.eigvalsh(straight).min() < 0
        for rate in (0.1, 0.9, 1.0, 3.0):
            assert np.linalg.eigvalsh(row.subject.move(precision, target, rate).dense(LIKE)).min() > 0


@law("arrows", when="arrow")
def the_target_is_a_fixed_point(row: Row) -> None:
    for structure in STRUCTURES:
        precision, _ = operators(structure)
        moved = row.subject.move(precision, precision, 0.3).dense(LIKE)
        np.testing.assert_allclose(moved, precision.dense(LIKE), rtol=1e-12)


@law("arrows", when="unforgetting")
def nothing_is_forgotten(row: Row) -> None:
    """What came first counts as much as what came last: two steps in either order are one sum."""
    for structure in STRUCTURES:
        precision, target = operators(structure)
        move = row.subject.move
        one, other = (
            move(move(precision, target, 0.3), precision, 0.3),
            move(move(precision, precision, 0.3), target, 0.3),
        )
        expected = 1.3 * precision.dense(LIKE) + 0.3 * target.dense(LIKE)
        for moved in (one, other):
            np.testing.assert_allclose(moved.dense(LIKE), expected, rtol=1e-12)


@law("arrows", when="arrow")
def it_says_whether_it_stays_in_the_cone(row: Row) -> None:
    """`is_positive` is asked of what becomes of a hostile target, and agrees with the eigenvalues."""
    for structure in STRUCTURES:
        precision, target = operators(structure)
        moved = row.subject.move(precision, jax.tree.map(lambda h: -50.0 * jnp.abs(h), target), 0.9)
        inside = bool(np.linalg.eigvalsh(moved.dense(LIKE)).min() > 0)
        assert bool(moved.is_positive(LIKE)) == inside
        assert inside == row.extras["stays_positive"]
        assert bool(precision.is_positive(LIKE))
        assert not bool(jax.tree.map(lambda s: s * jnp.nan, precision).is_positive(LIKE))


@law("arrows", when="arrow bounded")
def the_divergence_is_bounded(row: Row) -> None:
    """KL(new ‖ old) by NumPy is ε where the whole step would go farther, and the whole step is taken where not.

    A scalar stands for one coordinate.
    """
    for structure in STRUCTURES:
        precision, target = operators(structure)
        like = LIKE[:1] if structure is Scalar else LIKE
        for sign, rate in ((1.0, 0.5), (-1.0, 1.0), (1.0, 1e-3)):
            bent = jax.tree.map(lambda h, sign=sign: sign * 5.0 * jnp.abs(h), target)
            whole = Straight().move(precision, bent, rate).dense(like)
            old, new = precision.dense(like), row.subject.move(precision, bent, rate).dense(like)
            found = divergence(new, old)
            far = not np.linalg.eigvalsh(whole).min() > 0 or divergence(whole, old) > row.extras["epsilon"]
            if far:
                np.testing.assert_allclose(found, row.extras["epsilon"], rtol=1e-7)
            else:
                np.testing.assert_array_equal(new, whole)
        assert not far, "the last step is a short one"


@law("arrows", when="metric bounded")
def the_mean_moves_within_the_bound(row: Row) -> None:
    """½ dᵀ S d is ε where the base's direction is longer, and the direction is the base's: along S⁻¹ g in any case."""
    for structure in STRUCTURES:
        precision, _ = operators(structure)
        for length in (3.0, 1e-3):
            gradient = length * jnp.array([1.0, -2.0, 0.5, 1.5])
            found, whole = row.subject.direction(precision, gradient, 1, 0.1), precision.solve(gradient)
            energy, most = (float(d @ precision.matvec(d)) / 2 for d in (found, whole))
            np.testing.assert_allclose(energy, min(row.extras["epsilon"], most), rtol=1e-12)
            np.testing.assert_allclose(found, whole * np.sqrt(energy / most), rtol=1e-9)


@law("arrows", when="projecting")
def the_projection_keeps_rank_and_diagonal(row: Row) -> None:
    """Beside the straight step of dense matrices: the same diagonal, no more columns, and the best of them."""
    generator = np.random.default_rng(5)
    root, other = (jnp.asarray(generator.normal(size=(2, 4))) for _ in range(2))
    values, more = (jnp.asarray(generator.uniform(0.5, 2.0, size=4)) for _ in range(2))
    moved = row.subject.move(LowRank(root, values), LowRank(other, more), 0.3)
    whole = 0.7 * LowRank(root, values).dense(LIKE) + 0.3 * LowRank(other, more).dense(LIKE)
    np.testing.assert_allclose(jnp.diagonal(moved.dense(LIKE)), jnp.diagonal(whole), rtol=1e-12)
    assert moved.root.shape == (2, 4)
    columns = np.linalg.eigvalsh(0.7 * root.T @ root + 0.3 * other.T @ other)
    np.testing.assert_allclose(np.linalg.eigvalsh(moved.root.T @ moved.root)[-2:], columns[-2:], rtol=1e-9)


def factors(seed: int) -> Kronecker:
    one, two = np.random.default_rng(seed).normal(size=(2, 2, 2))
    return Kronecker(jnp.asarray(one @ one.T + np.eye(2)), jnp.asarray(two @ two.T + np.eye(2)), jnp.asarray(0.3))


@law("arrows", when="factors")
def every_factor_has_a_line_of_its_own(row: Row) -> None:
    """And so has the shift; the product of the moved factors is not the moved product."""
    precision, target = factors(1), factors(2)
    moved = row.subject.move(StaleFactors.of(precision), target, 0.25).fresh
    for found, old, new in zip(*map(jax.tree.leaves, (moved, precision, target)), strict=True):
        np.testing.assert_allclose(found, 0.75 * old + 0.25 * new, rtol=1e-12)
    straight = 0.75 * precision.dense(LIKE) + 0.25 * target.dense(LIKE)
    assert np.max(np.abs(moved.dense(LIKE) - straight)) > 0.1


@law("arrows", when="metric damped")
def the_damping_is_inside_the_inverse(row: Row) -> None:
    precision, gradient = factors(1), jnp.array([1.0, -2.0, 0.5, 1.5])
    expected = np.linalg.solve(precision.dense(LIKE) + row.extras["damping"] * np.eye(4), gradient)
    np.testing.assert_allclose(row.subject.direction(precision, gradient, 1, 0.1), expected, rtol=1e-10)


@law("arrows", when="structure")
def a_structure_starts_at_the_diagonal(row: Row) -> None:
    """What a belief's precision is made of at the first step: one width, which every structure holds exactly."""
    like = {"bias": jnp.full(2, 1.7), "kernel": jnp.full((3, 2), 1.7)}
    np.testing.assert_allclose(row.subject.from_diagonal(like).dense(like), 1.7 * np.eye(8), rtol=1e-12)


def divergence(new: Any, old: Any) -> float:
    """KL of two Gaussians about one mean, by their precisions."""
    ratio = np.linalg.solve(new, old)
    return float(np.trace(ratio) - len(ratio) - np.linalg.slogdet(ratio)[1]) / 2


class Rooted:
    """A structure that takes variances for standard deviations."""

    def from_diagonal(self, diagonal: Any) -> Any:
        return LowRankStructure(2).from_diagonal(jax.tree.map(jnp.sqrt, diagonal))


accumulation = row("arrows", "accumulation", Arrow(Accumulation().move), "unforgetting")
twin(accumulation, "forgets", "nothing_is_forgotten", Arrow(Straight().move))
compressed = row("arrows", "compressed", Arrow(Compressed().move), "projecting")
twin(
    compressed,
    "columns dropped",
    "the_projection_keeps_rank_and_diagonal",
    Arrow(lambda s, h, r: LowRank(jnp.sqrt(1 - r) * s.root, (1 - r) * s.values + r * h.values)),
)
factorwise = row("arrows", "factorwise", Arrow(Factorwise(every=3).move), "factors")
twin(
    factorwise,
    "one factor alone",
    "every_factor_has_a_line_of_its_own",
    Arrow(lambda s, h, r: Factorwise().move(s, replace(h, output_factor=s.fresh.output_factor), r)),
)
shifted = row("arrows", "shifted", Shifted(0.3), "metric damped", damping=0.3)
twin(shifted, "damped twice", "the_damping_is_inside_the_inverse", Shifted(0.6))
row("arrows", "layers", KroneckerFactored(), "structure")
low_rank = row("arrows", "low rank", LowRankStructure(2), "structure")
twin(low_rank, "a standard deviation", "a_structure_starts_at_the_diagonal", Rooted())
straight = row("arrows", "straight", Arrow(Straight().move), "arrow", stays_positive=Straight().stays_positive)
retraction = row(
    "arrows", "retraction", Arrow(Retraction().move), "arrow positive", stays_positive=Retraction().stays_positive
)


def guarded_move(precision: Any, target: Any, rate: float) -> Any:
    """The step of a Gaussian about zero, whose natural parameters are (0, −S/2)."""
    step = Guarded().step(Gaussian(LIKE, precision), (LIKE, target.scale(-0.5)), rate)
    return step.precision


guarded = row("arrows", "guarded", Arrow(guarded_move), "arrow positive", stays_positive=Guarded().stays_positive)
twin(
    guarded,
    "unguarded",
    "the_arrow_stays_in_the_cone it_says_whether_it_stays_in_the_cone",
    Arrow(Straight().move),
)
bounded = row(
    "arrows", "bounded", Arrow(Bounded(epsilon=0.02).move), "arrow positive bounded", stays_positive=True, epsilon=0.02
)
twin(bounded, "unbounded", "the_divergence_is_bounded", Arrow(Straight().move))
twin(
    bounded,
    "half the bound",
    "the_divergence_is_bounded",
    Arrow(Bounded(epsilon=0.01).move),
)
twin(
    bounded,
    "the way back",
    "the_divergence_is_bounded",
    Arrow(lambda s, h, r: Bounded(epsilon=0.02).move(s, jax.tree.map(lambda a, b: 2 * a - b, s, h), r)),
)


shortened = row("arrows", "shortened", Shortened(Inverse(), 0.02), "metric bounded", epsilon=0.02)
twin(shortened, "not shortened", "the_mean_moves_within_the_bound", Inverse())
twin(shortened, "half as far", "the_mean_moves_within_the_bound", Shortened(Inverse(), 0.005))


def without_half(precision: Any, target: Any, rate: float) -> Any:
    delta = jax.tree.map(lambda s, h: h - s, precision, target)
    return jax.tree.map(lambda s, d, b: s + rate * d + rate / 2 * b, precision, delta, precision.sandwich(delta))


twin(retraction, "bend of first order", "the_arrow_is_the_rule_to_first_order", Arrow(without_half))
twin(
    retraction,
    "bend dropped",
    "the_arrow_stays_in_the_cone it_says_whether_it_stays_in_the_cone",
    Arrow(Straight().move),
)
twin(
    straight,
    "rate of the old belief",
    "the_arrow_is_the_rule_to_first_order the_target_is_a_fixed_point",
    Arrow(lambda s, h, r: jax.tree.map(lambda a, b: a + r * b, s, h)),
)
