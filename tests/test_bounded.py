"""Steps that change the belief by a bounded divergence: the precision's by the arrow, the mean's by the metric."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lamu import tree
from lamu.algorithms import von
from lamu.families import Gaussian
from lamu.geometry import Bounded, Geometry, Retraction, Shortened, Straight
from lamu.geometry.arrows import largest_share
from lamu.objective.curvature import Price
from lamu.operators import Dense, Diagonal, Kronecker
from lamu.update_rules import Clipped, Inverse
from lamu_verification import problems

LIKE = {"w": jnp.zeros((2, 3)), "b": jnp.zeros(())}
SCALE = jax.tree.map(jnp.exp, tree.normal(jax.random.key(9), LIKE))
GRADIENT = tree.normal(jax.random.key(0), LIKE)


def test_a_shortened_direction_keeps_its_direction_and_meets_the_bound() -> None:
    for epsilon, tight in ((0.3, True), (1e3, False)):
        metric = Shortened(Inverse(), epsilon)
        found = tree.ravel(metric.direction(Diagonal(SCALE), GRADIENT, 1, 0.1))[0]
        whole = tree.ravel(Diagonal(SCALE).solve(GRADIENT))[0]
        share = found / whole
        np.testing.assert_allclose(share, share[0], rtol=1e-12)
        length = float(found @ (tree.ravel(SCALE)[0] * found)) / 2
        if tight:
            np.testing.assert_allclose(length, epsilon, rtol=1e-12)
        else:
            np.testing.assert_array_equal(found, whole)
    assert metric.is_precision
    assert metric.departure == "shortened steps"
    assert Shortened(Clipped(Inverse(), 1.0), 0.1).departure == "clipped steps, shortened steps"
    narrow = lambda a: jax.tree.map(lambda leaf: leaf.astype(jnp.float32), a)
    found = metric.direction(Diagonal(narrow(SCALE)), narrow(GRADIENT), 1, 0.1)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(found))
    still = metric.direction(Diagonal(SCALE), tree.zeros_like(GRADIENT), 1, 0.1)
    assert not np.any(tree.ravel(still)[0])


def test_a_bounded_arrow_in_single_precision_and_under_jit() -> None:
    """The bound holds to round-off: ε times the bits of the dtype."""
    geometry = Bounded(Retraction(), 0.05)
    assert isinstance(geometry, Geometry)
    assert geometry.departure == "retraction, bounded divergence"
    assert Bounded().departure == "bounded divergence"
    cast = lambda a, dtype: jax.tree.map(lambda leaf: leaf.astype(dtype), a)
    for dtype in (jnp.float32, jnp.float64):
        old, target = Diagonal(cast(SCALE, dtype)), Diagonal(cast(tree.scale(GRADIENT, 9.0), dtype))
        new = jax.jit(geometry.move)(old, target, jnp.asarray(0.7))
        assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(new))
        mean = cast(LIKE, dtype)
        kl = float(Gaussian(mean, new).kl(Gaussian(mean, old)))
        assert abs(kl - 0.05) < 0.05 * 300 * float(jnp.finfo(dtype).eps)
    assert float(largest_share(lambda t: jnp.where(t > 0.25, jnp.nan, t), 1.0)) == pytest.approx(0.25)


def test_the_rule_stays_in_the_cone_within_the_bound() -> None:
    """Price's noisy curvature at a rate at which the straight arrow leaves it; the bounds by `Gaussian.kl`.

    The metric's bound is a row's at rate one: the mean adds κ ρ² ε to the divergence, with the new precision.
    """
    problem = problems.logistic()
    batch, rate, epsilon, row = problem.batches(16)[0], 0.5, 0.1, 1e-3
    algorithm = replace(
        von(rate, geometry=Bounded(Straight(), epsilon), hess_init=0.1),
        curvature=Price(),
        metric=Shortened(Inverse(), row),
    )
    assert not algorithm.can_become_indefinite
    state = algorithm.init(jax.random.key(0), problem.objective, batch)
    step, kappa, spreads, lengths = jax.jit(algorithm.step), float(problem.objective.concentration), [], []
    for t in range(12):
        old, (state, _) = state, step(jax.random.key(t), state, batch, problem.objective)
        spreads.append(float(Gaussian(old.mean, state.precision).kl(Gaussian(old.mean, old.precision))))
        away = tree.add(state.mean, old.mean, -1.0)
        lengths.append(kappa * float(tree.dot(away, state.precision.matvec(away))) / 2)
    assert max(spreads) <= epsilon * (1 + 1e-9)
    assert max(spreads) > epsilon * (1 - 1e-9)
    assert max(lengths) == pytest.approx(kappa * rate**2 * row)
    assert bool(state.precision.is_positive(state.mean))


def test_bounds_without_a_meaning_are_refused() -> None:
    for make in (lambda: Bounded(epsilon=0.0), lambda: Shortened(Inverse(), -1.0)):
        with pytest.raises(ValueError, match="would stop every step"):
            make()
    dense = Dense(jnp.eye(3))
    assert Bounded(epsilon=0.1).move(dense, dense, 0.1).matrix.shape == (3, 3)
    with pytest.raises(TypeError, match="Kronecker"):
        Bounded().move(Kronecker(jnp.eye(2), jnp.eye(3)), Kronecker(jnp.eye(2), jnp.eye(3)), 0.1)
