"""Stochastic-gradient samplers: what the loop keeps of them, what they are right about, and what they refuse."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import memory, tree
from lamu.data import Batch
from lamu.families import Draws
from lamu.mcmc import (
    ControlVariates,
    CurvatureStepSize,
    Cyclical,
    FrozenAfterWarmup,
    Polynomial,
    RootMeanSquare,
    RowNoise,
    UnreliableChains,
    psgld,
    sghmc,
    sgld,
    sgnht,
)
from lamu.mcmc.chains import dispersed_starts, posterior_from_draws
from lamu.mcmc.diagnostics import in_one_place
from lamu.mcmc.dynamics import Dynamics, Friction
from lamu.mcmc.gradients import Minibatch, mean_loss
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.priors import Normal
from lamu.protocol import Choices, Info, Traits
from lamu.running.checkpoints import CheckpointError, Checkpoints
from lamu.running.history import keeps
from tests.for_each import for_each

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2)) @ np.array([[1.0, 0.5], [0.0, 0.7]])
Y = X @ np.array([1.0, -1.0]) + 0.5 + 0.5 * rng.normal(size=40)
MODEL = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5), Normal(1.0))
DESIGN = np.column_stack([np.ones(40), X])
COVARIANCE = np.linalg.inv(DESIGN.T @ DESIGN / 0.25 + np.eye(3))
MEAN = COVARIANCE @ DESIGN.T @ Y / 0.25


def flat(samples: Any) -> np.ndarray:
    """Bias and weights, `[chains, draws, 3]`."""
    layer = samples["network"]["layers"][0]
    return np.concatenate([np.asarray(layer["bias"]), np.asarray(layer["kernel"])[..., 0]], axis=-1)


class Counting:
    """A sampler whose draw is the number of its step, one a chain of two."""

    choices = Choices("draws", "none", "none")

    def __init__(self, **traits: Any) -> None:
        self.traits = Traits(**traits)

    def init(self, key: Any, objective: Any, batch: Any) -> Any:
        return jnp.zeros((), jnp.int32)

    def step(self, key: Any, state: Any, batch: Any, objective: Any) -> Any:
        return state + 1, Info(loss=state.astype(float), draw={"t": jnp.stack([state, 1000 + state])})

    def posterior(self, key: Any, state: Any, objective: Any, data: Any, trace: Any) -> Any:
        assert trace is not None
        return Posterior(objective.model, Draws(jax.tree.map(np.asarray, trace)), {}, Sampled(), key)


@pytest.mark.parametrize(
    "traits",
    [
        {"length": 23, "warmup": 3, "thinning": 4},
        {"length": 300, "warmup": 7},
        {"length": 64, "warmup": 4, "thinning": 3, "cycle": 20, "exploration": 11},
    ],
    ids=str,
)
@pytest.mark.parametrize("data", ["batches", "whole", "stream"])
def test_the_loop_keeps_every_draw_that_it_should_and_no_other(traits: dict[str, int], data: str) -> None:
    sampler = Counting(**traits)
    expected = [t for t in range(traits["length"]) if keeps(sampler.traits, t)]
    rows: Any = [(X[i : i + 10], Y[i : i + 10]) for i in range(0, 40, 10)] if data == "stream" else (X, Y)
    given: Any = {"data_size": 40} if data == "stream" else {"batch_size": 40 if data == "whole" else 7}
    fit = lamu.fit(MODEL, rows, sampler, **given)
    found = fit.posterior.belief.samples["t"]
    np.testing.assert_array_equal(found, np.stack([expected, 1000 + np.array(expected)], axis=1))
    np.testing.assert_array_equal(fit.history["loss"], np.arange(traits["length"]))


LINEAR: dict[str, Any] = {"chains": 2, "warmup": 24, "draws": 60, "thinning": 3}


@pytest.mark.stress
def test_thinned_draws_are_those_of_the_same_chain() -> None:
    every, third = (
        flat(
            lamu.fit(
                MODEL, (X, Y), sgld(0.02, chains=2, warmup=24, draws=n, thinning=k), batch_size=8
            ).posterior.samples
        )
        for n, k in ((36, 1), (12, 3))
    )
    np.testing.assert_allclose(every[:, 2::3], third, rtol=1e-12)


class Cut(Exception):
    """What ends a run from outside."""


def cut_after(steps: int) -> Any:
    def callback(done: int, _: Any) -> None:
        if done >= steps:
            raise Cut

    return callback


CYCLES = sghmc(Cyclical(0.02, cycles=3), preconditioner=FrozenAfterWarmup(), **LINEAR)


@pytest.mark.parametrize(
    ("sampler", "steps"),
    [
        (sgld(0.02, **LINEAR), 24),
        (sgld(0.02, **LINEAR), 100),
        (sgld(**LINEAR), 12),
        pytest.param(CYCLES, 30, marks=pytest.mark.stress),
        pytest.param(CYCLES, 300, marks=pytest.mark.stress),
    ],
    ids=["warm-up", "draws", "step size half learned", "exploration", "cycles"],
)
def test_a_run_on_disk_that_was_cut_short_ends_with_the_same_bits(
    sampler: Dynamics, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut in its warm-up, and among its draws: those that no checkpoint counts are written again."""
    whole = lamu.fit(MODEL, (X, Y), sampler, batch_size=8)
    keeper = Checkpoints(tmp_path / "run", every=0.0)
    with pytest.raises(Cut):
        lamu.fit(MODEL, (X, Y), sampler, batch_size=8, checkpoint=keeper, callbacks=[cut_after(steps)])
    with monkeypatch.context() as patch:
        patch.setattr(memory, "budget", lambda: 500)  # no chunk of memory holds the draws, so that they stay on disk
        again = lamu.fit(MODEL, (X, Y), sampler, batch_size=8, checkpoint=keeper, resume=True)
    assert all(isinstance(leaf, np.memmap) for leaf in jax.tree.leaves(again.posterior.samples))
    np.testing.assert_array_equal(flat(whole.posterior.samples), flat(again.posterior.samples))
    np.testing.assert_array_equal(whole.history["loss"], again.history["loss"])
    np.testing.assert_array_equal(whole.posterior.predict(X).mean, again.posterior.predict(X).mean)
    one, other = (flat({"network": fit.posterior.sample(jax.random.key(1), 3)["network"]}) for fit in (whole, again))
    np.testing.assert_array_equal(one, other)
    kernel = np.load(tmp_path / "run" / "draws" / "network.layers.0.kernel.npy", mmap_mode="r")
    assert kernel.shape == (60, 2, 2, 1)


