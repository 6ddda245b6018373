"""A limit of memory: what it is written as, what may be done under it, and that predictions keep to it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import memory
from lamu.predictives import Deferred


@pytest.mark.parametrize("size", ["2 bananas", "-1GB", "", "0", float("nan"), float("inf"), 0, -5])
def test_what_is_no_size_is_quoted(size: Any) -> None:
    with pytest.raises(ValueError, match="is no size; write a number and a unit"):
        memory.parse(size)


def test_sizes() -> None:
    assert memory.parse(" 1.5gb ") == 1_500_000_000
    assert memory.parse("1e3kB") == 1_000_000
    assert memory.parse("2MiB") == 2 * 2**20
    assert [memory.shown(size) for size in (999, 1e3, 2.5e9, 7e12)] == ["999 B", "1.0 kB", "2.5 GB", "7.0 TB"]


def test_a_limit_holds_inside_and_is_given_back() -> None:
    with memory.within("100MB"):
        with memory.within(None):
            assert memory.limit() == 100_000_000
        with (
            pytest.raises(ValueError, match=r"takes 2\.0 MB and 1\.0 MB may be used; ask for less"),
            memory.within("1MB"),
        ):
            memory.demand(2e6, "a matrix", "ask for less")
        with memory.within("1MB"):
            assert memory.budget() == 250_000
        assert memory.limit() == 100_000_000
    assert memory.budget() <= 256 * 2**20
    assert 0 < memory.limit() <= memory.free()


def test_a_prediction_keeps_to_the_limit() -> None:
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=1.0))
    x, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60.0)
    posterior = lamu.fit(model, (x, y), lamu.algorithms.ivon(), epochs=1).posterior
    whole = posterior.predict(x, samples=8)
    with memory.within("8kB"):
        parts = posterior.predict(x, samples=8)
        assert isinstance(parts, Deferred)
        assert not isinstance(whole, Deferred)
        assert parts.rows < 60
        np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-12)
    assert jnp.all(whole.std > 0)
