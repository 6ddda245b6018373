"""Digits with shipped defaults, every algorithm beside adam: `python -m benchmarks.digits`.

Two layers of 64, prior N(0, 1) a weight, the ten judged splits of `benchmarks.splits`, and no length given: every fit
takes as many steps as the loop's own rule asks for, and what it took is printed. Laplace sets a tenth of the training
rows aside to choose the prior's scale on, and learns from the rest. `python -m benchmarks.digits 3` takes the first
three splits.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import lamu
from benchmarks.splits import arrays, paired, seeds
from lamu.priors import LearnedNormal, Normal

A = lamu.algorithms
CONTESTANTS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "adam": (A.adam(), Normal(1.0), {}),
    "adam, annealed": (A.adam(lamu.rate.Annealed(1e-2)), Normal(1.0), {}),
    "ivon": (A.ivon(), Normal(1.0), {}),
    "vogn": (A.vogn(), Normal(1.0), {}),
    "laplace": (A.laplace(), LearnedNormal(1.0), {"validation": 0.1}),
    "last_layer": (A.last_layer(), LearnedNormal(1.0), {"validation": 0.1}),
    "deep_ensemble": (A.deep_ensemble(), Normal(1.0), {}),
}


def main() -> None:
    """Prints accuracy, NLL and calibration error, and the paired difference in NLL to adam."""
    x, y = arrays("digits")
    chosen = seeds(sys.argv[1:])
    first: np.ndarray | None = None
    print(f"{'':32}{'accuracy':>9}{'nll':>9}{'ece':>8}   nll less adam's     seconds a fit    steps")
    for name, (algorithm, prior, options) in CONTESTANTS.items():
        rows, steps, start = [], [], time.perf_counter()
        for seed in chosen:
            train, test = lamu.data.split(y, 0.2, seed, stratify=True)
            model = lamu.Model(lamu.networks.MLP((64, 64)), lamu.likelihoods.Categorical(10), prior)
            model = model.standardised(x[train], y[train])
            fit = lamu.fit(model, (x[train], y[train]), algorithm, seed=seed, **options)
            steps.append(len(fit.history["loss"]))
            pred = fit.posterior.predict(x[test], samples=64)
            rows.append([score(pred, y[test]) for score in (lamu.scores.accuracy, lamu.scores.nll, lamu.scores.ece)])
        accuracy, nll, ece = np.array(rows).T
        first = nll if first is None else first
        seconds = (time.perf_counter() - start) / len(chosen)
        print(
            f"{name:32}{accuracy.mean():9.4f}{nll.mean():9.4f}{ece.mean():8.4f}   {paired(nll, first)}{seconds:10.1f}"
            f"{np.mean(steps):10.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
