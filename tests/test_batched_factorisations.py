"""Beliefs about many vectors do not call LAPACK for their batches of small precisions.

Calls that do not wait for each other may run at the same time on a CPU, each deals its batch to the threads that it
runs on, and where they hold all of these they wait for ever: `FactorAnalysis` on two cores, of rows with holes.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import graphs
from lamu.base.compile_once import lenient
from lamu.families import GaussianChain, MultivariateNormal
from lamu.families.normal_wishart import swept
from lamu.graphs.expressions import Environment
from lamu.graphs.statistics import Vectors

RANDOM = np.random.default_rng(0)


def bound(first, outer):
    belief = Vectors(first, outer).belief()
    mean, second = belief.expectation().values
    return belief.log_partition() + jnp.sum(mean) + jnp.sum(second)


@pytest.mark.parametrize("function", [bound, jax.grad(bound, argnums=(0, 1))], ids=["value", "gradient"])
def test_a_batch_of_small_matrices_calls_nothing(function) -> None:
    first, outer = jnp.ones((50, 4)), jnp.broadcast_to(-jnp.eye(4), (50, 4, 4))
    text = jax.jit(jax.vmap(function)).lower(first, outer).compile().as_text()
    assert "lapack" not in text


def test_a_series_does_not_factor_all_times_twice_at_once() -> None:
    """`interval` of a graph with a series of 144 times of 13 numbers never came back on two cores."""
    values = jnp.ones((9, 5)), jnp.broadcast_to(-jnp.eye(5), (9, 5, 5)), 0.1 * jnp.ones((8, 5, 5))
    text = jax.jit(lambda *values: GaussianChain.from_natural(values, None)).lower(*values).compile().as_text()
    assert "getrf" not in text


@pytest.mark.parametrize("size", [1, 5, 32, 33])
def test_inverse_and_log_determinant_are_those_of_numpy(size: int) -> None:
    root = RANDOM.normal(size=(3, size, size))
    precision = root @ np.swapaxes(root, 1, 2) + 0.1 * np.eye(size)
    mean = RANDOM.normal(size=(3, size))
    belief = MultivariateNormal(jnp.asarray(mean), jnp.asarray(precision))
    second = belief.expectation().values[1] - mean[:, :, None] * mean[:, None, :]
    np.testing.assert_allclose(second, np.linalg.inv(precision), rtol=1e-7, atol=1e-9)
    logdet = np.linalg.slogdet(precision)[1].sum()
    np.testing.assert_allclose(belief.entropy(), 1.5 * size * (1 + np.log(2 * np.pi)) - logdet / 2, rtol=1e-10)
    A = (np.einsum("ni,nij,nj->", mean, precision, mean) - logdet + 3 * size * np.log(2 * np.pi)) / 2
    np.testing.assert_allclose(belief.log_partition(), A, rtol=1e-10)
    np.testing.assert_allclose(belief.natural().log_partition(), A, rtol=1e-8)
    found = jax.grad(lambda values: MultivariateNormal.partition(values, ()))(belief.to_natural())
    np.testing.assert_allclose(found[1], belief.expectation().values[1], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("size", [3, 6, 33])
def test_what_is_swept_is_what_is_missing_given_the_rest(size: int) -> None:
    """Each part beside NumPy, of rows with holes of their own, and its derivative beside differences."""
    root = RANDOM.normal(size=(4, size, 2 * size))
    P, missing = root @ np.swapaxes(root, 1, 2), RANDOM.uniform(size=(4, size)) < 0.5
    missing[0], missing[1] = False, True
    found, logdets = swept(jnp.asarray(P), jnp.asarray(missing))
    for matrix, m, A, logdet in zip(P, missing, found, logdets, strict=True):
        inner, across = matrix[np.ix_(m, m)], matrix[np.ix_(m, ~m)]
        np.testing.assert_allclose(A[np.ix_(m, m)], -np.linalg.inv(inner), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(A[np.ix_(m, ~m)], np.linalg.solve(inner, across), rtol=1e-8, atol=1e-10)
        rest = matrix[np.ix_(~m, ~m)] - across.T @ np.linalg.solve(inner, across)
        np.testing.assert_allclose(A[np.ix_(~m, ~m)], rest, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(logdet, np.linalg.slogdet(inner)[1], rtol=1e-10, atol=1e-12)

    weights, step = RANDOM.normal(size=P.shape), RANDOM.normal(size=P.shape)
    step = 1e-5 * (step + np.swapaxes(step, 1, 2))

    def number(P: jax.Array) -> jax.Array:
        A, logdets = swept(P, jnp.asarray(missing))
        return jnp.sum(jnp.asarray(weights) * A) + jnp.sum(logdets)

    slope = jnp.sum(jax.grad(number)(jnp.asarray(P)) * step)
    np.testing.assert_allclose(slope, (number(jnp.asarray(P + step)) - number(jnp.asarray(P - step))) / 2, rtol=1e-6)


def test_vectors_with_holes_call_nothing() -> None:
    """Neither their density nor what is missing in them: a graph's rows each have holes of their own."""
    factor: Any = graphs.MultivariateNormal(np.zeros(4), np.eye(4))
    rows, observed = jnp.ones((50, 4)), jnp.asarray(RANDOM.uniform(size=(50, 4)) < 0.5)
    at = Environment({})

    def one(x: jax.Array, observed: jax.Array) -> Any:
        with lenient():
            return factor.log_density(Vectors.of(x), at, observed), factor.conditional(x, at, observed)

    text = jax.jit(jax.vmap(one)).lower(rows, observed).compile().as_text()
    assert not [line for line in text.splitlines() if "lapack" in line and "[50," in line]  # the one precision apart


def test_a_matrix_that_is_not_positive_has_no_number() -> None:
    outer = -jnp.stack([jnp.eye(2), jnp.array([[1.0, 2.0], [2.0, 1.0]])])
    found = jax.vmap(lambda outer: Vectors(jnp.ones(2), outer).log_partition())(outer)
    assert np.isnan(found).tolist() == [False, True]


@pytest.mark.stress
def test_rows_with_holes_do_not_wait_for_ever() -> None:
    y = RANDOM.normal(size=(2000, 16)) @ RANDOM.normal(size=(16, 196)) + 0.1 * RANDOM.normal(size=(2000, 196))
    y = np.where(RANDOM.uniform(size=y.shape) < 0.5, y, np.nan)
    fit = lamu.fit(graphs.models.FactorAnalysis(16, 196), {"y": y}, lamu.algorithms.vmp(), steps=10)
    assert np.isfinite(fit.history["loss"]).all()