@pytest.mark.stress
def test_a_longer_run_keeps_its_draws_on_disk(tmp_path: Path) -> None:
    given: dict[str, Any] = {"chains": 2, "warmup": 8, "thinning": 1}
    short = lamu.fit(MODEL, (X, Y), sgld(0.02, draws=8, **given), batch_size=8, checkpoint=tmp_path / "run")
    longer = lamu.fit(
        MODEL, (X, Y), sgld(0.02, draws=20, **given), batch_size=8, checkpoint=tmp_path / "run", resume=True
    )
    np.testing.assert_array_equal(flat(short.posterior.samples), flat(longer.posterior.samples)[:, :8])
    whole = lamu.fit(MODEL, (X, Y), sgld(0.02, draws=20, **given), batch_size=8)
    np.testing.assert_array_equal(flat(longer.posterior.samples), flat(whole.posterior.samples))
    next((tmp_path / "run" / "draws").iterdir()).unlink()
    with pytest.raises(ValueError, match="is missing"):
        lamu.fit(MODEL, (X, Y), sgld(0.02, draws=20, **given), batch_size=8, checkpoint=tmp_path / "run", resume=True)


@pytest.mark.stress
def test_cycles_of_another_length_are_another_run(tmp_path: Path) -> None:
    given: dict[str, Any] = {"chains": 2, "warmup": 8, "thinning": 1}
    start = lambda draws: sgld(Cyclical(0.02, cycles=2), draws=draws, **given)
    lamu.fit(MODEL, (X, Y), start(8), batch_size=8, checkpoint=tmp_path / "run")
    with pytest.raises(CheckpointError, match="is of a run with settings="):
        lamu.fit(MODEL, (X, Y), start(20), batch_size=8, checkpoint=tmp_path / "run", resume=True)


