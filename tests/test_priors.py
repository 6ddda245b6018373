"""Priors beside the laws: the arguments they refuse, precedence under JAX, saving, and odd trees."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lamu.priors import Normal, Prior
from lamu.record import decode, encode

PARAMS = {"layer": {"bias": jnp.zeros(2), "kernel": jnp.ones((3, 2))}}


@pytest.mark.parametrize(
    "prior", [Normal(), Normal(2.0, 0.5), Normal({"*bias": 316.2, "*": 1.0}), Normal({"z*": 1.0, "a*": 2.0})]
)
def test_prior_is_one_and_survives_disk_and_jit(prior: Normal) -> None:
    assert isinstance(prior, Prior)
    arrays: dict[str, np.ndarray] = {}
    assert decode(encode(prior, arrays), arrays) == prior
    assert jax.jit(lambda whole: whole)(prior).patterns == prior.patterns


def test_scales_are_leaves_and_can_be_learned() -> None:
    evidence = jax.grad(lambda prior: prior.log_prob(PARAMS))(Normal({"*bias": 2.0, "*": 1.0}))
    np.testing.assert_allclose(evidence.scale[0], -2 / 2.0)
    np.testing.assert_allclose(evidence.scale[1], 0.0, atol=1e-12)
    assert jax.grad(lambda scale: Normal(scale).log_prob(PARAMS))(1.0) == -2.0


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_scale_must_be_positive_and_finite(scale: float) -> None:
    with pytest.raises(ValueError, match=f"prior scale {scale} is not"):
        Normal(scale)
    with pytest.raises(ValueError, match=rf"prior scale {scale} of '\*bias'"):
        Normal({"*bias": scale, "*": 1.0})


def test_mappings_that_say_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        Normal({})
    with pytest.raises(ValueError, match=r"\(1.0, 2.0\) have no patterns"):
        Normal((1.0, 2.0))


def test_patterns_must_match_and_cover() -> None:
    with pytest.raises(ValueError, match=r"'\*baises' matches no leaf"):
        Normal({"*baises": 1.0, "*": 1.0}).check(PARAMS)
    with pytest.raises(ValueError, match="no pattern matches the leaf 'layer/kernel'"):
        Normal({"*bias": 1.0}).check(PARAMS)
    with pytest.raises(ValueError, match="no pattern matches the leaf 'layer/kernel'"):
        Normal({"*bias": 1.0}).gaussian(PARAMS)


def test_a_tree_without_leaves_has_density_one() -> None:
    assert Normal().log_prob({}) == 0.0
    assert Normal().sample(jax.random.key(0), {}) == {}
    assert Normal().gaussian({}) == ({}, {})


def test_float32_runs_without_x64() -> None:
    with jax.enable_x64(False):
        single = jax.tree.map(lambda x: x.astype(jnp.float32), PARAMS)
        assert Normal({"*bias": np.float64(3.0), "*": 1}).log_prob(single).dtype == jnp.float32
