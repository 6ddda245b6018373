"""The search of whole numbers: the same as of any number, in fewer steps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lamu.bisection import search


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
