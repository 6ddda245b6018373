"""Priors that shrink what says nothing: `python -m benchmarks.shrinkage`.

To the ten columns of the diabetes set forty are added that are drawn at random (seed 0). The first two parts fit a
linear regression with learned noise on all rows, and print the mean absolute posterior mean of the forty weights, and
the share of the least-squares weight that each old column of |t| > 3 keeps: `messages` by IVON, with exact messages to
the scales or with the scales beside the weights; `nuts` by four chains. The third, `mlp`, is a network of 32 units on
300 of the rows, with the negative log likelihood of the other 142 in nats a row on five judged splits, under priors
that set no rows aside and under the scale that `fit_prior_scale` chooses. Names choose parts, and a number the splits:

    python -m benchmarks.shrinkage messages
    python -m benchmarks.shrinkage mlp 2

The gates of the third part: a lower negative log likelihood than under Normal(1) on all splits, and within .02 nats of
that under the scale which rows set aside choose.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import jax
import numpy as np

import lamu
from benchmarks.splits import seeds
from lamu.algorithms import conjugate_scales, ivon
from lamu.likelihoods import Gaussian
from lamu.networks import MLP, Linear
from lamu.priors import ARD, Horseshoe, LearnedNormal, Normal, RegularisedHorseshoe

__all__ = ["main"]

ADDED, TRAIN, STEPS, CLEAR = 40, 300, 2000, 3.0  # columns, rows, steps of IVON, |t| of the columns to keep


def columns() -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows with the columns that say nothing, all of mean 0 and deviation 1, and the target so too."""
    x, y = lamu.data.load("diabetes")
    x = np.column_stack([x, np.random.default_rng(0).normal(size=(len(x), ADDED))])
    return (x - x.mean(axis=0)) / x.std(axis=0), (y - y.mean()) / y.std()


def least_squares(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the least-squares weights and which of the old columns have |t| > 3."""
    design = np.column_stack([np.ones(len(x)), x])
    weights, residual, *_ = np.linalg.lstsq(design, y)
    errors = np.sqrt(residual[0] / (len(x) - design.shape[1]) * np.diag(np.linalg.inv(design.T @ design)))
    old = slice(1, 1 + x.shape[1] - ADDED)
    return weights[1:], np.flatnonzero(np.abs(weights / errors)[old] > CLEAR)


def columns_of(weights: Any) -> np.ndarray:
    """Returns the weights of the columns of a linear network, or of draws of them."""
    return np.asarray(weights["layers"][0]["kernel"])[..., 0]


def fitted(prior: Any, algorithm: Any, around: bool, **options: Any) -> np.ndarray:
    """Returns the posterior means of the columns' weights; `around` puts the scales beside the weights."""
    x, y = columns()
    network = prior.around(Linear()) if around else Linear()
    posterior = lamu.fit(lamu.Model(network, Gaussian(), prior), (x, y), algorithm, **options).posterior
    draws = posterior.sample(jax.random.key(1), 4000)["network"]
    weights = jax.vmap(prior.scaled)(draws) if around else draws
    return columns_of(weights).mean(axis=0)


def told(prior: str, algorithm: str, found: np.ndarray, start: float) -> None:
    """Prints a row of the first table."""
    x, y = columns()
    full, clear = least_squares(x, y)
    kept = ", ".join(f"{share:.2f}" for share in found[clear] / full[clear])
    noise = np.abs(found[-ADDED:]).mean()
    print(f"{prior:26}{algorithm:30}{noise:8.4f}   {kept}   {time.perf_counter() - start:5.0f} s", flush=True)


def messages() -> None:
    """Prints the noise of IVON under a horseshoe, by exact messages and with the scales beside the weights."""
    options = {"steps": STEPS, "batch_size": len(columns()[1])}
    for name, prior, how, algorithm, around in (
        ("Horseshoe()", Horseshoe(), "conjugate_scales(ivon())", conjugate_scales(ivon()), False),
        ("Horseshoe(0.1)", Horseshoe(0.1), "ivon(), around the network", ivon(), True),
    ):
        start = time.perf_counter()
        told(name, how, fitted(prior, algorithm, around, **options), start)


def nuts() -> None:
    """Prints the noise of four chains under a normal and two horseshoes."""
    for name, prior, around in (
        ("Normal(1.0)", Normal(1.0), False),
        ("Horseshoe()", Horseshoe(), True),
        ("RegularisedHorseshoe(0.1)", RegularisedHorseshoe(0.1), True),
    ):
        start = time.perf_counter()
        told(name, "nuts()", fitted(prior, lamu.mcmc.nuts(), around), start)


def network(prior: Any, algorithm: Any, seed: int, chosen: bool) -> float:
    """Returns the negative log likelihood of the rows held out; `chosen` chooses the prior's scale on training rows."""
    (x, _), (_, y) = columns(), lamu.data.load("diabetes")  # the target in its own units
    train, test = lamu.data.split(len(y), 1 - TRAIN / len(y), seed)
    model = lamu.Model(MLP((32,)), Gaussian(), prior).standardised(x[train], y[train])
    fit = lamu.fit_prior_scale if chosen else lamu.fit
    options = {"steps": STEPS, "batch_size": TRAIN if not chosen else TRAIN * 9 // 10, "seed": seed}
    found = fit(model, (x[train], y[train]), algorithm, **options)
    return float(lamu.scores.nll(found.posterior.predict(x[test]), y[test]))


def mlp(splits: tuple[int, ...]) -> None:
    """Prints the negative log likelihoods of a network on judged splits, and the gates."""
    runs = {
        "Normal(1.0)": (Normal(1.0), ivon(), False),
        "LearnedNormal(1.0)": (LearnedNormal(1.0), ivon(), True),
        "ARD()": (ARD(), conjugate_scales(ivon()), False),
        "Horseshoe()": (Horseshoe(), conjugate_scales(ivon()), False),
    }
    found: dict[str, list[float]] = {name: [] for name in runs}
    for seed in splits:
        for name, (prior, algorithm, chosen) in runs.items():
            found[name].append(network(prior, algorithm, seed, chosen))
            print(f"{name:26} split {seed}: {found[name][-1]:.4f}", flush=True)
    for name in ("ARD()", "Horseshoe()"):
        better = sum(a < b for a, b in zip(found[name], found["Normal(1.0)"], strict=True))
        close = sum(a < b + 0.02 for a, b in zip(found[name], found["LearnedNormal(1.0)"], strict=True))
        print(f"{name:26} below Normal(1.0) on {better} of {len(splits)}, within .02 of the chosen scale on {close}")


def main() -> None:
    words = sys.argv[1:]
    parts = [word for word in words if not word.isdigit()] or ["messages", "nuts", "mlp"]
    for part in parts:
        if part not in ("messages", "nuts", "mlp"):
            raise SystemExit(f"no part has the name {part!r}; there are messages, nuts and mlp")
    if {"messages", "nuts"} & set(parts):
        print(f"{'prior':26}{'algorithm':30}{'noise':>8}   kept of the columns with |t| > {CLEAR:g}")
    if "messages" in parts:
        messages()
    if "nuts" in parts:
        nuts()
    if "mlp" in parts:
        mlp(seeds([word for word in words if word.isdigit()] or ["5"]))


if __name__ == "__main__":
    main()
