"""Rows with more outputs than there are weights: differentiated forwards, in blocks of outputs, in little memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import memory
from lamu.algorithms.post_hoc.ggn_blocks import batch_curvature, bytes_per_row
from lamu.data import Batch
from lamu.likelihoods import Categorical, PerPosition
from lamu.networks import Trained
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import GaussNewton
from lamu.objective.curvature.interface import fisher_information
from lamu.objective.objective import outputs_and_row_jacobian
from lamu.operators import Dense

RNG = np.random.default_rng(0)
POSITIONS, CLASSES = 64, 3
X = jnp.asarray(RNG.normal(size=(6, POSITIONS, 2)))
Y = jnp.asarray(RNG.integers(0, CLASSES, size=(6, POSITIONS)))
WEIGHTS = {"w": jnp.asarray(RNG.normal(size=(2, CLASSES)))}


def objective() -> tuple[Objective, Batch, Any]:
    function = lambda theta, x: jnp.tanh(x @ theta["w"]).reshape(x.shape[0], -1)
    model = lamu.Model(Trained(function, WEIGHTS), PerPosition(Categorical(CLASSES), (POSITIONS,)))
    batch = replace(Batch.of(X, Y), weight=jnp.linspace(0.5, 1.5, 6))
    return Objective(model, 6.0), batch, {"network": WEIGHTS, "likelihood": {}}


@pytest.mark.parametrize("weights", [1, 5], ids=["forwards", "backwards"])
def test_both_ways_are_one(weights: int) -> None:
    function = lambda w: jnp.sin(jnp.outer(jnp.arange(1.0, 4.0), w).sum(1)) * jnp.arange(3.0)
    w = jnp.linspace(0.1, 0.4, weights)
    np.testing.assert_allclose(outputs_and_row_jacobian(function, w)[1], jax.jacrev(function)(w), rtol=1e-10)


def test_a_rule_for_the_backward_pass_alone_is_followed() -> None:
    @jax.custom_vjp
    def doubled(w: Any) -> Any:
        return 2 * w

    doubled.defvjp(lambda w: (2 * w, None), lambda _, g: (3 * g,))  # not 2: the rule is what counts
    assert outputs_and_row_jacobian(lambda w: doubled(w) * jnp.ones(3), jnp.ones(1))[1].ravel().tolist() == [
        3.0,
        3.0,
        3.0,
    ]


def test_blocks_of_positions_are_the_whole_information() -> None:
    under, batch, _ = objective()
    loss = BatchLoss(under, batch, {}, NetworkParameters(), {}, conjugate=True)
    matrix = GaussNewton().matrix(loss, WEIGHTS, Dense).matrix
    jacobian = jax.vmap(jax.jacrev(lambda w, x: loss.of_row({"w": w}, x)), (None, 0))(WEIGHTS["w"], X)
    flat = jacobian.reshape(6, POSITIONS * CLASSES, -1)
    information = fisher_information(loss, WEIGHTS, loss.outputs(WEIGHTS)).matrix()
    np.testing.assert_allclose(matrix, jnp.einsum("nka,nkl,nlb->ab", flat, information, flat), rtol=1e-10)


def test_no_array_is_larger_than_what_a_row_is_said_to_take() -> None:
    """A matrix of all outputs squared, or a cotangent an output, would be some hundred times as large."""
    under, batch, params = objective()
    key = jax.random.key(0)
    run = lambda batch: batch_curvature(Dense, GaussNewton(), under, params, batch, key)[:2]
    said = bytes_per_row(Dense, under, params, X[:1])
    assert memory.largest_array(run, batch) <= 6 * said
    assert said < 8 * (POSITIONS * CLASSES) ** 2 / 10