def test_draws_that_fit_nowhere_are_refused_before_the_first_step() -> None:
    with memory.within("1MB"), pytest.raises(ValueError, match=r"give checkpoint=folder"):
        lamu.fit(MODEL, (X, Y), sgld(0.02, draws=100_000, thinning=1), batch_size=8)


def covariance(samples: Any) -> np.ndarray:
    """About the true mean."""
    away = (flat(samples) - MEAN).reshape(-1, 3)
    return away.T @ away / len(away)


def relative(found: np.ndarray, exact: np.ndarray) -> float:
    """The largest error of a variance in any direction, as a share of it."""
    root = np.linalg.cholesky(np.linalg.inv(exact))
    return float(np.max(np.abs(np.linalg.eigvalsh(root.T @ found @ root) - 1)))


MANY: dict[str, Any] = {"chains": 128, "warmup": 0, "draws": 600, "thinning": 10}


@pytest.mark.stress
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda start: sgld(0.008, start=start, **MANY), marks=pytest.mark.stress),
        lambda start: sghmc(0.002, friction=0.3, start=start, **MANY),
        pytest.param(lambda start: psgld(0.004, start=start, **{**MANY, "warmup": 100}), marks=pytest.mark.stress),
        # Twice as long: friction relaxes too, and three dimensions leave it wavering.
        pytest.param(
            lambda start: sgnht(0.002, 0.3, 3.0, start=start, **{**MANY, "draws": 1200}), marks=pytest.mark.stress
        ),
        pytest.param(
            lambda start: sgld(0.008, gradient=ControlVariates(), start=start, **MANY), marks=pytest.mark.stress
        ),
    ],
    ids=["sgld", "sghmc", "psgld", "sgnht", "control variates"],
)
def test_covariance_on_minibatches_is_the_posteriors_to_a_twentieth(make: Any) -> None:
    """Batches of 10 of 40 rows, in every direction, from draws of the posterior that 50 times of relaxation forget.

    With a step of 0.008 ε h is 0.05 at most, and the standard error of a variance 0.025 in the slowest direction.
    """
    start = lamu.fit(MODEL, (X, Y), lamu.algorithms.conjugate()).posterior
    fit = lamu.fit(MODEL, (X, Y), make(start), batch_size=10, seed=1)
    assert relative(covariance(fit.posterior.samples), COVARIANCE) < 0.05


@pytest.mark.stress
def test_without_friction_batches_heat_the_chain() -> None:
    """Hamiltonian steps on subsampled gradients, and the same with friction and its noise."""
    lengths: dict[str, Any] = {"chains": 16, "warmup": 200, "draws": 90, "thinning": 20}
    without = Dynamics(step_size=sghmc(0.02).step_size, momentum=Friction(1e-9), **lengths)
    right = sghmc(0.004, friction=0.3, **lengths)
    found = [covariance(lamu.fit(MODEL, (X, Y), s, batch_size=4).posterior.samples) for s in (without, right)]
    assert relative(found[1], COVARIANCE) < 0.3
    assert np.trace(found[0]) > 3 * np.trace(COVARIANCE)


@pytest.mark.stress
def test_a_known_share_of_the_noise_is_not_added_again() -> None:
    """Independent batches, a step at which their noise is half of what friction asks for."""
    batches = [jnp.asarray(rng.choice(40, 4, replace=False)) for _ in range(4000)]
    objective, whole = Objective(MODEL, 40), Batch.of(jnp.asarray(X), jnp.asarray(Y))
    spread = []
    for noise in (None, RowNoise()):
        sampler = sghmc(0.01, friction=0.2, chains=32, noise_estimate=noise, start=params(MEAN))
        state = sampler.init(jax.random.key(0), objective, whole)

        def body(state: Any, now: Any, sampler: Any = sampler) -> Any:
            t, chosen = now
            batch = jax.tree.map(lambda leaf: leaf[chosen], whole)
            state, info = sampler.step(jax.random.fold_in(jax.random.key(1), t), state, batch, objective)
            return state, info.draw

        _, draws = jax.lax.scan(body, state, (jnp.arange(4000), jnp.stack(batches)))
        spread.append(np.trace(covariance(jax.tree.map(lambda leaf: leaf[500:], draws))) / np.trace(COVARIANCE))
    assert spread[0] > 1.2
    assert abs(spread[1] - 1) < 0.6 * abs(spread[0] - 1)


