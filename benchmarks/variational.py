"""Variational deep learning beside its published figures.

    python -m benchmarks.variational --data uci                 five regression sets, ten of the standard splits
    python -m benchmarks.variational --data uci --splits 4      the first four of them
    python -m benchmarks.variational --data uci --only yacht vogn ivon
    python -m benchmarks.variational --data uci --nuts 2        and long chains on the first two (minutes each)
    python -m benchmarks.variational --data fashion             Fashion-MNIST, a ConvNet (benchmarks/images.py)
    python -m benchmarks.variational --data cifar --ablate      CIFAR-10, a ResNet, and VOGN's choices one by one

One hidden layer of 50. Algorithms are made without arguments and fitted without a length; `mc_dropout` alone chooses
its rate of dropout, on a fifth of a split's training rows, as its paper does, and sees every row 40 times, as does
`pbp`. The judged splits are the last ten of the twenty, since earlier settings were chosen with an eye on all. The
anchor is the same network's most probable parameters with the noise that suits a tenth of the training rows which they
have not seen. NUTS samples the same network with the same prior and noise: two chains of 500 draws (`--draws`) after as
many of warm-up. Log likelihoods are means over test rows, in nats and the target's own units; errors are standard
errors over splits. Published rows come from the papers' tables: dropout's and the deep ensemble's were read there,
those of Bayes by backprop and SLANG are quoted from memory of the papers and gate nothing.
"""

from __future__ import annotations

import argparse
import logging
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import lamu
from benchmarks import images
from benchmarks.intervals import tuned_map
from benchmarks.splits import UCI_JUDGED, folder
from lamu.priors import LearnedNormal, Normal
from lamu.rate import Annealed

A = lamu.algorithms
SETS = ("boston", "concrete", "energy", "wine_red", "yacht")
BATCH, DRAWS = 64, 64
PRIOR = Normal(0.5)
RATES = (0.005, 0.01, 0.05, 0.1)

# RMSE, its standard error, log likelihood, its standard error
PUBLISHED: dict[str, dict[str, tuple[float, float, float, float]]] = {
    "mc_dropout": {  # Gal & Ghahramani 2016, table 1
        "boston": (2.97, 0.19, -2.46, 0.06),
        "concrete": (5.23, 0.12, -3.04, 0.02),
        "energy": (1.66, 0.04, -1.99, 0.02),
        "wine_red": (0.62, 0.01, -0.93, 0.01),
        "yacht": (1.11, 0.09, -1.55, 0.03),
    },
    "pbp": {  # Hernández-Lobato & Adams 2015, table 1, as Gal & Ghahramani 2016 quote it
        "boston": (3.01, 0.18, -2.57, 0.09),
        "concrete": (5.67, 0.09, -3.16, 0.02),
        "energy": (1.80, 0.05, -2.04, 0.02),
        "wine_red": (0.64, 0.01, -0.97, 0.01),
        "yacht": (1.02, 0.05, -1.63, 0.02),
    },
    "deep_ensemble": {  # Lakshminarayanan et al. 2017, table 1: standard deviations there, over the root of 20 here
        "boston": (3.28, 0.22, -2.41, 0.06),
        "concrete": (6.03, 0.13, -3.06, 0.04),
        "energy": (2.09, 0.06, -1.38, 0.05),
        "wine_red": (0.64, 0.01, -0.94, 0.03),
        "yacht": (1.58, 0.11, -1.18, 0.05),
    },
    "bayes_by_backprop": {  # Mishkin et al. 2018, table 2, from memory
        "boston": (3.43, 0.20, -2.66, 0.06),
        "concrete": (6.16, 0.13, -3.25, 0.02),
        "energy": (0.97, 0.09, -1.45, 0.10),
        "wine_red": (0.64, 0.01, -0.97, 0.01),
        "yacht": (1.13, 0.06, -1.56, 0.02),
    },
    "slang": {  # the same table, from memory
        "boston": (3.21, 0.19, -2.58, 0.05),
        "concrete": (5.58, 0.19, -3.13, 0.03),
        "energy": (0.64, 0.03, -1.12, 0.01),
        "wine_red": (0.65, 0.01, -0.97, 0.01),
        "yacht": (1.08, 0.06, -1.88, 0.01),
    },
}

Case = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]


