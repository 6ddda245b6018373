"""What the tests of the command line share: a command run in this process, small tables, and what a refusal is."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lamu.cli import main
from lamu.data import load, sources

# A report takes a second; that of each task is made once, by `fit_each_task`.
IVON = ("--algorithm", "ivon", "--set", "learning_rate=0.1", "--set", "hess_init=1", "--set", "max_step=1")
CHOOSING = ("--epochs", "4", *IVON, "--no-report")  # fits at several temperatures first, to choose one
QUICK = (*CHOOSING, "--temperature", "1", "--prior-scale", "1")  # one fit
TASKS = ("regression", "binary", "classes")


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def runner(capsys, tmp_path, monkeypatch):
    """Returns a function that runs a command in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)
    from matplotlib.figure import Figure

    save = Figure.savefig

    def savefig(figure: Figure, path: Any, **options: Any) -> None:
        """Draws no `calibration.png`, a third of a short fit; those of `fit_each_task` are drawn, and looked at."""
        named = isinstance(path, Path) and path.name == "calibration.png"
        path.write_bytes(b"a picture") if named else save(figure, path, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)

    def run(*words: str | Path) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return run


def csv_of(name: str, rows: int = 120) -> pd.DataFrame:
    x, y = load(name)
    chosen = np.random.default_rng(0).permutation(len(x))[:rows]
    return pd.DataFrame(x[chosen], columns=list(sources.columns(name))).assign(target=y[chosen])


def fit_each_task(tmp_path_factory) -> Path:
    """Returns a folder with a table and a fitted run for each task, named after it; made once for all processes."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # a process of several has a folder in there
    folder, done = base / "fitted", base / "fitted.done"
    try:
        folder.mkdir()
    except FileExistsError:
        while not done.exists():
            time.sleep(0.1)
        return folder
    try:
        cancer = csv_of("breast_cancer").iloc[:, [0, 1, 2, 3, -1]]
        cancer.assign(target=cancer["target"].map({0: "malignant", 1: "benign"})).to_csv(
            folder / "binary.csv", index=False
        )
        csv_of("diabetes").to_csv(folder / "regression.csv", index=False)
        csv_of("iris").to_csv(folder / "classes.csv", index=False)
        for task in TASKS:
            words = ["fit", folder / f"{task}.csv", "--target", "target", "--out", folder / task, *QUICK, "--report"]
            assert main([str(word) for word in words]) == 0
    finally:
        done.touch()  # what is not there others miss, and do not wait for
    return folder


def assert_refused(ran: Ran, *parts: str) -> None:
    assert ran.code == 2, ran.out
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("lamu: ")
    assert "Traceback" not in ran.err
    for part in parts:
        assert part in ran.err
