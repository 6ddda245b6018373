"""Microbatches: gradients and curvatures that are added up are those of the whole batch."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.data import Batch
from lamu.families import Gaussian
from lamu.networks import MLP, BatchNorm, ConvNet, Dropout
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import (
    Damped,
    GaussNewton,
    Hessian,
    LowRankGradients,
    NoCurvature,
    Price,
    RootScaledGradient,
    SquaredGradient,
    SquaredGradients,
)
from lamu.objective.curvature.interface import evaluated
from lamu.operators import Dense, Diagonal
from lamu.operators.kronecker import KroneckerFactored
from tests.for_each import for_each

ROWS = 22
X = jax.random.normal(jax.random.key(1), (ROWS, 3))
Y = jnp.sin(X[:, 0]) + 0.3 * X[:, 1]
WEIGHT = jnp.linspace(0.2, 2.0, ROWS)
MASK = (jnp.arange(ROWS) < 19).astype(X.dtype)  # padding that is NaN, as it may be
BATCH = Batch(jnp.where(MASK[:, None] > 0, X, jnp.nan), jnp.where(MASK > 0, Y, jnp.inf), MASK, WEIGHT)
MODEL = lamu.Model(MLP((4,), activation="tanh"), lamu.likelihoods.Gaussian(scale=0.5))


def loss_of(
    size: int | None, model: lamu.Model = MODEL, batch: Batch = BATCH, **scales: float
) -> tuple[BatchLoss, object]:
    params, state = model.init(jax.random.key(0), Batch.of(X, Y))
    scales = {"data_size": 50.0, **scales}
    objective = Objective(model, microbatch_size=size, **scales)
    return BatchLoss(objective, batch, state, NetworkParameters(), {}, conjugate=True), params["network"]


def evaluation(
    size: int | None,
    curvature: object,
    structure: object,
    model: lamu.Model = MODEL,
    batch: Batch = BATCH,
) -> Callable[[dict[str, float]], object]:
    """A compiled function of the scales."""

    @jax.jit
    def found(scales: dict[str, jax.Array]) -> object:
        loss, mean = loss_of(size, model, batch, **scales)
        precision = Diagonal(jax.tree.map(lambda leaf: 2 + leaf**2, mean))
        theta = jax.tree.map(lambda leaf: leaf + 0.1, mean)
        found = evaluated(curvature, loss, theta, Gaussian(mean, precision), structure, jax.random.key(3))
        matrix = None if found.curvature is None else found.curvature.dense(theta)
        return found.value, found.gradient, found.rest, matrix

    return found


def at(*arguments: object, **named: object) -> object:
    return evaluation(*arguments, **named)({})


CURVATURES = [
    (NoCurvature(), Diagonal),
    (Price(), Diagonal),
    (Price(), Dense),
    (SquaredGradient(), Diagonal),
    (RootScaledGradient(), Diagonal),
    (SquaredGradients(), Diagonal),
    (SquaredGradients(), Dense),
    (GaussNewton(), Diagonal),
    (GaussNewton(), Dense),
    (Hessian(), Dense),
    (GaussNewton(), KroneckerFactored()),
    (SquaredGradients(), KroneckerFactored(diagonal="*/bias")),
    (Damped(GaussNewton(), 0.3), Diagonal),
]


@pytest.mark.stress
@for_each("curvature, structure", CURVATURES)
def test_evaluations_are_the_whole_batchs(curvature: object, structure: object) -> None:
    """Value, gradient and curvature with masked rows, weights and a last microbatch that is not full.

    Masked rows are NaN and infinite, and the whole batch is the rows that are not masked.
    """
    whole = at(None, curvature, structure, batch=jax.tree.map(lambda leaf: leaf[MASK > 0], BATCH))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(whole))
    for size in (None, 7):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), at(size, curvature, structure), whole
        )


@pytest.mark.stress
@for_each("curvature", [SquaredGradients(), GaussNewton(), SquaredGradient()])
def test_size_and_temperature_enter_once(curvature: object) -> None:
    """At two N and two T the sums are those of the whole batch, whose scale has laws of its own."""
    parts, at_once = (evaluation(size, curvature, Diagonal) for size in (5, None))
    for temperature, data_size in itertools.product((1.0, 0.25), (50.0, 500.0)):
        scales = {"temperature": temperature, "data_size": data_size, "likelihood_power": 0.7}
        found, whole = parts(scales), at_once(scales)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), found, whole)


def end_of_a_run(algorithm: object, size: int | None) -> list[object]:
    length = {} if algorithm.traits.length is not None else {"steps": 10}
    data = {"x": X, "y": Y, "weight": WEIGHT / WEIGHT.mean()}
    fit = lamu.fit(MODEL, data, algorithm, batch_size=16, microbatch_size=size, **length)
    return [leaf for leaf in jax.tree.leaves(fit.state) if jnp.issubdtype(leaf.dtype, jnp.floating)]


STEPS = [  # one of each way to take steps; the others at night
    lamu.algorithms.vogn(),
    lamu.mcmc.sgld(draws=6),
]
MORE_STEPS = [
    lamu.algorithms.adam(1e-2),
    lamu.algorithms.ivon(),
    lamu.algorithms.laplace(),
    lamu.algorithms.sgd(0.05, momentum=0.5),
    lamu.algorithms.rmsprop(1e-2),
    lamu.algorithms.sam(0.05),
    lamu.algorithms.ogn(),
    lamu.algorithms.bsam(),
    replace(lamu.algorithms.noisy_kfac(), curvature=GaussNewton()),  # its own draws labels, a microbatch's in each
]


@pytest.mark.parametrize("algorithms", [STEPS, pytest.param(MORE_STEPS, marks=pytest.mark.stress)])
def test_runs_end_at_the_same_parameters(algorithms: list) -> None:
    """Ten steps on 22 rows in batches of 16, the last of which is padded."""
    for algorithm in algorithms:
        for one, other in zip(end_of_a_run(algorithm, None), end_of_a_run(algorithm, 5), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9, err_msg=str(algorithm))


def test_averages_over_orders_are_unbiased() -> None:
    """The mean over all batches of an epoch is the gradient of all rows."""
    loss, theta = loss_of(3)
    parts = [BATCH.x[i : i + 5] for i in (0, 5, 10)]
    total = 0.0
    for i, x in zip((0, 5, 10), parts, strict=True):
        batch = Batch(x, Y[i : i + 5], jnp.ones(5), WEIGHT[i : i + 5])
        small = BatchLoss(loss.objective, batch, {}, NetworkParameters(), {}, conjugate=True)
        total = (
            total
            + jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(small.gradient(theta, None).coordinates)]) / 3
        )
    batch = Batch(BATCH.x[:15], Y[:15], jnp.ones(15), WEIGHT[:15])
    whole = BatchLoss(loss_of(None)[0].objective, batch, {}, NetworkParameters(), {}, conjugate=True)
    exact = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(whole.gradient(theta, None).coordinates)])
    np.testing.assert_allclose(total, exact, rtol=1e-9, atol=1e-12)


def test_batch_statistics_are_a_microbatchs() -> None:
    """Each microbatch is normalised by its own rows, and the running statistics see one after the other."""
    model = lamu.Model(MLP((4,), normalise=BatchNorm(momentum=0.5)), lamu.likelihoods.Gaussian(scale=0.5))
    loss, theta = loss_of(11, model)
    found = jax.jit(lambda theta: loss.gradient(theta, None))(theta)
    state, values = loss.network_state, 0.0
    gradient = jax.tree.map(jnp.zeros_like, theta)
    for part in (slice(0, None, 2), slice(1, None, 2)):
        piece = Batch(BATCH.x[part], Y[part], MASK[part], WEIGHT[part])
        one = BatchLoss(
            loss_of(None, model)[0].objective, piece, state, NetworkParameters(), {}, conjugate=True
        ).gradient(theta, None)
        state, share = one.network_state, piece.count / BATCH.count
        values += one.value * share
        gradient = jax.tree.map(lambda total, new, share=share: total + share * new, gradient, one.coordinates)
    check = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    jax.tree.map(check, (found.value, found.coordinates, found.network_state), (values, gradient, state))


def test_dropout_differs_between_microbatches() -> None:
    """Equal rows in different microbatches lose different units."""
    model = lamu.Model(MLP((50,), dropout=Dropout(0.5)), lamu.likelihoods.Gaussian(scale=0.5))
    params, state = model.init(jax.random.key(0), Batch.of(X, Y))
    same = Batch.of(jnp.broadcast_to(X[:1], (2, 3)), jnp.broadcast_to(Y[:1], (2,)))
    one = Batch.of(X[:1], Y[:1])

    def value(batch: Batch, size: int | None, key: jax.Array) -> float:
        objective = Objective(model, 2.0, microbatch_size=size)
        return float(objective.negative_log_likelihood(params, batch, state, key, train=True)[0])

    key = lambda: jax.random.key(5)
    alone = [value(one, None, jax.random.fold_in(key(), part)) for part in (0, 1)]
    assert abs(alone[0] - alone[1]) > 1e-3
    np.testing.assert_allclose(value(same, 1, key()), sum(alone) / 2, rtol=1e-9)


def test_memory_falls_and_is_advised(caplog: pytest.LogCaptureFixture) -> None:
    """A step that does not fit is refused with the advice, and fits with it."""
    x = jnp.ones((4096, 8), jnp.float32)
    y = jnp.zeros(4096, jnp.float32)
    model = lamu.Model(MLP((256, 256)), lamu.likelihoods.Gaussian(scale=0.5))
    take = lambda size: lamu.fit(
        model, (x, y), lamu.algorithms.adam(), steps=1, batch_size=4096, max_memory="8MB", microbatch_size=size
    )
    with pytest.raises(ValueError, match="give microbatch_size"):
        take(None)
    with caplog.at_level(logging.INFO, logger="lamu"):
        assert np.isfinite(take(128).history["loss"]).all()


@for_each(
    "make, sentence",
    [
        (lambda: Objective(MODEL, 3, microbatch_size=0), "microbatch_size=0 is not possible"),
        (
            lambda: Objective(MODEL, 3, microbatch_size=1.5),
            r"microbatch_size=1\.5 is not possible; give a whole",
        ),
        (lambda: at(4, LowRankGradients(2), Diagonal), "needs all rows of a batch at once"),
        (
            lambda: lamu.fit(
                lamu.LogDensity(lambda t: -(t**2), 0.0),
                None,
                lamu.algorithms.map_estimate(),
                steps=2,
                microbatch_size=4,
            ),
            "has no network",
        ),
    ],
)
def test_refusals(make: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.stress
def test_a_network_of_convolutions() -> None:
    images = jax.random.normal(jax.random.key(2), (9, 6, 6))
    model = lamu.Model(ConvNet((3,)), lamu.likelihoods.Categorical(2))
    ends = [
        lamu.fit(
            model, (images, jnp.arange(9) % 2), lamu.algorithms.vogn(), steps=4, batch_size=9, microbatch_size=size
        )
        for size in (None, 4)
    ]
    one, other = (jax.tree.leaves(fit.posterior.mean) for fit in ends)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
