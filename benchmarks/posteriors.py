"""Laplace's method, SWAG, an ensemble and NUTS beside a point: `python -m benchmarks.posteriors [splits [sets]]`.

The sets, splits, networks and the prior N(0, 1) of `benchmarks.cold`, whose columns these stand beside; everything as
it ships. `laplace` and `last_layer` run without a length, under that prior and under `LearnedNormal(1.0)`, whose scale
they choose by the evidence; `swag` and `deep_ensemble` (five members of Adam) run 50 epochs, as Adam does there; `nuts`
runs its 4 chains of 1,000 draws where the network has one layer. Test negative log densities in nats a row, the
difference to the point paired by rows and averaged over splits, and seconds of the fit with its compilation.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import lamu
from benchmarks.cold import SETS
from benchmarks.splits import arrays, seeds
from lamu.rate import Annealed

FIXED, OPEN = lamu.priors.Normal(1.0), lamu.priors.LearnedNormal(1.0)
Run = tuple[str, Callable[[], Any], Any, int | None]
RUNS: tuple[Run, ...] = (
    ("adam", lambda: lamu.algorithms.adam(Annealed(1e-2)), FIXED, 50),
    ("laplace", lamu.algorithms.laplace, FIXED, None),
    ("laplace, scale chosen", lamu.algorithms.laplace, OPEN, None),
    ("last_layer", lamu.algorithms.last_layer, FIXED, None),
    ("last_layer, scale chosen", lamu.algorithms.last_layer, OPEN, None),
    ("swag", lamu.algorithms.swag, FIXED, 50),
    ("deep_ensemble", lamu.algorithms.deep_ensemble, FIXED, 50),
    ("nuts", lamu.mcmc.nuts, FIXED, None),
)


def losses(name: str, run: Run, seed: int) -> tuple[np.ndarray, float]:
    """Returns the negative log density of every test row of a split, and the seconds of the fit."""
    _, make, prior, epochs = run
    widths, likelihood = SETS[name]
    x, y = arrays(name)
    likelihood = likelihood()
    train, test = lamu.data.split(y, 0.2, seed, stratify=likelihood.task != "regression")
    model = lamu.Model(lamu.networks.MLP(widths), likelihood, prior).standardised(x[train], y[train])
    start = time.perf_counter()
    posterior = lamu.fit(model, (x[train], y[train]), make(), epochs=epochs).posterior
    seconds = time.perf_counter() - start
    return -np.asarray(posterior.predict(x[test], samples=128).log_prob(y[test]), float), seconds


def main() -> None:
    """Prints a table for each set."""
    chosen = seeds(sys.argv[1:2])
    warnings.simplefilter("ignore", lamu.Unconverged)
    for name in sys.argv[2:] or SETS:
        print(f"\n{name}: {len(chosen)} splits\n{'':26}{'NLL':>8}{'less adam':>18}{'seconds':>9}", flush=True)
        points: list[np.ndarray] = []
        for run in RUNS:
            if run[0] == "nuts" and len(SETS[name][0]) > 1:
                continue
            found = [losses(name, run, seed) for seed in chosen]
            values = [each[0] for each in found]
            points = points or values
            less = [value - point for value, point in zip(values, points, strict=True)]
            error = np.sqrt(np.mean([each.var(ddof=1) / len(each) for each in less]) / len(less))
            apart = f"{np.mean([each.mean() for each in less]):+.3f} ± {error:.3f}"
            seconds = np.mean([each[1] for each in found])
            nll = np.mean([each.mean() for each in values])
            print(f"{run[0]:26}{nll:8.3f}{apart if run[0] != 'adam' else '-':>18}{seconds:9.1f}", flush=True)


if __name__ == "__main__":
    main()
