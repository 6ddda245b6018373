"""Fewer rows with the same sums of statistics, where two moments say all."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import graphs
from lamu.graphs.messages import condensed
from lamu.latent import Amortised
from lamu.networks import MLP

RANDOM = np.random.default_rng(8)


@pytest.mark.stress
def test_condensed_rows_have_the_bound_and_messages_of_all() -> None:
    graph = graphs.models.FactorAnalysis(2, 3)
    y, weight = 2.0 + RANDOM.normal(size=(50, 3)) @ RANDOM.normal(size=(3, 3)), RANDOM.uniform(0.5, 2.0, 50)
    batch = graph.read({"y": y, "weight": weight}).full().padded(64)
    few = condensed(graph.in_rows, {}, batch)
    assert few is not None
    assert few.y["y"].shape == (6, 3)
    np.testing.assert_allclose(few.count, 50, rtol=1e-12)
    statistics = graph.moments(jax.jit(graph.first_beliefs)(jax.random.key(2), batch))
    for temperature in (1.0, 3.0):
        total = jax.jit(jax.value_and_grad(lambda s, b, t=temperature: b.total(graph.row_bounds(s, b, t))))
        for mine, theirs in zip(*map(jax.tree.leaves, (total(statistics, few), total(statistics, batch))), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)
    holes = np.where(np.arange(150).reshape(50, 3) == 4, np.nan, y)
    assert condensed(graph.in_rows, {}, graph.read({"y": holes}).full()) is None
    mixture = graphs.models.GaussianMixture(2, 3, covariance="tied")
    assert condensed(mixture.in_rows, {}, mixture.read({"y": y}).full()) is None


def test_rows_whose_bound_is_not_quadratic_stay() -> None:
    def program(m: graphs.Program, call: bool) -> None:
        up = m.network("up", MLP((4,)), outputs=(3,)) if call else None
        W = None if call else m.sample("W", graphs.Normal(jnp.zeros(2), precision=1.0), plate=3)
        with m.rows():
            z = m.sample("z", graphs.MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
            m.sample("y", graphs.Normal(up(z) if call else W @ z, precision=1.0))

    y = RANDOM.normal(size=(50, 3))
    linear, called = (lamu.Graph(lambda m, call=call: program(m, call)) for call in (False, True))
    assert condensed(linear.in_rows, {}, linear.read({"y": y}).full()) is not None
    assert condensed(linear.in_rows, {"z": Amortised(MLP((4,)))}, linear.read({"y": y}).full()) is None
    assert condensed(called.in_rows, {}, called.read({"y": y}).full()) is None
