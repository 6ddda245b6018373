"""Five ConvNets as `deep_ensemble` beside the same five as fits one after the other, on images of 28 by 28 pixels."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np

import lamu
from benchmarks.speed.race import Race, row
from benchmarks.speed.timing import here

MEMBERS = 5


def race(images: int, rounds: int) -> Race:
    x, y = lamu.data.load("fashion_mnist")
    chosen = np.random.default_rng(0).integers(0, len(x), images)
    x = np.asarray(x, np.float32).reshape(len(x), 28, 28)
    x, y = x[chosen] / x.max(), np.asarray(y)[chosen]
    network = lamu.networks.ConvNet((6, 16), widths=(120, 84), kernel=5)
    model = lamu.Model(network, lamu.likelihoods.Categorical(10), lamu.priors.Normal(1.0))
    options: dict[str, Any] = {"epochs": 1, "batch_size": 128, "progress": False}
    adam = lambda: lamu.algorithms.adam(1e-3)
    kept: dict[str, Any] = {}
    warnings.simplefilter("ignore", lamu.Unconverged)  # one epoch: times do not depend on more

    def together() -> None:
        algorithm = lamu.algorithms.deep_ensemble(adam(), members=MEMBERS)
        kept["together"] = [lamu.fit(model, (x, y), algorithm, seed=0, **options).posterior]
        jax.block_until_ready(jax.tree.leaves(kept["together"][0].belief))

    def in_turn() -> None:
        kept["in turn"] = [lamu.fit(model, (x, y), adam(), seed=seed, **options).posterior for seed in range(MEMBERS)]
        jax.block_until_ready([jax.tree.leaves(posterior.belief) for posterior in kept["in turn"]])

    def figures() -> dict[str, float]:
        """The NLL of rows by the mean of probabilities of both."""
        found = {}
        for name, posteriors in kept.items():
            mean = np.mean([np.asarray(posterior.predict(x[:500]).mean) for posterior in posteriors], axis=0)
            found[f"NLL of 500 rows, {name}"] = float(-np.mean(np.log(mean[np.arange(500), y[:500]])))
        assert max(found.values()) / min(found.values()) < 1.15, f"{found}"
        return found

    same = "the negative log probability of rows of both ensembles"
    sides = here("deep_ensemble", together), here("fits in turn", in_turn)
    return Race(sides[:1], sides[1:], "ensemble", same, rounds, figures=figures)


@row("ensemble", f"{MEMBERS} ConvNets as deep_ensemble, 2,000 images, one epoch")
def ensemble(quick: bool) -> Race:
    return race(2_000, 1 if quick else 8)


@row("ensemble_large", f"{MEMBERS} ConvNets as deep_ensemble, 20,000 images, one epoch", quick=False)
def ensemble_large(quick: bool) -> Race:
    return race(20_000, 3)
