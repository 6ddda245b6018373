"""`lamu fit` and `lamu predict` as commands, beside scikit-learn's forest and boosting and the import of JAX.

Processor seconds are the figure: all sides are commands that read a CSV, hold out a fifth, fit, and score. First, no
program has been compiled; again, the cache is filled.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.speed.environments import Missing, peers
from benchmarks.speed.race import Race, row
from benchmarks.speed.timing import Side, command

LAMU = [sys.executable, "-c", "from lamu.cli import main; main()"]


@cache
def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="lamu-bench-"))


def table(rows: int, columns: int) -> Path:
    """A table of digits (1,797 × 64), or two classes of so many rows and columns."""
    from sklearn.datasets import load_digits, make_classification

    path = folder() / f"{rows}x{columns}.csv"
    if not path.exists():
        if rows < 2_000:
            x, y = load_digits(return_X_y=True)
        else:
            x, y = make_classification(rows, columns, n_informative=columns // 2, random_state=0)
        names = ",".join([f"x{index}" for index in range(columns)] + ["target"])
        lines = [",".join([*(f"{value:.6g}" for value in line), f"c{label}"]) for line, label in zip(x, y, strict=True)]
        path.write_text("\n".join([names, *lines]) + "\n", encoding="utf-8")
    return path


def fit(data: Path, out: Path, cache_folder: Path, empty: bool) -> Side:
    def line() -> list[str]:
        if empty:
            shutil.rmtree(cache_folder, ignore_errors=True)
        return [*LAMU, "fit", str(data), "--target", "target", "--out", str(out), "--force"]

    name = "lamu fit, first" if empty else "lamu fit, again"
    return command(name, line, {"LAMU_CACHE": str(cache_folder)})  # as of a user: it keeps programs of any length


def peer(name: str, data: Path, python: Path | None = None) -> Side:
    line = [str(python or sys.executable), "-m", "benchmarks.speed.peers.tables", name, str(data), str(scores(name))]
    return command(name, line)


def scores(name: str) -> Path:
    return folder() / f"{name.replace(' ', '_')}.json"


def race(rows: int, columns: int, rounds: int) -> Race:
    data, out = table(rows, columns), folder() / f"fit-{rows}"
    ours = tuple(fit(data, out, folder() / f"cache-{empty}", empty) for empty in (True, False))
    theirs, notes = [peer("forest", data), peer("boosting", data)], []
    try:
        theirs.append(peer("LightGBM", data, peers("lightgbm")))
    except Missing as reason:
        notes.append(str(reason))

    def figures() -> dict[str, float]:
        told = json.loads((out / "metrics.json").read_text())
        found = {"lamu's held-out NLL": float(told["scores"]["nll"])}
        return found | {f"{side.name}'s": json.loads(scores(side.name).read_text())["nll"] for side in theirs}

    same = "the same rows and target, a fifth held out; splits are each side's own"
    return Race(ours, theirs, "run", same, rounds, notes=notes, figures=figures, first="fills the cache", spins=True)


CANDIDATES = (
    "Without options `lamu fit` trains networks and kernels over five folds and mixes them; a forest is one model."
)


@row("fit_small", "`lamu fit` without options, 1,797 × 64, ten classes", why=CANDIDATES)
def fit_small(quick: bool) -> Race:
    return race(1_797, 64, 1 if quick else 5)


@row("fit_large", "`lamu fit` without options, 50,000 × 20, two classes", quick=False, why=CANDIDATES)
def fit_large(quick: bool) -> Race:
    return race(50_000, 20, 3)


@row(
    "predict_command",
    "`lamu predict`, one row",
    why="It imports JAX and the library, reads the table and every member of the mixture, and traces their programs.",
)
def predict_command(quick: bool) -> Race:
    data, out = table(1_797, 64), folder() / "fit-1797"
    if not out.exists():
        fit(data, out, folder() / "cache-False", empty=False).turn()
    one, made = folder() / "one.csv", folder() / "predictions.csv"
    one.write_text("\n".join(data.read_text(encoding="utf-8").splitlines()[:2]) + "\n", encoding="utf-8")

    def line() -> list[str]:
        made.unlink(missing_ok=True)
        return [*LAMU, "predict", str(out), str(one), "--out", str(made)]

    environment: dict[str, Any] = {"LAMU_CACHE": str(folder() / "cache-False")}
    sides = (
        command("lamu predict", line, environment),
        command("import jax", [sys.executable, "-c", "import jax"]),
        command(
            "forest, loaded", [sys.executable, "-m", "benchmarks.speed.peers.tables", "loaded", str(one), str(data)]
        ),
    )
    return Race(sides[:1], sides[1:], "run", "nothing: an import computes nothing", 4 if quick else 15)