def params(weights: np.ndarray) -> Any:
    layer = {"bias": jnp.asarray(weights[:1]), "kernel": jnp.asarray(weights[1:, None])}
    return {"network": {"layers": {0: layer}}, "likelihood": {}}


def test_row_noise_is_the_variance_of_a_batch() -> None:
    w, chosen = np.array([0.3, 0.5, -0.2]), np.arange(10)
    batch = jax.tree.map(lambda leaf: leaf[chosen], Batch.of(jnp.asarray(X), jnp.asarray(Y)))
    found = tree.ravel(RowNoise()(params(w), batch, Objective(MODEL, 40), {}))[0]
    single = DESIGN[:10] * (DESIGN[:10] @ w - Y[:10])[:, None] / 0.25
    np.testing.assert_allclose(found, np.var(single, axis=0) * (1 - 10 / 40) / 10, rtol=1e-9)


def test_control_variates_gather_a_pass_and_are_then_exact_at_their_reference() -> None:
    objective, whole = Objective(MODEL, 40), Batch.of(jnp.asarray(X), jnp.asarray(Y))
    at, control = params(np.array([0.3, 0.5, -0.2])), ControlVariates(period=2)
    held, batches = (
        control.init(at),
        [jax.tree.map(lambda leaf, i=i: leaf[i : i + 10], whole) for i in range(0, 40, 10)],
    )
    for batch in batches:
        found = control(held, at, batch, objective, {})
        held = found.memory
        assert not found.moves
    full = lambda p: tree.ravel(jax.grad(mean_loss(objective, whole, {}))(p))[0]
    found = control(held, at, batches[1], objective, {})
    assert found.moves
    np.testing.assert_allclose(tree.ravel(found.gradient)[0], full(at), rtol=1e-9)
    away = params(np.array([0.5, 0.1, 0.2]))
    all_batches = [tree.ravel(control(held, away, batch, objective, {}).gradient)[0] for batch in batches]
    np.testing.assert_allclose(np.mean(all_batches, axis=0), full(away), rtol=1e-9)
    plain = [tree.ravel(Minibatch()({}, away, batch, objective, {}).gradient)[0] for batch in batches]
    assert np.std(all_batches, axis=0).sum() < 0.5 * np.std(plain, axis=0).sum()
    for _ in range(2):
        for batch in batches:
            held = control(held, away, batch, objective, {}).memory
    found = control(held, away, batches[0], objective, {})
    assert not found.moves, "after two passes it gathers at where it is"
    np.testing.assert_array_equal(tree.ravel(found.memory["reference"])[0], tree.ravel(away)[0])


def test_chains_start_at_an_optimisers_point_or_at_a_beliefs_draws() -> None:
    point = lamu.fit(MODEL, (X, Y), lamu.algorithms.map_estimate(), steps=20).posterior
    belief = lamu.fit(MODEL, (X, Y), lamu.algorithms.conjugate()).posterior
    objective, batch = Objective(MODEL, 40), Batch.of(jnp.asarray(X), jnp.asarray(Y))
    for start, same in ((point, True), (belief, False)):
        state = sgld(0.01, chains=2, start=start).init(jax.random.key(0), objective, batch)
        found = flat(jax.tree.map(lambda leaf: leaf[:, None], state.position))[:, 0]
        assert np.array_equal(found[0], found[1]) == same
        centre = flat(jax.tree.map(lambda leaf: leaf[None, None], start.mean))[0, 0]
        spread = np.zeros(3) if same else np.sqrt(np.diag(COVARIANCE))
        assert np.all(np.abs(found - centre) <= 6 * spread)
    wide = lamu.Model(lamu.networks.MLP((3,)), lamu.likelihoods.Gaussian(0.5))
    with pytest.raises(ValueError, match="start has the leaves"):
        sgld(0.01, start=point).init(jax.random.key(0), Objective(wide, 40), batch)


