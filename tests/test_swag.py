"""SWAG beside NumPy on the same iterates, several at once, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import lamu
from lamu.algorithms import deep_ensemble, mixture, sgd, swag
from lamu.algorithms.ensembles.swag import (
    Collected,
    DiagonalDeviations,
    EverySteps,
    LastPart,
    LowRankDeviations,
)
from lamu.batch_statistics import Frozen, Recomputed
from lamu.data import Arrays, Batch
from lamu.networks import MLP, BatchNorm
from lamu.objective import Objective
from lamu.operators import LowRankCovariance

rng = np.random.default_rng(3)
N, RANK, STEPS = 12, 3, 14
X = rng.normal(size=(N, 2))
Y = X @ np.array([1.5, -1.0]) + 0.3 * rng.normal(size=N)
MODEL = lamu.Model(MLP((3,), "tanh"), lamu.likelihoods.Gaussian())
OBJECTIVE, BATCH, DATA = Objective(MODEL, float(N)), Batch.of(X, Y), Arrays.of((X, Y))
EVERY = EverySteps(2, first=3)


def key(seed: int):
    return jax.random.key(seed)


def flat(params) -> np.ndarray:
    return np.asarray(lamu.tree.ravel(params)[0])


def walk(algorithm, steps: int = STEPS):
    """All states, from the first to the last."""
    states, step = [algorithm.init(key(0), OBJECTIVE, BATCH)], jax.jit(algorithm.step)
    for t in range(steps):
        states.append(step(key(10 + t), states[-1], BATCH, OBJECTIVE)[0])
    return states


def by_hand(iterates: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Algorithm 1 of Maddox et al. (2019): running moments, and a queue of deviations from the running mean."""
    mean, second, queue = np.zeros(iterates.shape[1]), np.zeros(iterates.shape[1]), []
    for n, theta in enumerate(iterates):
        mean = (n * mean + theta) / (n + 1)
        second = (n * second + theta**2) / (n + 1)
        queue = [*queue[-(rank - 1) :], theta - mean]
    diagonal, columns = second - mean**2, np.stack(queue, axis=1)
    return mean, diagonal, (np.diag(diagonal) + columns @ columns.T / (rank - 1)) / 2


@pytest.mark.stress
def test_moments_are_those_by_hand_on_the_same_iterates() -> None:
    """To 1e-10: six iterates, of which the last three have columns; and the diagonal by itself, twice as wide."""
    optimiser = sgd(0.1, momentum=0.5)
    iterates = np.stack([flat(state.mean["network"]) for state in walk(optimiser)[1:]])[3::2]
    mean, diagonal, covariance = by_hand(iterates, RANK)
    low, wide = (
        swag(optimiser, kind, EVERY).posterior(key(5), state, OBJECTIVE, DATA, None).belief.factors["network"]
        for kind, state in (
            (kind, walk(swag(optimiser, kind, EVERY))[-1]) for kind in (LowRankDeviations(RANK), DiagonalDeviations())
        )
    )
    assert isinstance(low.precision, LowRankCovariance)
    for belief in (low, wide):
        np.testing.assert_allclose(flat(belief.mean), mean, rtol=1e-10, atol=1e-12)
    found = np.asarray(low.precision.covariance.dense(low.mean))
    np.testing.assert_allclose(found, covariance, rtol=1e-10, atol=1e-12 * np.max(covariance))
    np.testing.assert_allclose(flat(wide.precision.variance(wide.mean)), diagonal, rtol=1e-10)
    theta = lamu.tree.ravel(low.mean)[1](jnp.asarray(iterates[0]))
    density = multivariate_normal(mean, covariance)
    assert float(low.log_prob(theta)) == pytest.approx(density.logpdf(iterates[0]), rel=1e-8)
    assert float(low.entropy()) == pytest.approx(density.entropy(), rel=1e-8)


