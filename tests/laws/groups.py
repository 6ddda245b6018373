"""Laws of the groups of the Lie-group rule, on a loss that is known in closed form.

A row's subject is a group. Its extras: `log_volume`, the entropy of g · ε up to a constant, and `slope`, what the free
energy loses per unit of rate along the group's own step; both written out by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.geometry import (
    Additive,
    Affine,
    ClippedAffine,
    ExcitatoryInhibitory,
    FullAffine,
    Group,
    LogNormal,
    Multiplicative,
    Multiplied,
    Placement,
    Rayleigh,
)
from lamu.update_rules import ByFanIn
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("groups", "bounded gaussian")

KAPPA = 40.0
CENTRE = jnp.array([0.4, -1.1, 0.8])
HESSIAN = jnp.array([[1.5, 0.4, -0.2], [0.4, 0.8, 0.1], [-0.2, 0.1, 2.0]])
START = {"b": jnp.array([0.7]), "w": jnp.array([-0.9, 1.3])}
KEY = jax.random.key(2)


def flat(a: Any) -> Any:
    return tree.ravel(a)[0]


def loss(theta: Any) -> Any:
    """A quadratic mean loss."""
    away = flat(theta) - CENTRE
    return away @ HESSIAN @ away / 2


def element_of(row: Row) -> Any:
    """An element away from where groups start, so that scales differ."""
    element = row.subject.start(START, KAPPA)
    noise = row.subject.noise(jax.random.key(7), element)
    return row.subject.move(element, row.subject.pull(element, noise, jax.grad(loss)(START), KAPPA), 0.05)


@law("groups")
def a_step_goes_down_the_free_energy(row: Row) -> None:
    """At fixed noise, d/dρ of ℓ̄(g · ε) − H/κ is minus the squared length of X: sign, entropy and κ at once."""
    group = row.subject
    assert isinstance(group, Group)
    element = element_of(row)
    noise = group.noise(jax.random.clone(KEY), element)
    pull = group.pull(element, noise, jax.grad(loss)(group.act(element, noise)), KAPPA)

    def free_energy(rate: Any) -> Any:
        moved = group.move(element, pull, rate)
        return loss(group.act(moved, noise)) - row.extras["log_volume"](moved) / KAPPA

    np.testing.assert_allclose(jax.grad(free_energy)(0.0), -row.extras["slope"](pull), rtol=1e-9)


@law("groups")
def two_steps_along_one_direction_are_one(row: Row) -> None:
    """exp(−ρX) exp(−σX) = exp(−(ρ + σ)X): the exponential itself, and not its first terms."""
    group, element = row.subject, element_of(row)
    noise = group.noise(jax.random.clone(KEY), element)
    pull = group.pull(element, noise, jax.grad(loss)(group.act(element, noise)), KAPPA)
    twice = group.move(group.move(element, pull, 0.2), pull, 0.3)
    np.testing.assert_allclose(flat(twice), flat(group.move(element, pull, 0.5)), rtol=1e-9)


@law("groups", when="bounded")
def no_step_leaves_the_group(row: Row) -> None:
    """Signs, or a positive covariance, after pulls that are far too long, in either direction."""
    group, element = row.subject, element_of(row)
    for size in (-30.0, 30.0):
        pull = jax.tree.map(lambda leaf: jnp.full_like(leaf, size), element)  # noqa: B023  (used at once)
        if isinstance(group, FullAffine):
            pull = Placement(pull.shift, size * jnp.asarray(HESSIAN))
        moved = group.move(element, pull, 1.0)
        if isinstance(group, Multiplicative):
            np.testing.assert_array_equal(jnp.sign(flat(moved)), jnp.sign(flat(element)))
            assert np.all(flat(moved) != 0)
        elif isinstance(group, FullAffine):
            assert np.linalg.slogdet(moved.scale)[0] > 0
        else:
            assert np.all(flat(moved.scale) > 0)


@law("groups")
def belief_is_of_the_elements_draws(row: Row) -> None:
    """Mean and variance of g · ε beside those of the belief's own draws, 20,000 each.

    Six numbers within five standard errors: a false alarm once in 300,000 runs; the keys are fixed.
    """
    group, element = row.subject, element_of(row)
    keys = jax.random.split(jax.random.key(11), 20_000)
    acted = jax.jit(jax.vmap(lambda key: flat(group.act(element, group.noise(key, element)))))(keys)
    belief = group.belief(element)
    drawn = jax.vmap(flat)(belief.draws(jax.random.key(12), 20_000))
    error = np.std(acted, axis=0) / np.sqrt(20_000)
    assert np.all(np.abs(np.mean(acted, axis=0) - flat(belief.mean)) < 5 * error)
    assert np.all(np.abs(np.mean(drawn, axis=0) - flat(belief.mean)) < 5 * error)
    squares = [(np.asarray(draws) - np.asarray(flat(belief.mean))) ** 2 for draws in (acted, drawn)]
    spread = np.sqrt((squares[0].var(axis=0) + squares[1].var(axis=0)) / 20_000)
    assert np.all(np.abs(squares[0].mean(axis=0) - squares[1].mean(axis=0)) < 5 * spread)


@law("groups")
def starts_about_the_weights(row: Row) -> None:
    mean = row.subject.belief(row.subject.start(START, KAPPA)).mean
    np.testing.assert_allclose(flat(mean), flat(START), atol=2e-5)


@law("groups", when="gaussian")
def fixed_point_is_the_exact_gaussian(row: Row) -> None:
    """On a quadratic, with points of the noise's first and second moments in the place of draws."""
    group = row.subject
    points = np.sqrt(3) * np.concatenate([np.eye(3), -np.eye(3)])
    noises = [tree.ravel(START)[1](jnp.asarray(point)) for point in points]

    @jax.jit
    def step(element: Any) -> Any:
        pulls = [group.pull(element, e, jax.grad(loss)(group.act(element, e)), KAPPA) for e in noises]
        return group.move(element, jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *pulls), 0.2)

    element = group.start(START, KAPPA)
    for _ in range(200):
        element = step(element)
    belief = group.belief(element)
    expected = np.asarray(HESSIAN) if isinstance(group, FullAffine) else np.diag(np.diagonal(HESSIAN))
    np.testing.assert_allclose(flat(belief.mean), CENTRE, atol=1e-9)
    np.testing.assert_allclose(belief.precision.dense(belief.mean), KAPPA * expected, atol=1e-7)


