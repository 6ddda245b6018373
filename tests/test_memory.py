"""A limit of memory: what it is written as, what may be done under it, and that predictions keep to it."""

from __future__ import annotations

import logging
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import memory
from lamu.objective import Objective
from lamu.operators import Dense
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


def test_a_precision_that_cannot_fit_is_refused_before_anything_runs(caplog: pytest.LogCaptureFixture) -> None:
    model = lamu.Model(lamu.networks.MLP((40,)), lamu.likelihoods.Gaussian(scale=1.0))
    x, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60.0)
    steps: list[Any] = []
    whole, last = lamu.algorithms.laplace(structure=Dense), lamu.algorithms.last_layer()
    refusal = r"the precision of 201 weights, Dense, takes 969\.6 kB and 200\.0 kB may be used; give structure="
    with pytest.raises(ValueError, match=refusal):
        lamu.fit(model, (x, y), whole, epochs=1, max_memory="200kB", callbacks=[lambda *seen: steps.append(seen)])
    assert not steps
    with pytest.raises(ValueError, match=r"nothing smaller fits; give max_memory='4\.8 kB' or more"):
        lamu.fit(model, (x, y), whole, epochs=1, max_memory="1kB")
    # Of few weights it is dense, though the network has many.
    large = {"network": {"layers": [{"kernel": np.zeros((90, 90))}, {"kernel": np.zeros(40)}]}}
    with caplog.at_level(logging.INFO, "lamu"):
        lamu.fit(model, (x, y), last, epochs=1, max_memory="200kB")
        lamu.algorithms.laplace(weights=lamu.algorithms.HeadWeights()).foresee(Objective(model, 60), large)
    assert "The precision of 41 weights, Dense, takes about 40.3 kB; 200.0 kB may be used." in caplog.text
    assert "The precision of 40 weights, Dense," in caplog.text