def test_the_optimiser_steps_as_it_does_alone() -> None:
    """Its rate, its momentum, its state from step to step, and its key; by default a constant rate with momentum."""
    base = sgd(0.03, momentum=0.8)
    alone, around = (made.init(key(0), OBJECTIVE, BATCH) for made in (base, swag(base, collect=EVERY)))
    for index in range(4):
        alone, told = jax.jit(base.step)(key(index), alone, BATCH, OBJECTIVE)
        around, info = jax.jit(swag(base, collect=EVERY).step)(key(index), around, BATCH, OBJECTIVE)
        assert float(told.loss) == pytest.approx(float(info.loss), rel=1e-12)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-9), around.inner, alone)
    assert swag().base == sgd(0.005, momentum=0.9)


def test_a_mistaken_collection_would_be_seen() -> None:
    """One iterate off, or a deviation from the last mean in the place of the running one, is far from equal."""
    optimiser = sgd(0.1, momentum=0.5)
    iterates = np.stack([flat(state.mean["network"]) for state in walk(optimiser)[1:]])
    _, _, right = by_hand(iterates[3::2], RANK)
    _, _, late = by_hand(iterates[4::2], RANK)
    centred = iterates[3::2][-RANK:] - iterates[3::2].mean(axis=0)
    other = (np.diag(iterates[3::2].var(axis=0)) + centred.T @ centred / (RANK - 1)) / 2
    for wrong in (late, other):
        assert np.max(np.abs(wrong - right)) > 1e-2 * np.max(np.abs(right))


def test_fewer_iterates_than_columns() -> None:
    """Four of ten: the sum has four terms, and three stand below it."""
    kind = LowRankDeviations(10)
    seen = Collected.none({"network": jnp.zeros(2)}, kind.rank)
    thetas = rng.normal(size=(4, 2))
    for theta in thetas:
        seen = seen.with_iterate({"network": jnp.asarray(theta)}, jnp.asarray(True))
        seen = seen.with_iterate({"network": jnp.full(2, 9.0)}, jnp.asarray(False))
    found = kind.precision(seen.about("network")).covariance.dense(jnp.zeros(2))
    np.testing.assert_allclose(found, by_hand(thetas, 4)[2], rtol=1e-10)


@pytest.mark.stress
def test_several_at_once_are_each_alone_and_one_mixture(tmp_path) -> None:
    one = swag(sgd(0.1, momentum=0.5), LowRankDeviations(RANK), EVERY)
    together = walk(deep_ensemble(one, 2))[-1]
    copies = jax.random.split(key(0), 2)
    alone = [one.init(k, OBJECTIVE, BATCH) for k in copies]
    step = jax.jit(one.step)
    for t in range(STEPS):
        alone = [step(k, s, BATCH, OBJECTIVE)[0] for k, s in zip(jax.random.split(key(10 + t), 2), alone, strict=True)]
    for k in range(2):
        mine = jax.tree.map(lambda leaf: leaf[k], together.seen)  # noqa: B023  (used at once)
        for part in ("mean", "squares", "deviations"):
            np.testing.assert_allclose(flat(getattr(mine, part)), flat(getattr(alone[k].seen, part)), atol=1e-12)
    several = deep_ensemble(one, 2).posterior(key(5), together, OBJECTIVE, DATA, None)
    loaded = lamu.load(several.save(tmp_path / "posterior"))
    np.testing.assert_array_equal(loaded.predict(X, samples=4).mean, several.predict(X, samples=4).mean)
    density = mixture(one, 2).posterior(key(5), together, OBJECTIVE, DATA, None).belief.factors["network"]
    at = density.component(0).mean
    parts = [float(density.component(k).log_prob(at)) for k in range(2)]
    assert float(density.log_prob(at)) == pytest.approx(np.logaddexp(*parts) - np.log(2), rel=1e-9)


@pytest.mark.parametrize(("steps", "share", "iterates"), [(100, 0.5, 10), (100, 0.25, 40), (37, 1.0, 5), (3, 0.5, 2)])
def test_the_last_part_of_a_run_is_evenly_spaced_and_ends_with_it(steps, share, iterates) -> None:
    part = lamu.rate.over(steps, LastPart(share, iterates))
    turns = [t for t in range(steps) if bool(part.collects(jnp.asarray(t)))]
    assert turns[-1] == steps - 1
    assert len(turns) == min(iterates, max(int(share * steps), 1))
    assert len(set(np.diff(turns))) <= 1
    assert turns[0] >= (1 - share) * steps - 1


