"""Likelihoods of a graph that are not conjugate: known dispersions, and steps that stay beliefs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.algorithms import ivon, ncvmp, svi
from lamu.families import MultivariateNormal
from lamu.likelihoods import Gaussian, StudentT
from lamu.objective import Objective

X = np.random.default_rng(2).normal(size=(30, 1))
Y = 3 * X[:, 0] + 10 * np.random.default_rng(3).standard_t(1.5, size=30)


def regression(likelihood) -> lamu.Graph:
    def program(m) -> None:
        w = m.sample("w", MultivariateNormal(jnp.zeros(1), jnp.eye(1)))
        with m.rows():
            m.sample("y", likelihood(m.data("x") @ w))

    return lamu.Graph(program)


@pytest.mark.parametrize("algorithm", [ncvmp(), svi()], ids=["ncvmp", "svi"])
def test_a_dispersion_that_is_learned_is_refused_with_the_fix(algorithm) -> None:
    graph = regression(Gaussian())
    with pytest.raises(TypeError, match=r"Gaussian of 'y' learns its dispersion.*scale=1.0, or fit by ivon\(\)"):
        lamu.fit(graph, {"x": X, "y": Y}, algorithm, steps=2, batch_size=30)


def test_what_the_refusal_proposes_learns_the_dispersion() -> None:
    graph = regression(Gaussian())
    batch = graph.read({"x": X, "y": Y}).full()
    state = ivon(0.1).init(jax.random.key(0), Objective(graph, len(Y)), batch)
    assert jax.tree.leaves(ivon(0.1).preview(jax.random.key(1), state, Objective(graph, len(Y))).mean["likelihood"])


def test_a_step_beyond_the_positive_precisions_is_bent_back() -> None:
    """A Student t far from its rows is convex: the straight step at ρ = 1 has a negative precision there."""
    graph, rows = regression(StudentT(3.0, scale=0.3)), {"x": X, "y": Y}
    batch, objective = graph.read(rows).full(), Objective(graph, len(Y))
    algorithm = ncvmp(1.0)
    state, step = algorithm.init(jax.random.key(0), objective, batch), jax.jit(algorithm.step)
    for _ in range(8):
        state, info = step(jax.random.key(1), state, batch, objective)
        belief = jax.tree.map(lambda leaf: leaf[0], state.beliefs["w"])
        assert np.isfinite(info.loss)
        assert belief.precision[0, 0] > 0


def test_where_the_step_is_inside_it_is_the_rule_itself() -> None:
    graph, rho = regression(Gaussian(2.0)), 0.3
    batch, objective = graph.read({"x": X, "y": Y}).full(), Objective(graph, len(Y))
    algorithm = ncvmp(rho)
    state = algorithm.init(jax.random.key(0), objective, batch)
    before = jax.tree.map(lambda leaf: leaf[0], state.beliefs["w"])
    state, _ = jax.jit(algorithm.step)(jax.random.key(1), state, batch, objective)
    after = jax.tree.map(lambda leaf: leaf[0], state.beliefs["w"])
    S = 1.0 + np.sum(X**2) / 4.0
    np.testing.assert_allclose(after.precision, (1 - rho) * before.precision + rho * S, rtol=1e-9)
    first = (1 - rho) * before.precision[0, 0] * before.mean[0] + rho * np.sum(X[:, 0] * Y) / 4.0
    np.testing.assert_allclose(after.mean[0] * after.precision[0, 0], first, rtol=1e-9)


def test_svi_says_what_it_can_do_where_a_belief_left_its_domain() -> None:
    graph = regression(StudentT(3.0, scale=0.3))
    batch, objective = graph.read({"x": X, "y": Y}).full(), Objective(graph, len(Y))
    algorithm = svi(learning_rate=1.0)
    state, step = algorithm.init(jax.random.key(0), objective, batch), jax.jit(algorithm.step)
    for _ in range(4):
        state, _ = step(jax.random.key(1), state, batch, objective)
    complaint = algorithm.complaint(state)
    assert complaint is not None
    assert "smaller learning_rate, or ncvmp() on all rows" in complaint
    assert "Retraction" not in complaint
