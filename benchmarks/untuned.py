"""`lamu fit TABLE --target COLUMN`, no other option, beside scikit-learn's defaults: `python -m benchmarks.untuned`.

The ten judged splits a set, stratified 80/20, `python -m benchmarks.untuned 2` for the first two. Ours is the command
itself, run on a file of the rows with `--seed s`, which also splits; the peers see the same training rows,
standardised. Scores are mean test negative log densities, in nats a row. The defaults were chosen on other sets
(`DEVELOPMENT_SETS`), which `python -m benchmarks.untuned development` shows, on their development splits.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import lamu
from benchmarks.splits import DEVELOPMENT, arrays, paired, seeds
from lamu.cli import main as command

JUDGED_SETS = (("australian", "banana", "glass", "iris", "wine"), ("boston", "diabetes", "protein"))
DEVELOPMENT_SETS = (
    ("digits", "breast_cancer", "german_credit", "satellite", "spambase", "vehicle"),
    ("concrete", "energy", "wine_red", "yacht"),
)
MOST = 5000  # rows of a set, the first of a seeded order


def ours(x: np.ndarray, y: np.ndarray, seed: int, place: Path) -> float:
    """Returns the test score of the command, which reads a file and writes a folder."""
    table, out = place / "table.csv", place / f"run{seed}"
    pd.DataFrame(x, columns=[f"x{index}" for index in range(x.shape[1])]).assign(target=y).to_csv(table, index=False)
    code = command(["fit", str(table), "--target", "target", "--seed", str(seed), "--out", str(out), "--json"])
    if code != 0:
        raise SystemExit(f"lamu fit ended with {code}")
    return json.loads((out / "metrics.json").read_text())["scores"]["nll"]


def classifiers() -> dict[str, Any]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    return {"LogisticRegression": LogisticRegression(), "MLPClassifier": MLPClassifier(random_state=0)}


def regressors() -> dict[str, Any]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, WhiteKernel
    from sklearn.linear_model import BayesianRidge

    process = GaussianProcessRegressor(RBF() + WhiteKernel(), normalize_y=True, random_state=0)
    return {"BayesianRidge": BayesianRidge(), "GaussianProcess": process}


def theirs(model: Any, x: np.ndarray, y: np.ndarray, seed: int, regression: bool) -> float:
    """Returns the test score of a scikit-learn model on standardised inputs."""
    from sklearn.metrics import log_loss
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, test = lamu.data.split(y, 0.2, seed, stratify=not regression)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its default did not converge is a part of the default
        fitted = make_pipeline(StandardScaler(), model).fit(x[train], y[train])
    if not regression:
        return float(log_loss(y[test], fitted.predict_proba(x[test]), labels=np.unique(y)))
    mean, std = fitted.predict(x[test], return_std=True)
    return float(np.mean(0.5 * ((y[test] - mean) / std) ** 2 + np.log(std) + 0.5 * np.log(2 * np.pi)))


def main() -> None:
    """Prints a table for each kind of task, and how often ours is the better one."""
    development = sys.argv[1:2] == ["development"]
    words = sys.argv[2:] if development else sys.argv[1:]
    chosen = DEVELOPMENT[: int(words[0]) if words else None] if development else seeds(words)
    classes, regression_sets = DEVELOPMENT_SETS if development else JUDGED_SETS
    for names, peers, regression in ((classes, classifiers(), False), (regression_sets, regressors(), True)):
        wins = dict.fromkeys([*peers, "the better one"], 0)
        for name in names:
            x, y = (part[np.random.default_rng(0).permutation(len(part))[:MOST]] for part in arrays(name))
            start = time.perf_counter()
            with tempfile.TemporaryDirectory() as place, _Quiet():
                mine = np.array([ours(x, y, seed, Path(place)) for seed in chosen])
            seconds = (time.perf_counter() - start) / len(chosen)
            print(f"{name} ({len(x)} rows, {x.shape[1]} columns): lamu fit {mine.mean():.4f}, {seconds:.1f} s a split")
            found = {}
            for peer, model in peers.items():
                found[peer] = np.array([theirs(model, x, y, seed, regression) for seed in chosen])
                print(f"    {peer:20} {found[peer].mean():.4f}   ours less theirs {paired(mine, found[peer])}")
                wins[peer] += bool(mine.mean() < found[peer].mean())
            wins["the better one"] += bool(mine.mean() < min(values.mean() for values in found.values()))
            sys.stdout.flush()
        print("ours is lower than " + ", ".join(f"{peer} on {n} of {len(names)}" for peer, n in wins.items()) + "\n")


class _Quiet:
    """Keeps the commands' own documents off the table."""

    def __enter__(self) -> None:
        import io
        from contextlib import redirect_stdout

        self._to = redirect_stdout(io.StringIO())
        self._to.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._to.__exit__(*error)


if __name__ == "__main__":
    main()