def logs(parts: Any) -> Any:
    return jnp.sum(jnp.log(jnp.abs(flat(parts))))


def square(a: Any) -> Any:
    return jnp.sum(flat(a) ** 2)


additive = row("groups", "Additive", Additive(0.3), log_volume=lambda m: 0.0, slope=square)
multiplicative = row(
    "groups", "Multiplicative", Multiplicative(LogNormal(0.3)), "bounded", log_volume=logs, slope=square
)
both = row("groups", "ExcitatoryInhibitory", ExcitatoryInhibitory(Rayleigh()), "bounded", log_volume=logs, slope=square)
affine = row(
    "groups",
    "Affine",
    Affine(hess_init=0.5),
    "bounded gaussian",
    log_volume=lambda g: logs(g.scale),
    slope=lambda x: (square(x.shift) + square(x.scale) / 2) / KAPPA,
)
clipped = row(
    "groups",
    "ClippedAffine",
    ClippedAffine(hess_init=0.5, radius=ByFanIn(1e3), bound=1e3),
    "bounded gaussian",
    log_volume=lambda g: logs(g.scale),
    slope=lambda x: (square(x.shift) + square(x.scale) / 2) / KAPPA,
)
full = row(
    "groups",
    "FullAffine",
    FullAffine(hess_init=0.5),
    "bounded gaussian",
    log_volume=lambda g: jnp.linalg.slogdet(g.scale)[1],
    slope=lambda x: (square(x.shift) + square(x.scale) / 2) / KAPPA,
)


