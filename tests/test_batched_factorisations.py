"""Beliefs about many vectors do not call LAPACK for their batches of small precisions.

Calls that do not wait for each other may run at the same time on a CPU, each deals its batch to the threads that it
runs on, and where they hold all of these they wait for ever: `FactorAnalysis` on two cores, of rows with holes.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import graphs
from lamu.families import MultivariateNormal
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