def test_a_held_preconditioner_learns_in_the_warm_up_alone() -> None:
    scales = []
    objective, batch = Objective(MODEL, 40), Batch.of(jnp.asarray(X), jnp.asarray(Y))
    sampler = psgld(0.01, chains=1, warmup=2, draws=3, thinning=1)
    state = sampler.init(jax.random.key(0), objective, batch)
    for t in range(4):
        state, _ = jax.jit(sampler.step)(jax.random.key(t), state, batch, objective)
        scales.append(tree.ravel(state.scale["square"])[0])
    assert not np.array_equal(scales[0], scales[1])
    np.testing.assert_array_equal(scales[1], scales[3])


def test_cycles_explore_cold_and_sample_at_the_targets_temperature() -> None:
    """Ten steps a cycle, of which six explore: there nothing is random, and afterwards everything is."""
    steps = Cyclical(0.02, cycles=2, exploration=0.6, exploration_temperature=0.0)
    sampler = sghmc(steps, chains=1, warmup=0, draws=4, thinning=2)
    assert (sampler.traits.cycle, sampler.traits.exploration, sampler.traits.length) == (10, 6, 20)
    objective, batch = Objective(MODEL, 40), Batch.of(jnp.asarray(X), jnp.asarray(Y))
    state, step = sampler.init(jax.random.key(0), objective, batch), jax.jit(sampler.step)
    for t in range(12):
        one, other = (tree.ravel(step(jax.random.key(seed), state, batch, objective)[0].position)[0] for seed in (1, 2))
        assert np.array_equal(one, other) == (t % 10 < 6), t
        state, _ = step(jax.random.key(3 + t), state, batch, objective)
    assert isinstance(posterior_from_draws(jax.random.key(0), objective, {}, {"w": jnp.zeros((3, 1, 2))}).belief, Draws)


