"""How near each method is to the posterior: the lectures' table in small.

One network, one prior, T = 1. The reference is Hamiltonian Monte Carlo on all the data; a second one, from other starts
and other keys, says how near one can come. Every other method is judged by what it predicts for the same test rows: its
accuracy, how often its class is the reference's (agreement), and half the L1 distance of the probabilities (total
variation). Beside them stand the published figures, of a ResNet-20 on CIFAR-10 (Izmailov et al. 2021). The steps of the
published five are those with the best likelihood of left-out training rows, by five folds on the digits and by two of
five on Fashion-MNIST (`--choose` prints all five); other settings are one for each method, and none was chosen by the
reference: `sghmc_10x` has the step of `sghmc`. Every method takes as many gradients of a row as a run of SGD (two
chains, each of its steps, take twice as many), but for the deep ensemble of five, and SGHMC, plain and cyclical, shown
once more at ten times the cost of SGD.

    python -m benchmarks.fidelity --quick          digits, a perceptron of 1,500 weights: minutes
    python -m benchmarks.fidelity --quick --choose the five published methods' steps, by training rows alone
    python -m benchmarks.fidelity                  500 images of Fashion-MNIST (LAMU_DATA), a small ConvNet: an hour
    python -m benchmarks.fidelity --rows 2000      more of them
    python -m benchmarks.fidelity --only sghmc,sgld --seed 1 --effort 0.25
    python -m benchmarks.fidelity --keep FOLDER    write the two references there, or read them if they are
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import optax

import lamu
from benchmarks.splits import folder
from lamu.mcmc import Cyclical, FrozenAfterWarmup, RootMeanSquare
from lamu.priors import Normal
from lamu.scores.fidelities import agreement_of_rows

A, M = lamu.algorithms, lamu.mcmc
PUBLISHED = {
    "hmc": (89.64, 94.01, 0.074),
    "sgld": (89.32, 91.54, 0.110),
    "sghmc": (89.38, 91.98, 0.109),
    "sghmc_clr": (89.63, 92.67, 0.099),
    "sghmc_clr_prec": (87.46, 90.96, 0.111),
    "mfvi": (86.45, 88.75, 0.136),
    "deep_ensemble": (88.5, 91.5, 0.115),
}
DRAWS = 400  # of a prediction
STEPS = {
    "quick": {"mfvi": 0.001, "sgld": 0.8, "sghmc": 0.08, "sghmc_clr": 0.06, "sghmc_clr_prec": 0.00075},
    "fashion": {"mfvi": 0.001, "sgld": 0.05, "sghmc": 0.02, "sghmc_clr": 0.12, "sghmc_clr_prec": 0.00075},
}
TRIED = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)  # times these


@dataclass(frozen=True)
class Problem:
    """Data, a model, the steps of the published methods, and how long its runs are."""

    name: str
    model: Any
    x: np.ndarray
    y: np.ndarray
    to: np.ndarray
    at: np.ndarray
    batch: int
    epochs: int
    warmup: int
    draws: int


def quick(effort: float) -> Problem:
    """Digits of the bundled set, by a perceptron."""
    x, y = lamu.data.load("digits")
    order = np.random.default_rng(0).permutation(len(y))
    x, y = np.asarray(x, np.float32)[order], np.asarray(y)[order]
    model = lamu.Model(lamu.networks.MLP((20,)), lamu.likelihoods.Categorical(10), Normal(0.5))
    rows = (x[:500], y[:500])
    long = lambda n: max(round(n * effort), 8)
    return Problem("quick", model.standardised(*rows), *rows, x[500:], y[500:], 50, long(200), long(300), long(200))


def fashion(effort: float, rows: int = 500) -> Problem:
    """A subset of Fashion-MNIST, by a ConvNet with filter-response normalisation."""
    with np.load(folder() / "images" / "fashion_mnist.npz") as archive:
        parts = [archive[name] for name in ("X_train", "y_train", "X_test", "y_test")]
    x, to = ((part.astype(np.float32) / 255.0 - 0.5) / 0.25 for part in (parts[0][:rows], parts[2][:2000]))
    network = lamu.networks.ConvNet((4, 8), widths=(32,), kernel=3, normalise=lamu.networks.FilterResponse())
    model = lamu.Model(network, lamu.likelihoods.Categorical(10), Normal(0.4))
    y, at = parts[1][:rows].astype(np.int32), parts[3][:2000].astype(np.int32)
    long = lambda n: max(round(n * effort), 8)
    return Problem("fashion", model, x, y, to, at, 100, long(300), long(300), long(200))


def methods(problem: Problem, factor: float = 1.0) -> dict[str, Callable[[], Any]]:
    """Returns each method's fit without its data; samplers take as many gradients of a row as `epochs` passes say.

    Args:
        problem: what says how long the runs are.
        factor: how many times the steps of the published five are longer.
    """
    step = {name: factor * size for name, size in STEPS[problem.name].items()}
    per_epoch = -(-len(problem.y) // problem.batch)
    steps, kept = problem.epochs * per_epoch, 100
    falling = {"chains": 2, "warmup": steps // 2, "draws": kept, "thinning": max(steps // 2 // kept, 1)}
    cycles = {"chains": 2, "warmup": 0, "draws": kept, "thinning": max(steps // 5 // kept, 1)}
    longer = {**cycles, "draws": 4 * kept, "thinning": max(5 * steps // 2 // (4 * kept), 1)}
    patient = {**falling, "warmup": steps, "draws": 4 * kept, "thinning": max(4 * steps // (4 * kept), 1)}
    frozen = FrozenAfterWarmup(RootMeanSquare(damping=1e-2))
    descending = partial(Cyclical, exploration_temperature=0.0)  # as published
    return {
        "mfvi": lambda: A.bayes_by_backprop(optax.adam(step["mfvi"])),
        "sgld": lambda: M.sgld(step["sgld"], **falling),
        "sghmc": lambda: M.sghmc(step["sghmc"], friction=0.1, **falling),
        "sghmc_clr": lambda: M.sghmc(descending(step["sghmc_clr"], cycles=5, exploration=0.8), friction=0.1, **cycles),
        "sghmc_clr_prec": lambda: M.sghmc(
            descending(step["sghmc_clr_prec"], cycles=5, exploration=0.8), friction=0.1, preconditioner=frozen, **cycles
        ),
        "sghmc_10x": lambda: M.sghmc(step["sghmc"], friction=0.1, **patient),
        "sghmc_clr_10x": lambda: M.sghmc(descending(0.03, cycles=10, exploration=0.5), friction=0.1, **longer),
        "deep_ensemble": lambda: A.deep_ensemble(members=5),
        "ivon": A.ivon,
        "vogn": A.vogn,
        "laplace": A.laplace,
    }


def fitted(problem: Problem, algorithm: Any, seed: int, kept: Path | None = None) -> tuple[Any, float]:
    """Returns the predictive of the test rows, and the seconds that it took.

    Args:
        problem: the data and the model.
        algorithm: what fits it.
        seed: of everything random.
        kept: where the posterior is kept, and read from where it is there; None for nowhere.
    """
    begin = time.perf_counter()
    if kept is not None and kept.exists():
        posterior = lamu.load(kept)
    else:
        options = {} if algorithm.traits.length is not None else {"epochs": problem.epochs}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", M.UnreliableChains)  # the table says how far they are off
            posterior = lamu.fit(
                problem.model, (problem.x, problem.y), algorithm, batch_size=problem.batch, seed=seed, **options
            ).posterior
        if kept is not None:
            posterior.save(kept)
    pred = posterior.predict(problem.to, samples=DRAWS)
    np.asarray(pred.mean)
    return pred, time.perf_counter() - begin


def choose(problem: Problem, seed: int) -> None:
    """Prints the likelihood of left-out training rows for some steps of each published method, five folds."""
    for name, size in STEPS[problem.name].items():
        for factor in TRIED:
            found = []
            for fold in np.array_split(np.arange(len(problem.y)), 5):
                kept = np.setdiff1d(np.arange(len(problem.y)), fold)
                part = replace(problem, x=problem.x[kept], y=problem.y[kept], to=problem.x[fold], at=problem.y[fold])
                try:
                    found.append(float(lamu.scores.nll(fitted(part, methods(part, factor)[name](), seed)[0], part.at)))
                except lamu.Diverged:
                    found.append(np.inf)
            error = np.std(found, ddof=1) / np.sqrt(5) if np.isfinite(found).all() else np.nan
            print(f"{name:20} {factor * size:9.5f}   NLL {np.mean(found):.4f} ± {error:.4f}", flush=True)


def order(agreements: dict[str, np.ndarray]) -> None:
    """Prints every pair of published methods, the one whose agreement was published as higher first."""
    known = sorted((name for name in agreements if name in STEPS["quick"]), key=lambda name: -PUBLISHED[name][1])
    for better, worse in combinations(known, 2):
        away = 100 * (agreements[better] - agreements[worse])
        error = away.std(ddof=1) / np.sqrt(len(away))
        told = "as published" if away.mean() >= 0 else "within error" if away.mean() > -2 * error else "OTHERWISE"
        print(f"{better:15} less {worse:15} {away.mean():+6.2f} ± {error:.2f}   {told}")


def line(name: str, pred: Any, reference: Any, at: np.ndarray, seconds: float) -> str:
    """Returns a line of the table."""
    accuracy = 100 * float(lamu.scores.accuracy(pred, at))
    agreement, distance = 100 * lamu.scores.agreement(pred, reference), lamu.scores.total_variation(pred, reference)
    known = PUBLISHED.get(name)
    words = "" if known is None else f"{known[0]:9.2f} {known[1]:9.2f} {known[2]:7.3f}"
    return f"{name:20} {accuracy:9.2f} {agreement:9.2f} {distance:7.3f}   {words:27}   {seconds:6.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="digits and a perceptron")
    parser.add_argument("--choose", action="store_true", help="print what the steps were chosen by")
    parser.add_argument("--only", default="", help="methods, separated by commas; the references are always run")
    parser.add_argument("--effort", type=float, default=1.0, help="the share of all lengths")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=500, help="of Fashion-MNIST, to train on")
    parser.add_argument("--keep", type=Path, help="a folder for the two references")
    given = parser.parse_args()
    problem = quick(given.effort) if given.quick else fashion(given.effort, given.rows)
    if given.choose:
        choose(problem, given.seed)
        return
    chains = {"chains": 2, "warmup": problem.warmup, "draws": problem.draws, "most": 64}
    print(f"{len(problem.y)} rows, {len(problem.at)} test rows, {problem.epochs} epochs of batches of {problem.batch}")
    print(f"{'':20} {'accuracy':>9} {'agreement':>9} {'TV':>7}   {'published: the same three':27}", flush=True)
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    # Of other rows, lengths or seeds they would be other references.
    which = f"{problem.name}-{len(problem.y)}-{problem.draws}-{given.seed}"
    kept = [None, None] if given.keep is None else [given.keep / f"{name}-{which}" for name in ("reference", "hmc")]
    reference, seconds = fitted(problem, M.hmc(**chains), given.seed, kept[0])
    print(line("the reference", reference, reference, problem.at, seconds), flush=True)
    pred, seconds = fitted(problem, M.hmc(**chains), given.seed + 1000, kept[1])
    floor = lamu.scores.total_variation(pred, reference)
    print(line("hmc", pred, reference, problem.at, seconds), flush=True)
    found, agreements = {}, {}
    for name, make in methods(problem).items():
        if given.only and name not in given.only.split(","):
            continue
        pred, seconds = fitted(problem, make(), given.seed)
        found[name] = lamu.scores.total_variation(pred, reference)
        agreements[name] = agreement_of_rows(pred, reference)
        print(line(name, pred, reference, problem.at, seconds), flush=True)
    order(agreements)
    if found:
        best = min(found, key=lambda name: found[name])
        print(f"nearest: {best}, {found[best] / floor:.2f} times the distance of two references (goal 1.25)")


if __name__ == "__main__":
    main()