@dataclass(frozen=True)
class Changed:
    """A group of which some answers are other ones."""

    base: Any
    changes: dict[str, Any]

    def start(self, *a: Any) -> Any:
        return self.changes.get("start", self.base.start)(*a)

    def noise(self, *a: Any) -> Any:
        return self.base.noise(*a)

    def act(self, *a: Any) -> Any:
        return self.changes.get("act", self.base.act)(*a)

    def pull(self, *a: Any) -> Any:
        return self.changes.get("pull", self.base.pull)(*a)

    def move(self, *a: Any) -> Any:
        return self.changes.get("move", self.base.move)(*a)

    def belief(self, *a: Any) -> Any:
        return self.changes.get("belief", self.base.belief)(*a)


def changed(of: Row, fault: str, laws: str, **changes: Any) -> None:
    twin(of, fault, laws, Changed(of.subject, changes))


DOWN = "a_step_goes_down_the_free_energy"
changed(additive, "uphill", DOWN, move=lambda m, x, r: tree.add(m, x, r))
changed(
    multiplicative,
    "entropy of all rows",
    DOWN,
    pull=lambda w, e, g, k: multiplicative.subject.pull(w, e, g, 1.0),
)
changed(
    multiplicative,
    "gradient of w for that of log w",
    DOWN,
    pull=lambda w, e, g, k: (jax.tree.map(lambda e, g: e * g, e[0], g),),
)
changed(
    multiplicative,
    "first order",
    "two_steps_along_one_direction_are_one",
    move=lambda w, x, r: jax.tree.map(lambda w, x: w * (1 - r * x), w, x),
)
changed(
    both,
    "the difference loses its sign",
    "belief_is_of_the_elements_draws starts_about_the_weights",
    belief=lambda w: Multiplied((w[0],), Rayleigh()),
)
changed(
    affine,
    "standard deviation for variance",
    "belief_is_of_the_elements_draws fixed_point_is_the_exact_gaussian",
    belief=lambda g: affine.subject.belief(Placement(g.shift, jax.tree.map(jnp.sqrt, g.scale))),
)
changed(
    affine,
    "shift without its flow",
    "two_steps_along_one_direction_are_one",
    move=lambda g, x, r: Placement(
        jax.tree.map(lambda b, a, v: b - r * a * v, g.shift, g.scale, x.shift),
        jax.tree.map(lambda a, u: a * jnp.exp(-r * u / 2), g.scale, x.scale),
    ),
)
changed(
    affine,
    "κ forgotten",
    f"{DOWN} fixed_point_is_the_exact_gaussian",
    pull=lambda g, e, grad, k: affine.subject.pull(g, e, grad, 1.0),
)


@dataclass(frozen=True)
class Straightened(Affine):
    """Adds to the scale, as a step without the exponential would."""

    def move(self, element: Placement, pull: Placement, rate: Any) -> Placement:
        scale = jax.tree.map(lambda a, u: a - rate * a * u / 2, element.scale, pull.scale)
        return Placement(super().move(element, pull, rate).shift, scale)


twin(affine, "scale by addition", "no_step_leaves_the_group", Straightened(hess_init=0.5))
changed(
    full,
    "transposed",
    "a_step_goes_down_the_free_energy",
    pull=lambda g, e, grad, k: full.subject.pull(
        Placement(g.shift, g.scale.T + 0.1 * jnp.tri(3, dtype=jnp.float64)), e, grad, k
    ),
)
changed(
    full,
    "Cholesky for the inverse",
    "belief_is_of_the_elements_draws fixed_point_is_the_exact_gaussian",
    belief=lambda g: type(full.subject.belief(g))(g.shift, type(full.subject.belief(g).precision)(g.scale @ g.scale.T)),
)