@for_each(
    "make, words",
    [
        (lambda: sgld(-0.1), "step_size=-0.1"),
        (lambda: sgld(chains=0), "chains=0 is not possible"),
        (lambda: sgld(draws=0), "draws=0 is not possible"),
        (lambda: sghmc(thinning=0), "thinning=0 is not possible"),
        (lambda: sghmc(friction=0.0), "friction=0.0: without friction"),
        (lambda: sgnht(inertia=0.0), "inertia=0.0"),
        (lambda: sghmc(noise_estimate=-1.0), "noise_estimate=-1.0 is not a variance"),
        (lambda: psgld(0.01, warmup=0), "no step to adapt in"),
        (lambda: sgld(warmup=0), "warmup=0 leaves no step in which the step size is learned"),
        (lambda: CurvatureStepSize(bias=0.0), "bias=0.0 must be positive"),
        (lambda: CurvatureStepSize(noise=-1.0), "noise=-1.0 must be positive"),
        (lambda: sgld(Cyclical(0.1, cycles=3), draws=10), "10 draws are not the same number in each of 3 cycles"),
        (lambda: Cyclical(0.1, exploration=1.0), "exploration=1.0 is not a share"),
        (lambda: Cyclical(0.1, cycles=0), "cycles=0"),
        (lambda: Cyclical(0.1, exploration_temperature=-1.0), "exploration_temperature=-1.0"),
        (lambda: Polynomial(0.1, power=0.5), "power=0.5"),
        (lambda: Polynomial(0.0), "start=0.0"),
        (lambda: RootMeanSquare(damping=0.0), "damping=0.0"),
        (lambda: ControlVariates(period=0), "period=0"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_a_step_that_is_too_large_says_so() -> None:
    with pytest.raises(lamu.Diverged, match="step size is too large"):
        lamu.fit(MODEL, (X, Y), sgld(1e6, **LINEAR), batch_size=8)


CENTRES = jnp.asarray(np.stack(np.meshgrid(*[np.arange(-4.0, 5.0, 2.0)] * 2), axis=-1).reshape(-1, 2))
LENGTH: dict[str, Any] = {"chains": 1, "warmup": 0, "thinning": 10}


@pytest.mark.stress
@pytest.mark.parametrize(
    ("sampler", "least", "most"),
    [
        (sgld(0.01, draws=5000, **LENGTH), 1, 8),
        (sgld(Polynomial(0.04), draws=5000, **LENGTH), 1, 8),
        (
            sghmc(Cyclical(0.02, cycles=250, exploration=0.5, exploration_temperature=15.0), 0.3, draws=2500, **LENGTH),
            23,
            25,
        ),
    ],
    ids=["sgld", "falling steps", "cycles"],
)
def test_modes_of_a_grid_that_fifty_thousand_gradients_visit(sampler: Dynamics, least: int, most: int) -> None:
    """25 Gaussians of variance 0.03, two apart; a mode counts if it has a hundredth of the draws."""
    density = lamu.LogDensity(
        lambda at: jax.scipy.special.logsumexp(-jnp.sum((at[None] - CENTRES) ** 2, axis=1) / 0.06), jnp.zeros(2)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableChains)
        fit = lamu.fit(density, None, sampler)
    assert len(fit.history["loss"]) == 50_000
    draws = np.asarray(fit.posterior.samples["network"])[0]
    away = np.linalg.norm(draws[:, None] - np.asarray(CENTRES)[None], axis=-1)
    near = away.argmin(axis=1)[away.min(axis=1) < 4 * np.sqrt(0.03)]
    visited = int(np.sum(np.bincount(near, minlength=25) >= 0.01 * len(draws)))
    assert least <= visited <= most, visited


TWO = lamu.LogDensity(lambda t: jnp.logaddexp(-0.5 * (t - 2) ** 2 / 0.03, -0.5 * (t + 2) ** 2 / 0.03), 2.0)


MASSES = np.array([0.2, 0.3, 0.5])
PLACES, SPREADS = jnp.array([[-3.0, 0.0], [3.0, 0.0], [0.0, 4.0]]), jnp.array([0.5, 1.0, 0.7])
THREE = lamu.LogDensity(
    lambda at: jax.scipy.special.logsumexp(
        jnp.log(MASSES) - jnp.sum((at[None] - PLACES) ** 2, axis=1) / (2 * SPREADS**2) - 2 * jnp.log(SPREADS)
    ),
    jnp.zeros(2),
)


def shares(sampler: Dynamics) -> np.ndarray:
    """The share of draws that are nearest to each of the three places."""
    draws = np.asarray(lamu.fit(THREE, None, sampler).posterior.samples["network"]).reshape(-1, 1, 2)
    near = np.linalg.norm(draws - np.asarray(PLACES), axis=-1).argmin(axis=1)
    return np.bincount(near, minlength=3) / len(near)


@pytest.mark.parametrize("make", [sgld, pytest.param(sghmc, marks=pytest.mark.stress)])
@pytest.mark.filterwarnings("ignore::lamu.mcmc.diagnostics.UnreliableChains")
def test_modes_of_a_mixture_are_found_by_plain_cycles_and_have_their_mass(make: Any) -> None:
    """Four chains find all three; 200, as if each made one visit, four standard errors: fails by chance 1 in 5,000."""
    assert shares(make(Cyclical(0.1), thinning=20)).min() > 0.04
    chains = 200
    found = shares(make(Cyclical(0.1), chains=chains, warmup=500, draws=20, thinning=40))
    assert np.all(np.abs(found - MASSES) < 4 * np.sqrt(MASSES * (1 - MASSES) / chains)), found


def test_cycles_that_never_leave_one_mode_of_a_shared_start_are_said_to_show_one() -> None:
    """Modes at -2 and 2 with a start at 2 that was asked for: the same in both chains, where R-hat is one."""
    start = {"network": jnp.array(2.0), "likelihood": {}}
    sampler = sghmc(Cyclical(0.02, cycles=4), chains=2, warmup=0, draws=80, thinning=5, start=start)
    with pytest.warns(UnreliableChains, match=r"all 4 cycles .* ended in one place.*exploration_temp") as said:
        stuck = lamu.fit(TWO, None, sampler, seed=1)
    assert len(said) == 1
    assert np.all(np.asarray(jax.tree.leaves(stuck.posterior.samples)[0]) > 1.0)
    values = np.random.default_rng(0).normal(size=(2, 80))
    assert in_one_place(values, 4)
    assert not in_one_place(values + 20 * (np.arange(80) >= 60), 4)
    assert not in_one_place(values + np.array([[0.0], [20.0]]), 4)


@pytest.mark.parametrize("draws", [40, 200])
def test_chains_that_stay_in_modes_of_their_own_are_said_to_weigh_them_by_their_starts(draws: int) -> None:
    """Eight chains start apart (all on one side: 1 in 7, by the seed not) and keep to their side; once it is said."""
    sampler = sghmc(Cyclical(0.01, cycles=2), chains=8, warmup=0, draws=draws, thinning=2)
    with pytest.warns(UnreliableChains, match=r"each of the 8 chains stayed in a mode of its own .* 2 cycles") as said:
        fit = lamu.fit(TWO, None, sampler, seed=1)
    assert len(said) == 1
    places = np.sign(np.asarray(fit.posterior.samples["network"]).mean(axis=1))
    assert set(places.tolist()) == {-1.0, 1.0}


@pytest.mark.measured
def test_chains_of_a_network_that_did_not_mix_are_said_not_to_have() -> None:
    """Their weights may be permuted, and minibatches give no log density: outputs at the rows tell it."""
    model = lamu.Model(lamu.networks.MLP((3,)), lamu.likelihoods.Gaussian(0.5))
    sampler = sgld(1e-6, chains=2, warmup=0, draws=100, thinning=1)
    with pytest.warns(lamu.Unconverged, match=r"did not mix \(R-hat .*diagnose\(posterior, x\)"):
        fit = lamu.fit(model, (X, Y), sampler)
    found = lamu.mcmc.diagnose(fit.posterior, X[:1])
    assert fit.convergence.r_hat > found.largest_r_hat > 1.1


def test_chains_of_cycles_start_apart_and_others_where_the_density_says() -> None:
    batch = TWO.read(None).full()
    objective = Objective(TWO, 1)
    starts = lambda sampler: np.asarray(sampler.init(jax.random.key(0), objective, batch).position["network"])
    lengths: dict[str, Any] = {"chains": 5, "warmup": 0, "draws": 8, "thinning": 1}
    for make in (sghmc, sgld):
        found = starts(make(Cyclical(0.02, cycles=2), **lengths))
        assert found[0] == 2.0
        assert len(set(found.tolist())) == 5
        assert np.all(np.abs(found - 2.0) <= 4.0)
        assert np.std(found[1:]) > 1.0
        assert starts(make(0.02, **lengths)).tolist() == [2.0] * 5
        given = {"network": jnp.array(1.0), "likelihood": {}}
        assert starts(make(Cyclical(0.02, cycles=2), **lengths, start=given)).tolist() == [1.0] * 5


def test_chains_stay_where_the_density_would_not_be_finite() -> None:
    """Half of all starts about one would lie below zero, where the square root is no number."""
    density = lamu.LogDensity(lambda t: -jnp.sqrt(t), 1.0)
    found = dispersed_starts(jax.random.key(0), {"network": jnp.ones(200), "likelihood": {}}, density)["network"]
    assert bool((found > 0).all())
    assert 0.15 < float(jnp.mean(found == 1.0)) < 0.4  # a fourth: 1 ± 2 is below zero


def test_cycles_over_25_modes_visit_several_from_each_of_two_starts() -> None:
    density = lamu.LogDensity(
        lambda at: jax.scipy.special.logsumexp(-jnp.sum((at[None] - CENTRES) ** 2, axis=1) / 0.06), jnp.zeros(2)
    )
    cycles = Cyclical(0.02, cycles=20, exploration=0.5, exploration_temperature=15.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableChains)
        fit = lamu.fit(density, None, sghmc(cycles, 0.3, chains=2, warmup=0, draws=200, thinning=10))
    draws = np.asarray(fit.posterior.samples["network"])
    modes = [set(np.linalg.norm(chain[:, None] - np.asarray(CENTRES), axis=-1).argmin(1).tolist()) for chain in draws]
    assert min(map(len, modes)) >= 5
    assert len(modes[0] | modes[1]) > max(map(len, modes))
