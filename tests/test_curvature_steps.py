"""Step sizes that samplers find by themselves: what they follow, and that default samplers draw from the posterior."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import tree
from lamu.data import Batch
from lamu.mcmc import CurvatureStepSize, UnreliableChains, psgld, random_walk, sghmc, sgld, sgnht
from lamu.mcmc.dynamics import Thermostat
from lamu.objective import Objective
from lamu.priors import Normal
from lamu.running import compiled_steps

rng = np.random.default_rng(5)
ROWS, NOISE = 300, 0.7
ROTATED = np.linalg.qr(rng.normal(size=(5, 5)))[0]
X = rng.normal(size=(ROWS, 5)) * np.geomspace(1.0, 0.1, 5) @ ROTATED  # a condition number of a hundred
Y = X @ rng.normal(size=5) + 0.5 + NOISE * rng.normal(size=ROWS)
SHORT: dict[str, Any] = {"chains": 2, "warmup": 300, "draws": 1, "thinning": 1}


def model(noise: float = NOISE, width: float = 1.0) -> lamu.Model:
    return lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(noise), Normal(width))


def precision(x: np.ndarray, noise: float = NOISE) -> np.ndarray:
    design = np.column_stack([np.ones(len(x)), x])
    return design.T @ design / noise**2 + np.eye(design.shape[1])


def learned(x: np.ndarray, y: np.ndarray, noise: float = NOISE, batch_size: int = ROWS, **given: Any) -> np.ndarray:
    """The largest curvature as each chain knows it after a run."""
    fit = lamu.fit(model(noise), (x, y), sgld(**SHORT), batch_size=batch_size, **given)
    return np.asarray(fit.state.curvature["largest"])


@pytest.mark.stress
def test_the_estimate_is_the_largest_eigenvalue_of_the_hessian() -> None:
    exact = np.linalg.eigvalsh(precision(X) / ROWS).max()
    np.testing.assert_allclose(learned(X, Y), exact, rtol=0.03)  # the next eigenvalue is near
    np.testing.assert_allclose(learned(X, Y, batch_size=64), exact, rtol=0.15)


def test_steps_are_a_hundredth_where_the_loss_is_ten_times_as_steep() -> None:
    """By inputs ten times as large, beside which the intercept is small; and by a noise of a tenth."""
    sizes = []
    for x, noise in ((X, NOISE), (10 * X, NOISE), (X, NOISE / 10)):
        h = learned(x, Y, noise)
        memory = {"largest": jnp.asarray(h[0]), "rows": jnp.asarray(64.0)}
        sizes.append(float(CurvatureStepSize().last(memory, ROWS, 1.0, 1.0)))
    exact = [np.linalg.eigvalsh(precision(x, noise)).max() for x, noise in ((X, NOISE), (10 * X, NOISE))]
    np.testing.assert_allclose(sizes[0] / sizes[1], exact[1] / exact[0], rtol=0.02)
    np.testing.assert_allclose(sizes[0] / sizes[2], 100.0, rtol=0.02)


@pytest.mark.stress
def test_the_metric_of_a_preconditioner_is_in_the_estimate() -> None:
    fit = lamu.fit(model(), (X, Y), psgld(**SHORT), batch_size=ROWS)
    root = jax.vmap(psgld().preconditioner.root)(fit.state.scale)
    layer = root["network"]["layers"][0]
    roots = np.concatenate([np.asarray(layer["bias"]), np.asarray(layer["kernel"])[..., 0]], axis=1)
    exact = [np.linalg.eigvalsh(precision(X) / ROWS * np.outer(each, each)).max() for each in roots]
    # The metric still moves where it was learned, which is what the last products average over.
    np.testing.assert_allclose(fit.state.curvature["largest"], exact, rtol=0.3)


def test_colder_targets_more_rows_and_more_momentum_take_shorter_steps() -> None:
    rule, memory = CurvatureStepSize(), {"largest": jnp.asarray(2.0), "rows": jnp.asarray(50.0)}
    size = lambda rows, T, friction: float(rule.last(memory, rows, T, friction))
    assert size(500.0, 0.1, 1.0) < size(500.0, 1.0, 1.0) < size(500.0, 10.0, 1.0)
    assert size(5000.0, 1.0, 1.0) < size(500.0, 1.0, 1.0) < size(50.0, 1.0, 1.0)
    assert size(500.0, 1.0, 0.1) < size(500.0, 1.0, 1.0)
    # All rows in one batch have no noise, at any temperature: a step of 0.1 over the curvature, and 0.19 with momentum.
    np.testing.assert_allclose([size(50.0, T, 1.0) for T in (0.01, 1.0)], 0.05, rtol=1e-6)
    np.testing.assert_allclose(size(50.0, 1.0, 0.1), 0.095, rtol=1e-6)
    # Many batches: the share of the variance that their noise adds is the same for all numbers and temperatures.
    many = [size(N, T, 1.0) * 2.0 * N / 50.0 / T**0.5 for N, T in ((1e6, 1.0), (1e6, 0.01), (1e7, 1.0))]
    np.testing.assert_allclose(many, 0.5, rtol=1e-2)


def test_an_epochs_last_rows_take_a_step_in_proportion() -> None:
    rule = CurvatureStepSize()
    memory = {"largest": jnp.asarray(2.0), "rows": jnp.asarray(64.0)}
    whole, few = (
        float(rule.size(memory, Objective(model(), 130), 1.0, jnp.asarray(rows), 500, 100)) for rows in (64.0, 2.0)
    )
    np.testing.assert_allclose(few / whole, 2 / 64, rtol=1e-6)


def test_a_chain_rests_until_it_knows_and_holds_its_step_while_draws_are_kept() -> None:
    objective, batch = Objective(model(), ROWS), Batch.of(jnp.asarray(X), jnp.asarray(Y))
    sampler = sgld(chains=1, warmup=40, draws=5, thinning=1)
    state, step, places, known = sampler.init(jax.random.key(0), objective, batch), jax.jit(sampler.step), [], []
    for t in range(44):
        state, _ = step(jax.random.key(t), state, batch, objective)
        places.append(np.asarray(tree.ravel(state.position)[0]))
        known.append(float(state.curvature["largest"][0]))
    assert np.isinf(known[8])
    assert np.isfinite(known[9])
    assert np.array_equal(places[0], places[8])
    assert not np.array_equal(places[8], places[9])
    assert known[38] != known[39]
    assert known[39] == known[43]


def test_flat_losses_leave_a_chain_where_it_is() -> None:
    """There is no curvature to learn from, and the fit says so."""
    density = lamu.LogDensity(lambda theta: -jnp.sum(jnp.abs(theta)), jnp.ones(2))
    with pytest.warns(UnreliableChains, match="no curvature where chains start.*give step_size="):
        draws = lamu.fit(density, None, sgld(**SHORT)).posterior.samples["network"]
    np.testing.assert_array_equal(draws, np.ones((2, 1, 2)))


@pytest.mark.parametrize(
    "make",
    [
        sgld,
        pytest.param(psgld, marks=pytest.mark.stress),
        pytest.param(sghmc, marks=pytest.mark.stress),
        pytest.param(sgnht, marks=pytest.mark.stress),
        pytest.param(random_walk, marks=pytest.mark.stress),
    ],
)
def test_default_samplers_draw_from_the_posterior(make: Any) -> None:
    """Of an ill-conditioned regression, whose batches of 64 leave 44 rows for the last."""
    found = precision(X)
    covariance = np.linalg.inv(found)
    mean = covariance @ np.column_stack([np.ones(ROWS), X]).T @ Y / NOISE**2
    layer = lamu.fit(model(), (X, Y), make()).posterior.samples["network"]["layers"][0]
    draws = np.concatenate([np.asarray(layer["bias"]), np.asarray(layer["kernel"])[..., 0]], axis=-1).reshape(-1, 6)
    sd = np.sqrt(np.diagonal(covariance))
    assert np.max(np.abs(draws.mean(0) - mean) / sd) < 0.25
    assert np.all(np.abs(np.log(draws.std(0) / sd)) < np.log(1.15))


@pytest.mark.stress
def test_other_data_and_temperatures_do_not_compile() -> None:
    given: dict[str, Any] = {"chains": 2, "warmup": 12, "draws": 6, "thinning": 2}
    lamu.fit(model(), (X, Y), sgld(**given), batch_size=64)
    before = compiled_steps.scan_batches._cache_size(), compiled_steps.start._cache_size()
    lamu.fit(model(), (X, Y + 1), sgld(CurvatureStepSize(0.05, 0.2), **given), batch_size=64, temperature=0.5, seed=1)
    assert before == (compiled_steps.scan_batches._cache_size(), compiled_steps.start._cache_size())


def test_a_thermostat_without_an_inertia_has_no_units_and_an_upper_end() -> None:
    start = Thermostat(0.1, None).init(jnp.zeros(2))
    slow, fast = (Thermostat(0.1, None).move(start, jnp.full(2, 2.0), size, 1.0)[0] for size in (1e-6, 1.0))
    assert float(slow["zeta"]) == float(fast["zeta"]) > 0.1
    hot = Thermostat(0.1, None).move(start, jnp.full(2, 1e3), 1.0, 1.0)[0]
    assert float(hot["zeta"]) == 1.0
    assert sgnht().momentum.inertia is None
    assert sgnht(1e-3).momentum.inertia == 1.0


def test_a_random_walk_keeps_one_draw_in_ten() -> None:
    assert (random_walk().traits.length, random_walk().traits.thinning) == (11_000, 10)
    whole, tenth = (
        lamu.fit(
            lamu.LogDensity(lambda theta: -(theta**2), 0.0),
            None,
            random_walk(2, 0, draws, step_size=1.0, thinning=thinning),
        ).posterior.samples["network"]
        for draws, thinning in ((40, 1), (4, 10))
    )
    np.testing.assert_array_equal(np.asarray(whole)[:, 9::10], tenth)


@pytest.mark.stress
def test_every_pytree_and_float_goes_through() -> None:
    """A network with two kinds of leaves in float32, under a jitted scan over keys."""
    network = lamu.Model(lamu.networks.MLP((3,), "tanh"), lamu.likelihoods.Gaussian(), Normal(1.0))
    batch = Batch.of(jnp.asarray(X, jnp.float32), jnp.asarray(Y, jnp.float32))
    objective, sampler = Objective(network, ROWS), replace(sghmc(**SHORT), chains=3)
    state = sampler.init(jax.random.key(0), objective, batch)
    body = lambda state, key: sampler.step(key, state, batch, objective)
    with jax.debug_key_reuse(False):
        after, info = jax.jit(lambda state, keys: jax.lax.scan(body, state, keys))(
            state, jax.random.split(jax.random.key(1), 80)
        )
    assert np.isfinite(np.asarray(info.loss)).all()
    assert after.curvature["largest"].shape == (3,)
    kinds = lambda a: [(leaf.dtype, leaf.shape) for leaf in jax.tree.leaves(a)]
    assert kinds(after) == kinds(state)
