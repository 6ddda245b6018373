"""Choosing what to measure, beside random choice: active learning, Bayesian optimisation and bandits on bundled sets.

Every comparison is paired: strategies share the seed's first rows, candidates and held-out rows, and the table has the
mean over seeds of the difference from random choice (of a bandit, from uniform choice) with its standard error.

    python -m benchmarks.acquire [seeds] [learning] [optimisation] [bandits]
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import lamu
from lamu import acquire


def table(title: str, unit: str, results: dict[str, np.ndarray], base: str, lower: bool) -> None:
    """Prints the strategies' mean results and their paired differences from the base, over seeds."""
    print(f"\n{title}: {unit}, {len(results[base])} seeds")
    for name, values in results.items():
        away = values - results[base]
        error = away.std(ddof=1) / np.sqrt(len(away))
        sign = -1 if lower else 1
        verdict = (
            "better" if sign * away.mean() > 2 * error else "worse" if sign * away.mean() < -2 * error else "equal"
        )
        beside = "" if name == base else f"   {away.mean():+8.3f} ± {error:.3f}   {verdict}"
        print(f"  {name:22} {values.mean():8.3f}{beside}")


# Active learning -----------------------------------------------------------------------------------------------------


def learn(name: str, likelihood: Any, first: int, batch: int, rounds: int, seeds: int, score: Any, unit: str) -> None:
    """Asks for labels, some at a time, and scores rows that are never asked; the mean over rounds, of each seed."""
    x, y = (np.asarray(part) for part in lamu.data.load(name))
    x = x.reshape(len(x), -1)
    if name == "digits":
        x = x.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)  # 4 x 4 pixels
    x = ((x - x.mean(0)) / x.std(0)).astype(np.float32)
    numbers = likelihood.support.affine
    y = ((y - y.mean()) / y.std()).astype(np.float32) if numbers else y
    model = lamu.Model(lamu.networks.Linear(), likelihood, lamu.priors.Normal(1.0))

    def fitted(rows: np.ndarray, weight: np.ndarray, seed: int) -> Any:
        data = {"x": x[rows], "y": y[rows], "weight": weight}  # rows of weight zero have no label yet
        algorithm = lamu.algorithms.conjugate() if numbers else lamu.algorithms.laplace()
        length: dict[str, Any] = {} if numbers else {"epochs": 60, "batch_size": len(rows)}
        return lamu.fit(model, data, algorithm, seed=seed, progress=False, **length).posterior

    def run(strategy: Callable[[Any, Any, Any], Any], seed: int) -> float:
        order = np.random.default_rng(seed).permutation(len(x))
        held, pool = order[:200] if len(x) > 500 else order[:150], order[200:600] if len(x) > 500 else order[150:]
        weight = np.zeros(len(pool), np.float32)
        weight[:first] = 1
        scores = []
        for step in range(rounds):
            posterior = fitted(pool, weight, seed)
            scores.append(float(score(posterior.predict(x[held], samples=64), y[held])))
            left = np.flatnonzero(weight == 0)
            key = jax.random.fold_in(jax.random.key(seed), step)
            weight[left[np.asarray(strategy(posterior, x[pool[left]], key))]] = 1
        return float(np.mean(scores))

    strategies: dict[str, Callable[[Any, Any, Any], Any]] = {
        "random": lambda _, x, key: jax.random.choice(key, len(x), (batch,), replace=False),
        "bald": lambda posterior, x, key: acquire.bald(posterior, x, batch, key=key, samples=64).indices,
        "batch_bald": lambda posterior, x, key: acquire.batch_bald(posterior, x, batch, key=key, samples=64).indices,
    }
    results = {title: np.array([run(s, seed) for seed in range(seeds)]) for title, s in strategies.items()}
    title = f"Active learning, {name} ({first} labels at first, {batch} a round, {rounds} rounds)"
    table(title, unit, results, "random", lower=True)


# Bayesian optimisation -----------------------------------------------------------------------------------------------


