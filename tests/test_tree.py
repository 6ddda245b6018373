"""Paths and patterns: the way in which people name leaves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from lamu import tree

WEIGHTS = {"layers": {0: {"bias": jnp.zeros(2), "kernel": jnp.zeros((3, 2))}, 1: {"bias": jnp.zeros(1)}}}


def test_by_pattern_takes_the_first_that_matches() -> None:
    found = tree.by_pattern({"layers/0/*": 1.0, "*bias": 2.0}, WEIGHTS)
    assert found == {"layers": {0: {"bias": 1.0, "kernel": 1.0}, 1: {"bias": 2.0}}}


def test_by_pattern_refuses_a_leaf_without_a_pattern() -> None:
    with pytest.raises(ValueError, match="'layers/0/kernel'"):
        tree.by_pattern({"*bias": 2.0}, WEIGHTS)


def test_require_matches_names_the_misspelt_pattern_and_the_leaves() -> None:
    tree.require_matches(["layers/1/*"], WEIGHTS)
    with pytest.raises(ValueError, match=r"'layers/2/\*' matches no leaf; the leaves are layers/0/bias"):
        tree.require_matches(["layers/1/*", "layers/2/*"], WEIGHTS)


def test_keys_like_gives_every_leaf_a_key_of_its_own() -> None:
    keys = [jax.random.key_data(key).tolist() for key in jax.tree.leaves(tree.keys_like(jax.random.key(0), WEIGHTS))]
    assert len({tuple(key) for key in keys}) == 3
    assert tree.keys_like(jax.random.key(0), {}) == {}


def test_sums_over_an_empty_space_are_zero() -> None:
    assert float(tree.dot({}, {})) == 0.0
    assert tree.dimension({"a": None}) == 0


def test_has_tracers_sees_one_traced_leaf_of_many() -> None:
    assert not tree.has_tracers(WEIGHTS)
    assert jax.eval_shape(lambda leaf: jnp.zeros(tree.has_tracers({**WEIGHTS, "own": leaf}) + 1), 1.0).shape == (2,)