@dataclass(frozen=True)
class Contestant:
    """A recipe without arguments, fitted without a length."""

    make: Callable[[], Any]
    prior: Any = PRIOR

    def run(self, x: np.ndarray, y: np.ndarray, to: np.ndarray, at: np.ndarray, seed: int) -> tuple[float, float]:
        """Returns RMSE and mean log density of the test rows."""
        model = lamu.Model(lamu.networks.MLP((50,)), lamu.likelihoods.Gaussian(), self.prior).standardised(x, y)
        fit = lamu.fit(model, (x, y), self.make(), batch_size=BATCH, seed=seed)
        return scores(fit, to, at)


@dataclass(frozen=True)
class Dropped:
    """Monte Carlo dropout, which chooses its rate on unseen rows."""

    epochs: int = 40
    batch: int = 8

    def run(self, x: np.ndarray, y: np.ndarray, to: np.ndarray, at: np.ndarray, seed: int) -> tuple[float, float]:
        """Returns RMSE and mean log density of the test rows."""
        train, held = lamu.data.split(len(x), 0.2, seed)
        found = [scores(self._fit(x[train], y[train], seed, rate), x[held], y[held])[1] for rate in RATES]
        return scores(self._fit(x, y, seed, RATES[int(np.argmax(found))]), to, at)

    def _fit(self, x: np.ndarray, y: np.ndarray, seed: int, rate: float) -> Any:
        network = lamu.networks.MLP((50,), dropout=lamu.networks.Dropout(rate))
        model = lamu.Model(network, lamu.likelihoods.Gaussian(), PRIOR).standardised(x, y)
        algorithm = A.mc_dropout(A.adam(Annealed(1e-2)))
        return lamu.fit(model, (x, y), algorithm, epochs=self.epochs, batch_size=self.batch, seed=seed)


@dataclass(frozen=True)
class Filtered:
    """Probabilistic backpropagation, which finds the precisions of prior and noise itself and has no rate."""

    epochs: int = 40

    def run(self, x: np.ndarray, y: np.ndarray, to: np.ndarray, at: np.ndarray, seed: int) -> tuple[float, float]:
        """Returns RMSE and mean log density of the test rows."""
        model = lamu.Model(lamu.networks.MLP((50,)), lamu.likelihoods.Gaussian(), Normal(1.0)).standardised(x, y)
        return scores(lamu.fit(model, (x, y), A.pbp(), epochs=self.epochs, batch_size=BATCH, seed=seed), to, at)


def scores(fit: Any, to: np.ndarray, at: np.ndarray, draws: int = DRAWS) -> tuple[float, float]:
    """Returns RMSE and mean log density."""
    pred = fit.posterior.predict(to, samples=draws)
    error = np.asarray(pred.mean) - at
    return float(np.sqrt(np.mean(error**2))), float(np.mean(np.asarray(pred.log_prob(at))))


CONTESTANTS: dict[str, Any] = {
    "vogn": Contestant(A.vogn),
    "ivon": Contestant(A.ivon),
    "slang": Contestant(A.slang),
    "noisy_kfac": Contestant(A.noisy_kfac),
    "bayes_by_backprop": Contestant(A.bayes_by_backprop),
    "mc_dropout": Dropped(),
    "pbp": Filtered(),
    "deep_ensemble": Contestant(A.deep_ensemble),
    "laplace": Contestant(A.laplace, prior=LearnedNormal(0.5)),
    "last_layer": Contestant(A.last_layer, prior=LearnedNormal(0.5)),
}


def cases_of(name: str, splits: int) -> list[Case]:
    """Returns the training and test rows of the first judged splits of a set, and the split's number."""
    with np.load(folder() / "uci" / f"{name}.npz") as archive:
        X, Y, trains, tests = (archive[key] for key in ("X", "y", "train_idx", "test_idx"))
    return [
        (*(part.astype(np.float32) for part in (X[train], Y[train], X[test], Y[test])), seed)
        for seed in UCI_JUDGED[:splits]
        for train, test in [(trains[seed], tests[seed])]
    ]


