"""Beliefs about many vectors factor each precision once, in one chain of calls.

Calls that do not wait for each other may run at the same time on a CPU, each deals its batch to the threads that it
runs on, and where they hold all of these they wait for ever: `FactorAnalysis` on two cores, of rows with holes.
"""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import graphs
from lamu.graphs.statistics import Vectors

RANDOM = np.random.default_rng(0)


def bound(first, outer):
    belief = Vectors(first, outer).belief()
    mean, second = belief.expectation().values
    return belief.log_partition() + jnp.sum(mean) + jnp.sum(second)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the calls are those of LAPACK")
@pytest.mark.parametrize("function", [bound, jax.grad(bound, argnums=(0, 1))], ids=["value", "gradient"])
def test_a_belief_is_one_factor_and_one_solve(function) -> None:
    first, outer = jnp.ones((50, 4)), jnp.broadcast_to(-jnp.eye(4), (50, 4, 4))
    text = jax.jit(jax.vmap(function)).lower(first, outer).compile().as_text()
    calls = re.findall(r'custom_call_target="lapack_[sd](\w+)_ffi"', text)
    assert sorted(calls) in (["potrf"], ["potrf", "trsm"]), calls


@pytest.mark.stress
def test_rows_with_holes_do_not_wait_for_ever() -> None:
    y = RANDOM.normal(size=(2000, 16)) @ RANDOM.normal(size=(16, 196)) + 0.1 * RANDOM.normal(size=(2000, 196))
    y = np.where(RANDOM.uniform(size=y.shape) < 0.5, y, np.nan)
    fit = lamu.fit(graphs.models.FactorAnalysis(16, 196), {"y": y}, lamu.algorithms.vmp(), steps=10)
    assert np.isfinite(fit.history["loss"]).all()
