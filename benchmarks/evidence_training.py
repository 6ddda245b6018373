"""Training by the evidence beside cross-validation: `python -m benchmarks.evidence_training`.

One hidden layer of 50, the standard splits of five UCI sets (the judged ones of `benchmarks.splits`: `python -m
benchmarks.evidence_training 10` takes all ten, `5 yacht energy` the first five of two sets), 3000 steps of batches of
64. `online_laplace` moves one width a layer and the noise by the evidence, on all training rows, and runs once.
Cross-validated MAP chooses the scale of its prior by the density of unseen rows (five folds, five widths), takes the
noise of those rows' residuals, and runs once more on all rows. The third column is the anchor of the other benchmarks,
MAP with one width, stopped and given its noise by a tenth of the rows. Figures are mean log likelihoods of test rows in
nats and the target's own units; differences are paired, with standard errors over splits.

The gate: above cross-validated MAP on at least four of the five sets.
"""

from __future__ import annotations

import logging
import sys

import numpy as np

import lamu
from benchmarks.intervals import epochs, model_of, tuned_map
from benchmarks.splits import paired
from benchmarks.variational import SETS, Case, cases_of
from lamu.priors import Normal
from lamu.rate import Annealed

A = lamu.algorithms
WIDTHS = (0.1, 0.2, 0.4, 0.8, 1.6)
FOLDS = 5


def by_evidence(x: np.ndarray, y: np.ndarray, to: np.ndarray, at: np.ndarray, seed: int) -> float:
    """Returns the mean log density of the test rows of one run of online training."""
    algorithm = A.online_laplace(burn_in=10, evidence_update_period=15)
    fit = lamu.fit(model_of(x, y, Normal(0.5)), (x, y), algorithm, epochs=epochs(len(x)), seed=seed)
    return float(np.mean(np.asarray(fit.posterior.predict(to).log_prob(at))))


def by_folds(x: np.ndarray, y: np.ndarray, to: np.ndarray, at: np.ndarray, seed: int) -> float:
    """Returns the mean log density of the test rows under the width and the noise of five folds."""
    size = len(x) // FOLDS  # equal folds: one compilation
    order = np.random.default_rng(seed).permutation(len(x))
    held = [order[k * size : (k + 1) * size] for k in range(FOLDS)]
    kept = [np.setdiff1d(order, rows)[: len(x) - size] for rows in held]
    found = {}
    for width in WIDTHS:
        errors = [mean_of(x[k], y[k], x[h], width, seed) - y[h] for k, h in zip(kept, held, strict=True)]
        found[width] = float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))
    # Under the noise of the unseen rows their density is the greater the smaller it is.
    width = min(found, key=lambda s: found[s])
    sigma = found[width]
    z = (at - mean_of(x, y, to, width, seed)) / sigma
    return float(np.mean(-0.5 * z**2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)))


def mean_of(x: np.ndarray, y: np.ndarray, to: np.ndarray, width: float, seed: int) -> np.ndarray:
    """Returns the mean prediction of the most probable parameters under a scale of the prior."""
    fit = lamu.fit(model_of(x, y, Normal(width)), (x, y), A.adam(Annealed(1e-2)), epochs=epochs(len(x)), seed=seed)
    return np.asarray(fit.posterior.predict(to).mean)


def compare(name: str, cases: list[Case]) -> bool:
    """Prints the three on a set, and returns whether the evidence is above the folds."""
    ours, folds, anchor = (
        np.array([run(*case) for case in cases])
        for run in (by_evidence, by_folds, lambda *case: float(tuned_map(*case).mean()))
    )
    print(
        f"{name:10} evidence {ours.mean():7.3f}, cross-validated MAP {folds.mean():7.3f}: {paired(ours, folds)}; "
        f"MAP stopped by a tenth {anchor.mean():7.3f}: {paired(ours, anchor)}   ({len(cases)} splits)",
        flush=True,
    )
    return bool(ours.mean() > folds.mean())


def main() -> None:
    """Prints the comparison of each set, and the gate."""
    logging.getLogger("lamu").setLevel(logging.ERROR)
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    sets = [name for name in SETS if name in sys.argv[1:]] or list(SETS)
    above = [compare(name, cases_of(name, numbers[0] if numbers else 5)) for name in sets]
    print(f"above on {sum(above)} of {len(above)} sets: {'met' if sum(above) >= 4 else 'missed'} (4 of 5)")


if __name__ == "__main__":
    main()
