"""The curvature of classes averaged over the belief: beside averages by hand in NumPy, and where it is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import tree
from lamu.algorithms import laplace, last_layer
from lamu.algorithms.post_hoc.laplace_fit import fit_laplace
from lamu.algorithms.post_hoc.laplace_posterior import _shifted_outputs, averaged
from lamu.families import Point
from lamu.likelihoods import Bernoulli, Categorical
from lamu.model import Model
from lamu.networks import MLP, Linear
from lamu.objective.curvature import GaussNewton
from lamu.operators import Dense, Diagonal, KroneckerFactored
from lamu.priors import Normal
from tests.laplace_case import CLASSES, POWER, SIZE, TEMPERATURE, WEIGHT, Case, N, X, dense

NETWORK = MLP((4,), activation="tanh")
KEY = jax.random.key(0)


def sure(likelihood: Any, y: Any) -> Case:
    """A case whose logits are so large that the information at them nearly vanishes."""
    case = Case(Model(NETWORK, likelihood, Normal(1.0)), y)
    large = tree.map_with_path(
        lambda path, leaf: leaf * (15 if path.startswith("layers/1") else 1), case.params["network"]
    )
    case.params = {**case.params, "network": large}
    case.point = replace(case.point, belief=Point(case.params))
    case.vector = tree.ravel(large)[0]
    return case


def at_mode(structure: Any, case: Case) -> Any:
    return fit_laplace(structure, case.point, case.objective, case.rows)


def covariances(case: Case, precision: np.ndarray) -> np.ndarray:
    J = np.asarray(case.jacobian(X))
    return np.einsum("nkd,de,nle->nkl", J, np.linalg.inv(precision), J)


def precision_of(case: Case, information: np.ndarray) -> np.ndarray:
    J = np.asarray(case.jacobian(X))
    curvature = SIZE / N * POWER * np.einsum("nkd,nkl,nle,n->de", J, information, J, WEIGHT)
    return (curvature + np.eye(len(case.vector))) / TEMPERATURE


def logits(case: Case) -> np.ndarray:
    return np.asarray(jax.vmap(case.outputs, (None, 0))(case.vector, jnp.asarray(X)))


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(3)], ids=["one output", "three outputs"])
def test_the_precision_is_the_fixed_point_of_the_averaged_curvature(likelihood: Any) -> None:
    y = CLASSES if isinstance(likelihood, Categorical) else np.minimum(CLASSES, 1)
    case = sure(likelihood, y)
    mode = at_mode(Dense, case)
    fit = averaged(Dense, mode, case.point, case.objective, case.rows, KEY)
    found, f = dense(fit.posterior(case.objective, KEY)), logits(case)
    spread = covariances(case, found)
    z = np.random.default_rng(1).normal(size=(40_000, *f.shape))
    draws = f + np.einsum("nkl,snl->snk", np.linalg.cholesky(spread + 1e-9 * np.eye(f.shape[1])), z)
    if f.shape[1] == 1:
        p = 1 / (1 + np.exp(-draws))
        information = np.mean(p * (1 - p), axis=0)[:, :, None]
    else:
        p = np.exp(draws - draws.max(axis=2, keepdims=True))
        p /= p.sum(axis=2, keepdims=True)
        information = np.mean(p[..., None] * np.eye(3) - p[..., :, None] * p[..., None, :], axis=0)
    again = covariances(case, precision_of(case, information))
    # It stops at covariances that move by 2 %, of a map whose slope is above one; three outputs have 32 draws.
    moved = np.abs(again - spread).sum() / np.abs(spread).sum()
    assert moved < (0.05 if f.shape[1] == 1 else 0.1)
    plain = covariances(case, dense(mode.posterior(case.objective, KEY)))
    assert np.abs(plain - spread).sum() / np.abs(spread).sum() > 0.5


@pytest.mark.parametrize("structure", [Diagonal, KroneckerFactored()], ids=["diagonal", "factors"])
def test_every_structure_narrows_where_the_network_is_sure(structure: Any) -> None:
    case = sure(Categorical(3), CLASSES)
    mode = at_mode(structure, case)
    fit = averaged(structure, mode, case.point, case.objective, case.rows, KEY)
    weights = case.params["network"]
    variance = lambda one: np.concatenate(
        [np.ravel(leaf) for leaf in jax.tree.leaves(one.precision(case.objective).factored().variance(weights))]
    )
    assert variance(fit).sum() < 0.95 * variance(mode).sum()


def test_rows_of_padding_count_for_nothing() -> None:
    mean, mask = jnp.zeros((3, 2)), jnp.array([1.0, 1.0, 0.0])
    spread = jnp.stack([jnp.eye(2), 2 * jnp.eye(2), jnp.full((2, 2), jnp.nan)])
    shift, weights, change, size = _shifted_outputs(mean, spread, spread / 2, mask, KEY)
    assert np.isfinite(shift).all()
    assert float(weights.sum()) == pytest.approx(1.0)
    assert (float(change), float(size)) == (pytest.approx(3.0), pytest.approx(3.0))


def test_a_linear_network_keeps_the_curvature_at_its_mode() -> None:
    data = (X, np.minimum(CLASSES, 1))
    model = Model(Linear(), Bernoulli(), Normal(1.0))
    default, plain = (
        lamu.fit(model, data, laplace(curvature=curvature), epochs=5).posterior for curvature in (None, GaussNewton())
    )
    jax.tree.map(np.testing.assert_array_equal, default.belief, plain.belief)


@pytest.mark.stress
def test_a_network_that_tells_its_rows_apart_predicts_new_ones_better() -> None:
    x, y = lamu.data.load("wine")
    train, test = lamu.data.split(y, test_size=0.5, seed=0, stratify=True)
    model = Model(MLP((16,)), Categorical(3)).standardised(x[train], y[train])
    default, plain = (
        lamu.fit(model, (x[train], y[train]), last_layer(curvature=curvature), epochs=20).posterior
        for curvature in (None, GaussNewton())
    )
    nll = lambda posterior: lamu.scores.nll(posterior.predict(x[test], samples=256), y[test])
    assert nll(default) < nll(plain) - 0.01
    assert default.evidence == pytest.approx(plain.evidence)


@pytest.mark.stress
def test_a_precision_that_rounding_makes_singular_keeps_the_curvature_at_its_mode(caplog) -> None:
    x, y = lamu.data.load("wine")
    with jax.enable_x64(False):
        model = Model(MLP((8,), "tanh"), Categorical(3), Normal(1e6)).standardised(x, y)
        posterior = lamu.fit(model, (x, y), last_layer(), epochs=2).posterior
        assert np.isfinite(lamu.scores.nll(posterior.predict(x), y))
    assert "not averaged" in caplog.text
    assert "float32" in caplog.text
