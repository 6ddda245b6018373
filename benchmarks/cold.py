"""Temperature or prior: what a converged belief of a network needs to predict well.

`python -m benchmarks.cold [splits]`. Five sets, 80/20 splits that no setting was chosen on (`benchmarks/README.md`), an
MLP with two layers of 64 for digits and one of 32 for the others. IVON as it ships, run until it has converged: under
T = 1 and a prior of scale one; with the temperature chosen on training rows (`lamu.fit_temperature`); with the prior's
scale chosen on training rows (`lamu.fit_prior_scale`), at T = 1. Beside it a point, `adam(Annealed(1e-2))` for 50
epochs, and the shipped IVON stopped after 50 epochs. Test negative log densities in nats a row; the difference to the
point is paired by rows, then averaged over splits.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np

import lamu
from benchmarks.splits import JUDGED, arrays
from lamu.rate import Annealed

SETS = {
    "digits": ((64, 64), lambda: lamu.likelihoods.Categorical(10)),
    "breast_cancer": ((32,), lamu.likelihoods.Bernoulli),
    "wine": ((32,), lambda: lamu.likelihoods.Categorical(3)),
    "iris": ((32,), lambda: lamu.likelihoods.Categorical(3)),
    "diabetes": ((32,), lamu.likelihoods.Gaussian),
}
IVON = lamu.algorithms.ivon


def runs(name, widths, likelihood, seed):
    """Yields each way to learn with its posterior and what there is to say of it."""
    x, y = arrays(name)
    train, test = lamu.data.split(y, 0.2, seed, stratify=likelihood.task != "regression")
    prior = lambda scale: lamu.priors.LearnedNormal(1.0) if scale is None else lamu.priors.Normal(scale)
    model = lambda scale: lamu.Model(lamu.networks.MLP(widths), likelihood, prior(scale)).standardised(
        x[train], y[train]
    )
    rows = (x[train], y[train])
    yield "adam, 50 epochs", lamu.fit(model(1.0), rows, lamu.algorithms.adam(Annealed(1e-2)), epochs=50), "", test
    yield "ivon, 50 epochs", lamu.fit(model(1.0), rows, IVON(), epochs=50), "", test
    yield "ivon, converged", lamu.fit(model(1.0), rows, IVON()), "", test
    cold = lamu.fit_temperature(model(1.0), rows, IVON())
    yield "ivon, T chosen", cold.fit, f"T {cold.posterior.temperature:g}", test
    scaled = lamu.fit_prior_scale(model(None), rows, IVON())
    yield "ivon, prior scale chosen", scaled.fit, f"scale {scaled.posterior.model.prior.scale:g}", test


def main() -> None:
    """Prints a table for each set."""
    chosen = JUDGED[: int(sys.argv[1])] if len(sys.argv) > 1 else JUDGED
    warnings.simplefilter("ignore", lamu.Unconverged)
    for name, (widths, likelihood) in SETS.items():
        x, y = arrays(name)
        found: dict[str, list] = {}
        for seed in chosen:
            point = None
            for title, fit, words, test in runs(name, widths, likelihood(), seed):
                pred = fit.posterior.predict(x[test], samples=128)
                nll = -np.asarray(pred.log_prob(y[test]))
                point = nll if point is None else point
                less = nll - point
                error = less.std(ddof=1) / np.sqrt(len(less))
                steps = len(fit.history["loss"])
                line = (nll.mean(), less.mean(), error, fit.convergence.converged, steps, words)
                found.setdefault(title, []).append(line)
        print(f"\n{name}: {len(chosen)} splits of {len(y)} rows")
        print(f"{'':26}{'NLL':>8}{'less adam':>20}{'converged':>11}{'steps':>9}")
        for title, lines in found.items():
            values = np.array([line[:3] for line in lines])
            mean, less = values[:, 0].mean(), values[:, 1].mean()
            error = np.sqrt(np.mean(values[:, 2] ** 2) / len(lines))
            difference = "-" if title == "adam, 50 epochs" else f"{less:+.3f} ± {error:.3f}"
            done = f"{sum(line[3] for line in lines)} of {len(lines)}"
            steps = np.mean([line[4] for line in lines])
            words = ", ".join(line[5] for line in lines if line[5])
            print(f"{title:26}{mean:8.3f}{difference:>20}{done:>11}{steps:9.0f}  {words}", flush=True)


if __name__ == "__main__":
    main()
