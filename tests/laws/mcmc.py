"""Laws of samplers: the moments of a target that is known, its temperature, and the chains' bookkeeping.

A row's subject is a function `(model, data, temperature)` that fits; `draws` and `chains` say what was asked for. The
target is a linear regression with known noise and two features of unequal scale that are correlated: its posterior is a
Gaussian, off the origin, with unequal variances and correlated, by NumPy.

Means and variances are held to 4.5 standard errors, by the effective sample size that ArviZ estimates: ten numbers a
run and two runs, a false alarm with probability 2e-4 were the errors normal; the seed is fixed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu.families import Draws
from lamu.priors import Normal
from tests.laws.harness import Row, law, row, twin

NOISE, PRIOR, CHAINS, WARMUP, DRAWS = 0.8, 0.7, 4, 320, 512
rng = np.random.default_rng(3)
mixed = rng.normal(size=(15, 2))
X = np.column_stack([mixed[:, 0], 0.6 * mixed[:, 0] + 0.4 * mixed[:, 1]])
Y = X @ np.array([1.0, 2.0]) + 0.5 + NOISE * rng.normal(size=15)
MODEL = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(NOISE), Normal(PRIOR))
Fitter = Callable[[Any, Any, float], Any]


def exact(temperature: float) -> tuple[np.ndarray, np.ndarray]:
    design = np.column_stack([np.ones(len(X)), X])
    covariance = temperature * np.linalg.inv(design.T @ design / NOISE**2 + np.eye(3) / PRIOR**2)
    return covariance @ design.T @ Y / NOISE**2 / temperature, covariance


def sampled(make: Callable[..., Any], **options: Any) -> Fitter:
    def fitter(model: Any, data: Any, temperature: float) -> Any:
        sampler = make(chains=CHAINS, warmup=WARMUP, draws=DRAWS, **options)
        with warnings.catch_warnings():
            # Slow chains are said to be slow; the bounds below go by what their draws are worth.
            warnings.simplefilter("ignore", lamu.mcmc.UnreliableChains)
            return lamu.fit(model, data, sampler, temperature=temperature, seed=1)

    return fitter


nuts = sampled(lamu.mcmc.nuts)
nuts_row = row("mcmc", "nuts", nuts)
row("mcmc", "hmc", sampled(lamu.mcmc.hmc))
row("mcmc", "parallel_tempering", sampled(lamu.mcmc.parallel_tempering, temperatures=(1.0, 3.0)), "long")
row("mcmc", "mala", sampled(lamu.mcmc.mala), "long")
row("mcmc", "random_walk", sampled(lamu.mcmc.random_walk, thinning=1), "long")
row("mcmc", "ula", sampled(lamu.mcmc.ula), "long")
delayed = lamu.mcmc.DelayedAcceptance()
row("mcmc", "minibatch_mh", sampled(lamu.mcmc.minibatch_mh, rows=5, test=delayed, target_acceptance=0.2), "long")


@cache
def draws(fitter: Fitter, temperature: float) -> np.ndarray:
    """Bias and two weights, `[chains, draws, 3]`."""
    samples = fitter(MODEL, (X, Y), temperature).posterior.samples["network"]["layers"][0]
    return np.concatenate([samples["bias"], samples["kernel"][..., 0]], axis=-1)


def deviations(values: np.ndarray, expected: float) -> float:
    """How many standard errors the average of values `[chains, draws]` is from what it should be."""
    import arviz

    error = np.std(values) / np.sqrt(float(arviz.ess(values)))
    return abs(np.mean(values) - expected) / error


def assert_moments(found: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> None:
    away = found - mean
    for i in range(3):
        assert deviations(found[..., i], mean[i]) < 4.5
        for j in range(i + 1):
            assert deviations(away[..., i] * away[..., j], covariance[i, j]) < 4.5


@law("mcmc")
def moments_are_the_closed_forms(row: Row) -> None:
    assert_moments(draws(row.subject, 1.0), *exact(1.0))


@law("mcmc")
def half_the_temperature_is_half_the_variance(row: Row) -> None:
    mean, covariance = exact(0.5)
    np.testing.assert_allclose(covariance, exact(1.0)[1] / 2)
    assert_moments(draws(row.subject, 0.5), mean, covariance)


@law("mcmc")
def draws_are_as_many_as_asked(row: Row) -> None:
    fit = row.subject(MODEL, (X, Y), 1.0)
    assert isinstance(fit.posterior.belief, Draws)
    kernel = fit.posterior.samples["network"]["layers"][0]["kernel"]
    assert kernel.shape == (CHAINS, DRAWS, 2, 1)
    assert len(fit.history["loss"]) == WARMUP + DRAWS


@law("mcmc")
def warm_up_is_dropped(row: Row) -> None:
    """The chains start many standard deviations away; of 6,000 kept numbers none is beyond six (probability 1e-5)."""
    mean, covariance = exact(1.0)
    model, (x, y) = MODEL, (X, Y)
    start, _ = model.init(jax.random.key(0), lamu.data.Batch.of(jnp.asarray(x), jnp.asarray(y)))
    layer = start["network"]["layers"][0]
    begun = np.concatenate([layer["bias"], layer["kernel"][:, 0]])
    spread = np.sqrt(np.diag(covariance))
    assert np.any(np.abs(begun - mean) > 3 * spread), "a start that tells nothing"
    assert np.all(np.abs(draws(row.subject, 1.0) - mean) < 6 * spread)


@law("mcmc")
def chains_differ(row: Row) -> None:
    found = draws(row.subject, 1.0)
    for chain in range(1, CHAINS):
        assert not np.any(np.all(found[0] == found[chain], axis=-1))


def inverted(model: Any, data: Any, temperature: float) -> Any:
    return nuts(model, data, 1.0 / temperature)


def squared(model: Any, data: Any, temperature: float) -> Any:
    return nuts(model, data, temperature**2)


def without_prior(model: Any, data: Any, temperature: float) -> Any:
    return nuts(replace(model, prior=Normal(1e3)), data, temperature)


def doubled(model: Any, data: Any, temperature: float) -> Any:
    """N scaled: every row twice."""
    sampler = lamu.mcmc.nuts(chains=CHAINS, warmup=WARMUP, draws=DRAWS)
    return lamu.fit(model, data, sampler, temperature=temperature, seed=1, data_size=2.0 * len(X))


def changed(change: Callable[[Any], Any]) -> Fitter:
    def fitter(model: Any, data: Any, temperature: float) -> Any:
        fit = nuts(model, data, temperature)
        samples = jax.tree.map(change, fit.posterior.samples)
        return replace(fit, posterior=replace(fit.posterior, belief=Draws(samples)))

    return fitter


def unadapted(model: Any, data: Any, temperature: float) -> Any:
    """The draws of the warm-up, kept."""
    return lamu.fit(model, data, lamu.mcmc.nuts(chains=CHAINS, warmup=0, draws=20), seed=1)


half = "half_the_temperature_is_half_the_variance"
twin(nuts_row, "inverted temperature", half, inverted)
twin(nuts_row, "standard deviation for variance", half, squared)
twin(nuts_row, "prior dropped", f"{half} moments_are_the_closed_forms", without_prior)
twin(nuts_row, "N scaled", f"{half} moments_are_the_closed_forms", doubled)
twin(nuts_row, "every other draw", "draws_are_as_many_as_asked", changed(lambda leaf: leaf[:, ::2]))
twin(nuts_row, "chains and draws exchanged", "draws_are_as_many_as_asked", changed(lambda leaf: leaf.swapaxes(0, 1)))
twin(nuts_row, "warm-up kept", "warm_up_is_dropped draws_are_as_many_as_asked", unadapted)
twin(nuts_row, "one key for all chains", "chains_differ", changed(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape)))
twin(
    nuts_row,
    "symmetric",
    "moments_are_the_closed_forms",
    changed(lambda leaf: leaf - leaf.mean(axis=(0, 1), keepdims=True)),
)
