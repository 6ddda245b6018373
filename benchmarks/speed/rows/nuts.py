"""NUTS: seconds an effective draw, the least of all columns, of four chains with their warm-up.

All sides have the same log density of one flat vector, four chains together, their own adaptation, and one compiled
program a run (NumPyro's `MCMC.run` compiles at every call unless it stands under `jax.jit`).
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from benchmarks.speed.race import Race, growth, row
from benchmarks.speed.timing import Side, here

CHAINS, WARMUP, DRAWS = 4, 500, 1000
Density = Callable[[Any], Any]


def effective(draws: Any) -> float:
    """The least effective sample size of all columns, `[chains, draws, columns]`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # ArviZ announces its next version at import
        import arviz
    draws = np.asarray(draws)
    return min(float(arviz.ess(draws[:, :, column])) for column in range(draws.shape[2]))


def ours(density: Density, start: Any) -> Callable[[int], Any]:
    target = lamu.LogDensity(density, start)
    sampler = lamu.mcmc.nuts(chains=CHAINS, warmup=WARMUP, draws=DRAWS)
    return lambda seed: lamu.fit(target, None, sampler, seed=seed, progress=False).posterior.samples["network"]


def our_model(x: Any, y: Any) -> Callable[[int], Any]:
    """The logistic regression made of the library's parts."""
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli(), lamu.priors.Normal(1.0))
    sampler = lamu.mcmc.nuts(chains=CHAINS, warmup=WARMUP, draws=DRAWS)

    def run(seed: int) -> Any:
        layer = lamu.fit(model, (x, y), sampler, seed=seed, progress=False).posterior.samples["network"]["layers"][0]
        return jnp.concatenate([layer["bias"], layer["kernel"][..., 0]], axis=2)

    return run


def blackjax(density: Density, start: Any) -> Callable[[int], Any]:
    import blackjax

    @jax.jit
    @jax.vmap
    def chain(key: Any) -> Any:
        first, second = jax.random.split(key)
        adaptation = blackjax.window_adaptation(blackjax.nuts, density)
        (state, parameters), _ = adaptation.run(first, start, num_steps=WARMUP)
        step = blackjax.nuts(density, **parameters).step

        def follow(state: Any, key: Any) -> Any:
            state, _ = step(key, state)
            return state, state.position

        return jax.lax.scan(follow, state, jax.random.split(second, DRAWS))[1]

    return lambda seed: chain(jax.random.split(jax.random.key(seed), CHAINS))


def numpyro(density: Density, start: Any) -> Callable[[int], Any]:
    from numpyro.infer import MCMC, NUTS

    kernel = NUTS(potential_fn=lambda position: -density(position))
    options = {"num_warmup": WARMUP, "num_samples": DRAWS, "num_chains": CHAINS, "chain_method": "vectorized"}

    @jax.jit
    def run(key: Any) -> Any:
        sampler = MCMC(kernel, progress_bar=False, **options)
        sampler.run(key, init_params=jnp.tile(start, (CHAINS, 1)))
        return sampler.get_samples(group_by_chain=True)

    return lambda seed: run(jax.random.PRNGKey(seed))


def race(mine: Callable[[int], Any], density: Density, start: Any, rounds: int) -> Race:
    runs = {"lamu": mine, "BlackJAX": blackjax(density, start), "NumPyro": numpyro(density, start)}
    kept: dict[str, list[np.ndarray]] = {name: [] for name in runs}

    def side(name: str) -> Side:
        seeds = itertools.count()
        call = lambda: jax.block_until_ready(runs[name](next(seeds)))

        def units(draws: Any) -> float:
            kept[name].append(np.asarray(draws))
            return effective(draws)

        return here(name, call, units)

    def figures() -> dict[str, float]:
        """How far the means of all runs are from each other, in posterior standard deviations."""
        means = {name: np.concatenate(found, axis=1).mean((0, 1)) for name, found in kept.items()}
        scale = np.concatenate(kept["NumPyro"], axis=1).std((0, 1))
        apart = max(float(np.max(np.abs(means["lamu"] - means[name]) / scale)) for name in ("BlackJAX", "NumPyro"))
        assert apart < 0.2, f"the posterior means are {apart:.2f} posterior standard deviations apart"
        return {"posterior means apart, in standard deviations": apart}

    sides = {name: side(name) for name in runs}
    same = "the posterior means of all runs"
    return Race((sides.pop("lamu"),), tuple(sides.values()), "effective draw", same, rounds, figures=figures)


def credit() -> tuple[Any, Any]:
    """German credit, 1,000 x 24, where LAMU_DATA has it, and otherwise rows of the same shape."""
    path = Path(os.environ.get("LAMU_DATA", "")) / "tabular" / "german_credit.npz"
    if path.is_file():
        with np.load(path) as held:
            x, y = held["X"].astype(np.float32), held["y"]
    else:
        generator = np.random.default_rng(0)
        x = generator.standard_normal((1000, 24)).astype(np.float32)
        y = generator.uniform(size=1000) < 1 / (1 + np.exp(-x @ generator.normal(size=24) / 3))
    return (x - x.mean(0)) / x.std(0), (y == y.max()).astype(np.float32)


def logistic(x: Any, y: Any) -> tuple[Density, Any]:
    x, y = jnp.asarray(x), jnp.asarray(y)

    def density(w: Any) -> Any:
        f = x @ w[1:] + w[0]
        return jnp.sum(y * f - jax.nn.softplus(f)) - 0.5 * jnp.sum(w**2)

    return density, jnp.zeros(x.shape[1] + 1)


def schools(t: Any) -> Any:
    """The eight schools, non-centred: the mean, the logarithm of the scale, and eight standardised effects."""
    y = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sigma = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    mean, scale, effects = t[0], jnp.exp(t[1]), t[2:]
    misfit = (y - mean - scale * effects) / sigma
    prior = -0.5 * (mean / 5) ** 2 - jnp.log1p((scale / 5) ** 2) + t[1] - 0.5 * jnp.sum(effects**2)
    return prior - 0.5 * jnp.sum(misfit**2)


@row("nuts_credit", "NUTS, logistic regression of german credit, as a log density")
def nuts_credit(quick: bool) -> Race:
    density, start = logistic(*credit())
    return race(ours(density, start), density, start, 4 if quick else 15)


@row(
    "nuts_credit_model",
    "NUTS, the same as a `Model`",
    why="A `Model` evaluates a network, a likelihood and a prior in the place of one function, at each gradient.",
)
def nuts_credit_model(quick: bool) -> Race:
    x, y = credit()
    density, start = logistic(x, y)
    return race(our_model(x, y), density, start, 4 if quick else 15)


@row(
    "nuts_schools",
    "NUTS, eight schools, as a log density",
    why="A gradient of ten numbers takes less than what a transition and `fit` do besides.",
)
def nuts_schools(quick: bool) -> Race:
    start = jnp.zeros(10)
    return race(ours(schools, start), schools, start, 8 if quick else 30)


@growth("growth_nuts_rows", "NUTS on logistic regression as rows grow", "rows", (500, 2000, 8000))
def growth_rows(size: int) -> Race:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((size, 24)).astype(np.float32)
    y = (generator.uniform(size=size) < 1 / (1 + np.exp(-x @ generator.normal(size=24) / 3))).astype(np.float32)
    density, start = logistic(x, y)
    return race(ours(density, start), density, start, 2)
