"""Do 90 % intervals hold 90 %? Regression on the standard splits: `python -m benchmarks.intervals`.

One hidden layer of 50, the ten judged splits pooled (`python -m benchmarks.intervals 4` takes the first four of them),
the noise learned from training rows alone. Beside the algorithms stands the same network's most probable parameters
after 3000 steps, with the noise that suits a tenth of the training rows which they have not seen.

Algorithms are made without arguments and fitted without a length: nothing is chosen here. (Three members, a start of
the curvature and a temperature of 0.6 were, until all twenty splits had been looked at.)
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

import lamu
from benchmarks.splits import UCI_JUDGED, folder
from lamu.priors import LearnedNormal, Normal
from lamu.rate import Annealed

A = lamu.algorithms
SETS = ("concrete", "energy", "wine_red", "yacht")
STEPS, BATCH, LEVEL = 3000, 64, 0.9
CONTESTANTS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "deep_ensemble": (A.deep_ensemble(), Normal(0.5), {}),
    "laplace": (A.laplace(), LearnedNormal(0.5), {}),
    "ivon": (A.ivon(), Normal(0.5), {}),
}


def model_of(x: np.ndarray, y: np.ndarray, prior: Any) -> lamu.Model:
    return lamu.Model(lamu.networks.MLP((50,)), lamu.likelihoods.Gaussian(), prior).standardised(x, y)


def epochs(rows: int) -> int:
    return math.ceil(STEPS / math.ceil(rows / BATCH))


def contestant(name: str, x: np.ndarray, y: np.ndarray, to: np.ndarray, at: np.ndarray, seed: int) -> list[np.ndarray]:
    """Returns each test row's log density, whether its interval holds it, and the interval's width."""
    algorithm, prior, options = CONTESTANTS[name]
    fit = lamu.fit(model_of(x, y, prior), (x, y), algorithm, seed=seed, **options)
    pred = fit.posterior.predict(to, samples=64)
    lower, upper = (np.asarray(end) for end in pred.interval(LEVEL))
    return [np.asarray(pred.log_prob(at)), (lower <= at) & (at <= upper), upper - lower]


def tuned_map(x: np.ndarray, y: np.ndarray, to: np.ndarray, at: np.ndarray, seed: int) -> np.ndarray:
    """Returns each test row's log density under the most probable parameters and the noise of unseen rows."""
    train, held = lamu.data.split(len(x), 0.1, seed)
    model = model_of(x, y, Normal(0.5))
    fit = lamu.fit(
        model,
        (x[train], y[train]),
        A.adam(Annealed(1e-2)),
        epochs=epochs(len(train)),
        seed=seed,
        validation=(x[held], y[held]),
    )
    sigma = np.sqrt(np.mean((np.asarray(fit.posterior.predict(x[held]).mean) - y[held]) ** 2))
    z = (at - np.asarray(fit.posterior.predict(to).mean)) / sigma
    return -0.5 * z**2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)


def main() -> None:
    """Prints coverage, width and log likelihood for each set and algorithm, beside the tuned point's."""
    splits = UCI_JUDGED[: int(sys.argv[1])] if len(sys.argv) > 1 else UCI_JUDGED
    for name in SETS:
        with np.load(folder() / "uci" / f"{name}.npz") as archive:
            X, Y, trains, tests = (archive[key] for key in ("X", "y", "train_idx", "test_idx"))
        cases = [
            (*(part.astype(np.float32) for part in (X[train], Y[train], X[test], Y[test])), seed)
            for seed in splits
            for train, test in [(trains[seed], tests[seed])]
        ]
        point = np.array([tuned_map(*case).mean() for case in cases])
        print(f"{name}: MAP with tuned noise, log likelihood {point.mean():.3f} over {len(cases)} splits")
        for algorithm in CONTESTANTS:
            found = [contestant(algorithm, *case) for case in cases]
            density, held, width = (np.concatenate(part) for part in zip(*found, strict=True))
            own = np.array([each[0].mean() for each in found])
            away = own - point
            error = away.std(ddof=1) / np.sqrt(len(away)) if len(away) > 1 else math.nan
            print(
                f"    {algorithm:14} coverage {held.mean():.3f}   mean width {width.mean():7.3f}   log likelihood "
                f"{own.mean():.3f} (rows pooled {density.mean():.3f}), less MAP's {away.mean():+.3f} ± {error:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
