"""Gradients clipped by their norm: optax's own, of the whole batch, beside curvatures that know nothing of it."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lamu
from lamu.data import Batch
from lamu.families import Gaussian
from lamu.objective.curvature import (
    ClippedGradient,
    Damped,
    GaussNewton,
    NoCurvature,
    Price,
    RootScaledGradient,
    SquaredGradient,
    SquaredGradients,
)
from lamu.objective.curvature.interface import evaluated
from lamu.operators import Diagonal
from tests.for_each import for_each
from tests.test_microbatches import MASK, MODEL, WEIGHT, X, Y, loss_of

A = lamu.algorithms
DATA = {"x": X, "y": Y, "weight": WEIGHT / WEIGHT.mean()}
NORM = 0.02  # which every gradient here exceeds


BATCH = Batch(jnp.where(MASK[:, None] > 0, X, 40.0), Y, MASK, WEIGHT)


def at(size: int | None, curvature: object, **scales: float) -> tuple[object, ...]:
    loss, mean = loss_of(size, **scales)
    loss, theta = replace(loss, batch=BATCH), jax.tree.map(lambda leaf: leaf + 0.1, mean)
    belief = Gaussian(mean, Diagonal(jax.tree.map(lambda leaf: 2 + leaf**2, mean)))
    run = lambda theta: evaluated(curvature, loss, theta, belief, Diagonal, jax.random.key(3))
    found = jax.jit(run)(theta)
    return found.value, found.gradient, found.rest, None if found.curvature is None else found.curvature.dense(theta)


def norm_of(gradient: object) -> float:
    return float(optax.tree.norm(gradient))


@pytest.mark.stress
@for_each(
    "curvature", [NoCurvature(), Price(), SquaredGradients(), GaussNewton(), SquaredGradient(), RootScaledGradient()]
)
def test_gradients_are_clipped_once_and_curvatures_are_those_of_the_loss(curvature: object) -> None:
    """Of the whole batch, also over microbatches; at two N and two T."""
    of_gradient = isinstance(curvature, SquaredGradient | RootScaledGradient)
    for scales in ({}, {"temperature": 0.25, "data_size": 500.0}):
        value, gradient, rest, matrix = at(None, curvature, **scales)
        assert norm_of(gradient) > NORM
        for size in (None, 4, 7):
            found = at(size, ClippedGradient(curvature, NORM), **scales)
            share = NORM / norm_of(gradient)
            by_hand = jax.tree.map(lambda leaf, share=share: leaf * share, gradient)
            scale = share ** (2 if isinstance(curvature, SquaredGradient) else 1) if of_gradient else 1.0
            expected = value, by_hand, rest, None if matrix is None else matrix * scale
            close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
            jax.tree.map(close, found, expected)
            jax.tree.map(close, at(size, ClippedGradient(curvature, 1e3), **scales), (value, gradient, rest, matrix))


def test_adam_is_optaxs_chain() -> None:
    """With all rows at every step, against `optax.chain(clip_by_global_norm, adam)` of the same gradients."""
    base = A.adam(1e-2)
    clipped = replace(base, curvature=ClippedGradient(base.curvature, NORM))
    theirs = A.map_estimate(optax.chain(optax.clip_by_global_norm(NORM), optax.adam(1e-2)))
    plain, ours, optaxs = (lamu.fit(MODEL, DATA, algorithm, steps=60) for algorithm in (base, clipped, theirs))
    far = max(
        float(jnp.max(jnp.abs(a - b)))
        for a, b in zip(jax.tree.leaves(plain.posterior.mean), jax.tree.leaves(ours.posterior.mean), strict=True)
    )
    assert far > 1e-4
    for a, b in zip(jax.tree.leaves(ours.posterior.mean), jax.tree.leaves(optaxs.posterior.mean), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.stress
@for_each(
    "algorithm",
    [
        replace(A.sgd(0.05), curvature=ClippedGradient(NoCurvature(), NORM)),
        replace(A.sam(0.05), curvature=ClippedGradient(NoCurvature(), NORM)),
        replace(A.ivon(samples=2), curvature=ClippedGradient(Price(), NORM)),
        replace(A.vogn(), curvature_update_period=2, curvature=ClippedGradient(SquaredGradients(), NORM)),
        replace(A.bsam(), curvature=Damped(ClippedGradient(RootScaledGradient(), NORM), 0.1)),
    ],
)
def test_runs_do_not_depend_on_microbatches(algorithm: object) -> None:
    ends = [
        lamu.fit(MODEL, DATA, algorithm, steps=8, batch_size=16, microbatch_size=size).posterior.mean
        for size in (None, 5)
    ]
    for a, b in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    assert "clipped gradient" in " ".join(algorithm.choices.departures) or algorithm.choices.curvature != "none"


def test_a_fixed_covariance_stays_one_and_what_clips_all_is_refused() -> None:
    clipped = replace(A.sgd(), curvature=ClippedGradient(NoCurvature(), 1.0))
    assert not clipped.keeps_uncertainty
    assert clipped.choices.curvature == "none"
    assert "clipped gradient" in clipped.choices.departures
    with pytest.raises(ValueError, match="give a positive number"):
        ClippedGradient(Price(), 0.0)