def estimate(values: np.ndarray) -> tuple[float, float]:
    """Returns the mean and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else math.nan


def sampled(case: Case, draws: int) -> tuple[float, float, float, float]:
    """Returns RMSE and mean log density of the test rows under long chains, and R-hat of f there: median, largest."""
    x, y, to, at, seed = case
    model = lamu.Model(lamu.networks.MLP((50,)), lamu.likelihoods.Gaussian(), PRIOR).standardised(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lamu.mcmc.UnreliableChains)  # R-hat is printed
        fit = lamu.fit(model, (x, y), lamu.mcmc.nuts(chains=2, warmup=draws, draws=draws), seed=seed)
    r_hat = lamu.mcmc.diagnose(fit.posterior, to).r_hat["f"]
    return *scores(fit, to, at, draws=1000), float(np.median(r_hat)), float(np.max(r_hat))


def uci(sets: list[str], names: list[str], splits: int, long: int, draws: int) -> None:
    """Prints, for each set and recipe, RMSE and log likelihood beside the anchor's and the published ones."""
    for name in sets:
        cases = cases_of(name, splits)
        anchor = np.array([tuned_map(*case).mean() for case in cases])
        print(f"{name}: MAP with tuned noise, log likelihood {anchor.mean():.3f}, {len(cases)} splits", flush=True)
        chains = np.array([sampled(case, draws) for case in cases[:long]]).reshape(-1, 4)
        if long:
            print(
                f"    {'NUTS':18} RMSE {chains[:, 0].mean():6.3f}, log likelihood {chains[:, 1].mean():7.3f}, "
                f"the first {len(chains)}; R-hat of f at test rows {chains[:, 2].mean():.2f} in the median, at most "
                f"{chains[:, 3].max():.2f}",
                flush=True,
            )
        for recipe in names:
            start = time.perf_counter()
            found = np.array([CONTESTANTS[recipe].run(*case) for case in cases])
            seconds = (time.perf_counter() - start) / len(cases)
            rmse, density = estimate(found[:, 0]), estimate(found[:, 1])
            away = estimate(found[:, 1] - anchor)
            line = (
                f"    {recipe:18} RMSE {rmse[0]:6.3f} ± {rmse[1]:.3f}   log likelihood {density[0]:7.3f} ± "
                f"{density[1]:.3f}, less MAP's {away[0]:+.3f} ± {away[1]:.3f}   {seconds:4.1f} s"
            )
            if long:
                line += f", less NUTS's {np.mean(found[:long, 1] - chains[:, 1]):+.3f} on the first {len(chains)}"
            published = PUBLISHED.get(recipe, {}).get(name)
            if published is not None:
                line += "   published RMSE {:.2f} ± {:.2f}, log likelihood {:.2f} ± {:.2f}".format(*published)
                far = [
                    (ours[0] - theirs) / math.hypot(ours[1], error)
                    for ours, theirs, error in ((rmse, *published[:2]), (density, *published[2:]))
                ]
                line += f" (away by {far[0]:+.1f} and {far[1]:+.1f} standard errors)"
            print(line, flush=True)


def main() -> None:
    """Reads the command line and runs one of the comparisons."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.variational")
    parser.add_argument("--data", choices=["uci", "fashion", "cifar"], default="uci")
    parser.add_argument("--only", nargs="*", default=[], help="sets and recipes; all where none is named")
    parser.add_argument("--splits", type=int, default=10, help="uci: the first few of the judged ones")
    parser.add_argument("--nuts", type=int, default=0, help="uci: splits on which to run long chains")
    parser.add_argument("--draws", type=int, default=500, help="uci: of a long chain, after as many of warm-up")
    parser.add_argument("--epochs", type=int, help="images: passes over the data; 10 for fashion, 60 for cifar")
    parser.add_argument("--seed", type=int, default=0, help="images: of weights, order and noise")
    parser.add_argument("--depth", type=int, default=20, help="cifar: of the ResNet")
    parser.add_argument("--file", type=Path, help="cifar: an .npz of the whole set, as cifar10_small.npz is laid out")
    parser.add_argument("--ablate", action="store_true", help="cifar: VOGN with one choice changed at a time")
    given = parser.parse_args()
    sets_of = {"uci": (*SETS, *CONTESTANTS), **images.CHOICES}
    unknown = [name for name in given.only if name not in sets_of[given.data]]
    if unknown:
        parser.error(f"{given.data} has no {unknown[0]!r}; choose from {', '.join(sets_of[given.data])}")
    logging.getLogger("lamu").setLevel(logging.ERROR)
    if given.data != "uci":
        found = images.fashion() if given.data == "fashion" else images.cifar(given.file, given.depth)
        epochs = given.epochs or {"fashion": 10, "cifar": 60}[given.data]
        images.compare(found, given.only or list(images.CHOICES[given.data]), epochs, given.seed)
        if given.ablate:
            images.ablate(found, epochs, given.seed)
        return
    sets = [name for name in SETS if name in given.only] or list(SETS)
    names = [name for name in CONTESTANTS if name in given.only] or list(CONTESTANTS)
    uci(sets, names, given.splits, given.nuts, given.draws)


if __name__ == "__main__":
    main()
