"""Keys that are used twice are found in the tests, though `conftest.py` looks only where keys are."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest


def twice(key):
    return jax.random.normal(key) + jax.random.normal(key)


def once(key):
    one, other = jax.random.split(key)
    return jax.random.normal(one) + jax.random.normal(other)


def an_element_of_many(key):
    keys = jax.random.split(key, 3)
    return jax.random.normal(keys[0]) + jax.random.normal(keys[0])


PLANTED = {
    "twice": twice,
    "after a split": lambda key: jax.random.split(key) is not None and jax.random.normal(key),
    "an element of many": an_element_of_many,
    "in every round of a scan": lambda key: jax.lax.scan(lambda c, _: (c + jax.random.normal(key), None), 0.0, None, 3),
    "in every round of a loop": lambda key: jax.lax.while_loop(
        lambda c: c < 3, lambda c: c + jax.random.normal(key), 0.0
    ),
    "in a branch and after it": lambda key: jax.lax.cond(True, jax.random.normal, lambda _: 0.0, key) + once(key),
    "two of the same, stacked": lambda key: jax.vmap(jax.random.normal)(jnp.stack([key, key])),
    "within a program": jax.jit(twice),
    "within what is computed again": jax.checkpoint(twice),
    "made inside": lambda key: jax.jit(lambda: twice(jax.random.key(1)))(),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("function", PLANTED.values(), ids=PLANTED)
def test_a_key_that_is_used_twice_is_found(function: Callable, compiled: bool) -> None:
    with pytest.raises(jax.errors.KeyReuseError):
        (jax.jit(function) if compiled else function)(jax.random.key(0))


def test_a_program_that_was_called_without_a_key_and_with_another_is_still_asked() -> None:
    program = jax.jit(lambda x, key=None: x if key is None else x + jax.random.normal(key))
    program(1.0)
    key = jax.random.key(0)
    program(1.0, key)
    with pytest.raises(jax.errors.KeyReuseError):
        program(1.0, key)
    assert jnp.isfinite(jax.jit(once)(jax.random.key(0)))