def optimise(name: str, column: int | None, seeds: int, budget: int = 20) -> None:
    """Looks for the row with the largest value, one at a time: the regret, a mean over the steps, in deviations."""
    x, y = (np.asarray(part) for part in lamu.data.load(name))
    if column is not None:  # a set of classes: the value is one of its columns, the others are the inputs
        x, y = np.delete(x, column, axis=1), x[:, column]
    x = ((x - x.mean(0)) / x.std(0)).astype(np.float32)
    y = ((y - y.mean()) / y.std()).astype(np.float32)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5), lamu.priors.Normal(1.0))

    def run(strategy: Callable[[Any, Any, Any, Any], Any], seed: int) -> float:
        weight, regret = np.zeros(len(x), np.float32), []
        weight[np.random.default_rng(seed).choice(len(x), 5, replace=False)] = 1
        for step in range(budget):
            data = {"x": x, "y": y, "weight": weight}
            posterior = lamu.fit(model, data, lamu.algorithms.conjugate(), seed=seed, progress=False).posterior
            left = np.flatnonzero(weight == 0)
            key, best = jax.random.fold_in(jax.random.key(seed), step), float(y[weight > 0].max())
            weight[left[int(np.asarray(strategy(posterior, x[left], best, key)).ravel()[0])]] = 1
            regret.append(float(y.max() - y[weight > 0].max()))
        return float(np.mean(regret))

    strategies: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
        "random": lambda _, x, best, key: jax.random.randint(key, (1,), 0, len(x)),
        "largest mean": lambda posterior, x, best, key: np.argmax(posterior.predict(x).mean),
        "thompson": lambda posterior, x, best, key: acquire.thompson(posterior, x, key=key).indices,
        "expected_improvement": lambda posterior, x, best, key: (
            acquire.expected_improvement(posterior, x, best, key=key).indices
        ),
    }
    results = {title: np.array([run(s, seed) for seed in range(seeds)]) for title, s in strategies.items()}
    title = f"Bayesian optimisation, {name} ({len(x)} candidates, 5 known, {budget} asked one by one)"
    table(title, "mean regret in standard deviations", results, "random", lower=True)


# Bandits -------------------------------------------------------------------------------------------------------------


def play(name: str, seeds: int, at_once: int = 5, rounds: int = 25) -> None:
    """Gives each row one of the classes as an arm, and is told whether it was right."""
    x, y = (np.asarray(part) for part in lamu.data.load(name))
    x, arms = ((x - x.mean(0)) / x.std(0)).astype(np.float32), int(y.max()) + 1
    rounds = min(rounds, len(x) // at_once)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.2), lamu.priors.Normal(0.2))

    def run(strategy: Callable[[Any, Any, Any], Any], seed: int) -> float:
        rows = np.random.default_rng(seed).permutation(len(x))[: at_once * rounds]
        tried = np.full(len(rows), -1)
        for step in range(rounds):
            posteriors = []
            for arm in range(arms):
                reward, weight = (
                    (y[rows] == arm).astype(np.float32),
                    np.where(tried == arm, 1.0, 1e-6).astype(np.float32),
                )
                data = {"x": x[rows], "y": reward, "weight": weight}
                fit = lamu.fit(model, data, lamu.algorithms.conjugate(), seed=seed, progress=False)
                posteriors.append(fit.posterior)
            now = slice(step * at_once, (step + 1) * at_once)
            tried[now] = strategy(posteriors, x[rows[now]], jax.random.fold_in(jax.random.key(seed), step))
        return float(np.mean(tried != y[rows]))

    strategies: dict[str, Callable[[Any, Any, Any], Any]] = {
        "uniform": lambda _, x, key: jax.random.randint(key, (len(x),), 0, arms),
        "greedy": lambda posteriors, x, key: np.argmax([p.predict(x).mean for p in posteriors], axis=0),
        "thompson_arms": lambda posteriors, x, key: acquire.thompson_arms(posteriors, x, key=key),
    }
    results = {title: np.array([run(s, seed) for seed in range(seeds)]) for title, s in strategies.items()}
    title = f"Bandit, {name} ({arms} arms, {rounds * at_once} rows, {at_once} at a time)"
    table(title, "share of rows given a wrong arm", results, "uniform", lower=True)


def learning(seeds: int) -> None:
    likelihoods = lamu.likelihoods
    learn("digits", likelihoods.Categorical(10), 10, 10, 6, seeds, lamu.scores.nll, "held-out nll")
    learn("breast_cancer", likelihoods.Bernoulli(), 6, 3, 6, seeds, lamu.scores.nll, "held-out nll")
    learn("diabetes", likelihoods.Gaussian(0.7), 6, 3, 10, seeds, lamu.scores.rmse, "held-out rmse")


def optimisation(seeds: int) -> None:
    optimise("diabetes", None, seeds)
    optimise("wine", 9, seeds)  # the intensity of colour
    optimise("breast_cancer", 3, seeds)  # the mean area


def bandits(seeds: int) -> None:
    for name in ("iris", "wine", "breast_cancer"):
        play(name, seeds)


PARTS = {"learning": learning, "optimisation": optimisation, "bandits": bandits}


def main(seeds: str = "8", *parts: str) -> None:
    warnings.simplefilter("ignore")  # the first fits have few rows, and most weights are zero, on purpose
    begun = time.time()
    for part in parts or PARTS:
        PARTS[part](int(seeds))
    print(f"\n{time.time() - begun:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