def test_a_run_without_a_length_collects_the_last_part_of_every_period() -> None:
    part = lamu.rate.over(8, LastPart(0.5, 2), restarts=True)
    assert [t for t in range(24) if bool(part.collects(jnp.asarray(t)))] == [5, 7, 19, 23]
    assert [t for t in range(24) if bool(part.starts_again(jnp.asarray(t)))] == [0, 8]
    state = Collected.none({"w": jnp.zeros(1)}, rank=2)
    for t in range(24):
        state = state.without(part.starts_again(t)).with_iterate({"w": jnp.full(1, float(t))}, part.collects(t))
    assert (int(state.count), float(state.mean["w"][0]), float(state.variance["w"][0])) == (2, 21.0, 4.0)
    fit = lamu.fit(MODEL, (X, Y), swag(sgd(0.05), DiagonalDeviations(), LastPart(0.5, 20)))
    assert int(fit.state.seen.count) == 20


def test_batch_statistics_are_those_at_the_mean() -> None:
    """By hand: the first layer's outputs at the averaged weights; the run's own are others."""
    model = lamu.Model(MLP((3,), "tanh", BatchNorm()), lamu.likelihoods.Gaussian(1.0))
    algorithm = swag(sgd(0.1), DiagonalDeviations(), EverySteps(1))
    objective, batch = Objective(model, float(N)), Batch.of(X[:6], Y[:6])
    state, step = algorithm.init(key(0), objective, batch), jax.jit(algorithm.step)
    for t in range(20):
        state, _ = step(key(t), state, batch, objective)
    mean, run = (
        replace(algorithm, statistics=each).posterior(key(5), state, objective, DATA, None)
        for each in (Recomputed(), Frozen())
    )
    units = X @ np.asarray(mean.mean["network"]["layers"][0]["kernel"])
    found, other = (posterior.network_state["norms"][0] for posterior in (mean, run))
    np.testing.assert_allclose(found["mean"], units.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(found["var"], units.var(axis=0), rtol=0.02)
    assert np.max(np.abs(other["var"] / units.var(axis=0) - 1)) > 0.05


def test_mistakes_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="length is not known"):
        swag().init(key(0), OBJECTIVE, BATCH)
    algorithm = swag(sgd(0.1), collect=EverySteps(5, first=5))
    with pytest.raises(ValueError, match="collected 1 iterates"):
        algorithm.posterior(key(0), walk(algorithm, 8)[-1], OBJECTIVE, DATA, None)
    for make, words in (
        (lambda: LowRankDeviations(1), "rank=1"),
        (lambda: LastPart(0.0), "share=0.0"),
        (lambda: LastPart(0.5, 1), "iterates=1"),
        (lambda: EverySteps(0), "period=0"),
        (lambda: EverySteps(1, -1), "first=-1"),
    ):
        with pytest.raises(ValueError, match=words):
            make()
    with pytest.raises(TypeError, match="is not a pytree and cannot be a part of another"):
        swag(type("Own", (), dict.fromkeys(("traits", "choices", "init", "step", "posterior"), print))())
    with pytest.raises(TypeError, match="is a sampler"):
        swag(lamu.mcmc.nuts(chains=1, warmup=2, draws=2))


@pytest.mark.measured
def test_iterates_closer_than_the_posterior_are_told_a_higher_rate() -> None:
    """The advice was a rate that falls to zero, which took their spread to a hundredth."""
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
    x = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.warns(lamu.Unconverged, match="precisions are off.*a higher constant rate widens") as told:
        lamu.fit(model, (x, x.sum(axis=1)), swag(sgd(0.5)), epochs=100, batch_size=40)
    assert "falls to zero" not in str(told[0].message)
