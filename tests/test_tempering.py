"""Parallel tempering: what an exchange keeps, and what chains gain by it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lamu
from lamu.data import Batch
from lamu.density import nothing
from lamu.mcmc import parallel_tempering
from lamu.mcmc.chains import Chain, LogTarget
from lamu.mcmc.metropolis import RandomWalk
from lamu.mcmc.tempering import Replicas
from lamu.objective import Objective
from lamu.record import record
from tests.for_each import for_each

SHAPE, CHAINS, LADDER = 2.0, 50_000, (1.0, 2.5, 6.0)
SKEWED = LogTarget(Objective(lamu.LogDensity(lambda u: SHAPE * u - jnp.exp(u), 0.0), 1.0), Batch.of(*nothing()), {})

# Three quarters of the mass at −6, one at 6, and twelve standard deviations of nothing between them.
TWO = lamu.LogDensity(lambda u: jnp.logaddexp(-0.5 * (u - 6) ** 2, jnp.log(3.0) - 0.5 * (u + 6) ** 2), 6.0)


@record
class Inverted(Replicas):
    """Exchanges by the inverse of the ratio."""

    def exchange(self, key: Any, replicas: Chain, target: LogTarget) -> Any:
        flipped = replace(target, objective=replace(target.objective, temperature=-1.0 * jnp.ones(())))
        backward = replace(replicas, log_density=-replicas.log_density)
        found, chance = super().exchange(key, backward, flipped)
        return replace(found, log_density=-found.log_density), chance


@record
class OwnLevels(Replicas):
    """Leaves the places of the second of a pair as they were: one state twice, another lost."""

    def exchange(self, key: Any, replicas: Chain, target: LogTarget) -> Any:
        found, chance = super().exchange(key, replicas, target)
        back = lambda new, old: new.at[1].set(old[1])
        return jax.tree.map(back, found, replicas), chance


def exchanged(kernel: Replicas) -> tuple[list[float], float]:
    """How likely the places are after one exchange of exact draws, at each temperature and together; and its chance."""
    generator = np.random.default_rng(0)
    exact = np.stack([np.log(generator.gamma(SHAPE / t, t, CHAINS)) for t in kernel.temperatures], axis=1)

    @jax.jit
    def many(places: Any) -> Any:
        def one(key: Any, places: Any) -> Any:
            replicas = kernel._begun({"network": places, "likelihood": {}}, SKEWED)
            moved, chance = kernel.exchange(key, replicas, SKEWED)
            return moved.position["network"], chance

        return jax.vmap(one)(jax.random.split(jax.random.key(1), CHAINS), places)

    found, chance = many(jnp.asarray(exact))
    # e^u has a Gamma law of shape 2/T and scale T, where u has the density exp((2u − e^u)/T).
    laws = [stats.gamma(SHAPE / t, scale=t) for t in kernel.temperatures]
    found = np.asarray(found)
    tests = [stats.kstest(np.exp(found[:, i]), law.cdf).pvalue for i, law in enumerate(laws)]
    tests += [stats.spearmanr(found[:, i], found[:, i + 1]).pvalue for i in range(len(laws) - 1)]  # still independent
    return tests, float(np.mean(chance))


@pytest.mark.parametrize("ladder", [LADDER, LADDER[:2]])
def test_an_exchange_keeps_every_temperatures_law(ladder) -> None:
    """By Kolmogorov and Smirnov, and by ranks of neighbours: eight tests, a false alarm with probability 8e-6."""
    chances, offered = exchanged(Replicas(RandomWalk(), ladder))
    assert min(chances) > 1e-6
    assert 0.2 < offered < 0.9


@pytest.mark.parametrize("broken", [Inverted, OwnLevels])
def test_an_exchange_that_is_wrong_is_seen(broken) -> None:
    assert min(exchanged(broken(RandomWalk(), LADDER))[0]) < 1e-6


@pytest.mark.parametrize("kernel", [None, pytest.param(lamu.mcmc.nuts().kernel, marks=pytest.mark.stress)])
def test_modes_get_their_masses(kernel) -> None:
    """From a start in the lighter one. Twelve chains: by their own scatter, 4.5 standard errors."""
    sampler = parallel_tempering(12, 320, 512, (1.0, 3.0, 9.0, 27.0), kernel=kernel)
    posterior = lamu.fit(TWO, None, sampler).posterior
    shares = np.mean(np.asarray(posterior.samples["network"]) < 0, axis=1)
    error = shares.std(ddof=1) / np.sqrt(len(shares))
    assert error < 0.05
    assert abs(shares.mean() - 0.75) < 4.5 * error
    assert 0.2 < np.mean(posterior.belief.statistics["exchange"]) < 0.9


def test_without_replicas_chains_stay_on_their_side() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lamu.mcmc.UnreliableChains)
        posterior = lamu.fit(TWO, None, lamu.mcmc.hmc(4, 320, 512)).posterior
    side = np.asarray(posterior.samples["network"]) > 0
    assert np.all(side == side[:, :1]), "what a warm-up does with its first, large steps is another thing"


RATE = lamu.LogDensity(lambda s: -s, 1.0, constraints={"*": "positive"})


def test_heat_divides_no_jacobian() -> None:
    """Of s = exp(u) with the density exp(−s): −s/(T_k T) + u at temperature k."""
    target = LogTarget(Objective(RATE, 1.0, temperature=0.5), Batch.of(*nothing()), {})
    at = {"network": jnp.full(3, 0.7), "likelihood": {}}
    found = Replicas(RandomWalk(), LADDER)._begun(at, target).log_density
    np.testing.assert_allclose(found, -np.exp(0.7) / (0.5 * np.array(LADDER)) + 0.7, rtol=1e-12)


def test_the_coldest_has_the_runs_own_temperature() -> None:
    """An exponential scale at T = 1/2 has the mean 1/2."""
    sampler = parallel_tempering(8, 320, 512, (1.0, 2.0, 4.0))
    found = np.asarray(lamu.fit(RATE, None, sampler, temperature=0.5).posterior.samples["network"])
    error = found.mean(axis=1).std(ddof=1) / np.sqrt(len(found))
    assert abs(found.mean() - 0.5) < 4.5 * error, "exp(−2s): a false alarm with probability 0.003 by its t law, 7 d.f."
    assert error < 0.05


@for_each("ladder", [(1.0,), (2.0, 4.0), (1.0, 4.0, 2.0), (1.0, 1.0), ()])
def test_what_is_no_ladder(ladder) -> None:
    with pytest.raises(ValueError, match="is not a ladder; give at least two that rise from 1"):
        parallel_tempering(temperatures=ladder)


def test_rows_know_no_whole_density() -> None:
    with pytest.raises(TypeError, match="looks at some rows only"):
        parallel_tempering(kernel=lamu.mcmc.minibatch_mh().kernel)


def test_replicas_that_do_not_exchange_are_told() -> None:
    """A hundred normal numbers at temperatures a thousandfold apart have no place in common."""
    many = lamu.LogDensity(lambda u: -0.5 * jnp.sum(u**2), jnp.zeros(100))
    with pytest.warns(lamu.mcmc.UnreliableChains, match="put more temperatures between them"):
        lamu.fit(many, None, parallel_tempering(2, 64, 128, (1.0, 1000.0)))
