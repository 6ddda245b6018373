"""The search of whole numbers: the same as of any number, in fewer steps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lamu.base.bisection import bisect, bisect_closely, search
from lamu.graphs.statistics import shape_of_gamma


def test_whole_numbers_are_found_in_as_many_steps_as_they_need() -> None:
    turns = np.random.default_rng(0).integers(0, 400, 50).astype(float)
    ends = jnp.full(50, -0.5), jnp.full(50, 400.5)
    steps = []

    def is_below(y: jax.Array) -> jax.Array:
        steps.append(1)
        return jnp.floor(y) < turns

    eager = search(is_below, ends, compiled=False, whole=True)
    assert len(steps) == 10  # 401 halved ten times is below a half
    compiled = jax.jit(lambda: search(is_below, ends, whole=True))()
    for found in (eager, compiled):
        np.testing.assert_array_equal(np.round(found), turns)
    unbounded = search(is_below, (ends[0], jnp.full(50, jnp.inf)), whole=True)
    assert not np.isfinite(unbounded).any()  # it ends


def test_bisection_stops_where_no_number_is_left() -> None:
    """With the same digits; of entries whose answer is known in no step at all."""
    turns = jnp.asarray(np.random.default_rng(1).normal(size=50), jnp.float32)
    ends = jnp.full(50, -60.0, jnp.float32), jnp.full(50, 40.0, jnp.float32)
    count = []
    is_below = lambda t: (jax.debug.callback(lambda: count.append(1)), t < turns)[1]
    found = bisect_closely(is_below, ends, 64)
    jax.effects_barrier()
    np.testing.assert_array_equal(found, bisect(lambda t: t < turns, ends, 64))
    assert 20 < len(count) < 60
    count.clear()
    same = jnp.zeros(50, jnp.float32)
    bisect_closely(is_below, (same, same), 64).block_until_ready()
    jax.effects_barrier()
    assert not count


def test_no_shape_is_sought_where_it_is_known() -> None:
    """At a value of θ, as at all draws of it, the gap is zero; the others and all derivatives are as they were."""
    log, log_mean = jnp.asarray([0.0, -0.5]), jnp.asarray([0.0, 0.1])
    found = shape_of_gamma(log, log_mean)
    assert np.isinf(found[0])
    alone = shape_of_gamma(log[1], log_mean[1])
    np.testing.assert_allclose(found[1], alone, rtol=1e-12)
    slope = jax.grad(lambda log: 1.0 / shape_of_gamma(log, log_mean)[1] + jnp.sum(1.0 / shape_of_gamma(log, log_mean)))
    expected = 2.0 * jax.grad(lambda log: 1.0 / shape_of_gamma(log, log_mean[1]))(log[1])
    np.testing.assert_allclose(slope(log), [0.0, expected], rtol=1e-12)
