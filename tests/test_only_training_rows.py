"""What `lamu fit` and `lamu compare` learn depends on the training rows alone, to the bit.

Targets and features of the test rows are altered beyond recognition: other numbers by many orders of magnitude, words
that no training row has, values missing that were there and there that were missing. Who learns from them, scales by
them, or takes medians, levels or indicators from them, makes another posterior.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lamu.cli import main
from lamu.cli.request import Request, learning_rows
from lamu.cli.worker import fit_and_score
from lamu.data.imputation import _sobol
from lamu.store import fingerprint

rng = np.random.default_rng(4)
ROWS = 60
KINDS = ("missing", "classes")
pytestmark = pytest.mark.filterwarnings("ignore::lamu.data.UnfamiliarRows")  # the altered numbers are
QUICK = ("learning_rate=0.1", "hess_init=1.0", "max_step=1.0")


@pytest.fixture(autouse=True)
def few_completions(monkeypatch: Any) -> Iterator[None]:
    """Four completions of a row that lacks something, in the place of 128: what is learned needs none."""
    for module in ("imputation", "inputs"):
        monkeypatch.setattr(f"lamu.data.{module}.DRAWS", 4)
    _sobol.cache_clear()
    yield
    _sobol.cache_clear()


def table_of(kind: str) -> pd.DataFrame:
    """A small table with a column of words: numbers for a target, and values missing; or classes."""
    table = pd.DataFrame({"a": rng.normal(size=ROWS), "b": 5 + rng.normal(size=ROWS)})
    signal = table["a"] - 0.3 * table["b"] + 0.3 * rng.normal(size=ROWS)
    if kind == "classes":
        table["word"] = rng.choice(["oak", "ash", "elm"], size=ROWS)
    if kind == "missing":
        table.loc[rng.choice(ROWS, 12, replace=False), "a"] = np.nan
        table["word"] = rng.choice(["oak", "ash"], size=ROWS)
        table.loc[rng.choice(ROWS, 9, replace=False), "word"] = None
    table["target"] = np.where(signal > signal.median(), "yes", "no") if kind == "classes" else signal
    return table


def altered(table: pd.DataFrame, rows: Any, kind: str, words: bool) -> pd.DataFrame:
    """The table with other values in some rows; classes stay, since they say how the split is stratified."""
    table, count = table.copy(), len(rows)
    table.loc[rows, "a"] = 1e3 * (1 + np.arange(count))
    table.loc[rows, "b"] = -7e4 + np.arange(count) ** 2
    if kind == "missing":
        table.loc[rows[::3], "a"] = np.nan
        table.loc[rows[1::3], "b"] = np.nan  # a column that no training row lacks
    if words:
        table.loc[rows, "word"] = "baobab"
    if kind != "classes":
        table.loc[rows, "target"] = 1e5 - 3e3 * np.arange(count)
    return table


def request_for(path: Path, kind: str) -> Request:
    return Request(str(path), "target", epochs=2, batch_size=16, impute=kind == "missing", folds=0)


@pytest.fixture(params=KINDS)
def tables(request, tmp_path) -> tuple[str, Path, Path, Path]:
    """A table, the same with other test rows, and the same with other training rows."""
    kind, asked = request.param, tmp_path / "asked.csv"
    table = table_of(kind)
    table.to_csv(asked, index=False)
    _, train, test = learning_rows(request_for(asked, kind).read(), request_for(asked, kind), 0)
    others = []
    for name, rows in (("test", test), ("train", train[:4])):
        others.append(tmp_path / f"{name}.csv")
        altered(table, np.asarray(rows), kind, words=name == "test").to_csv(others[-1], index=False)
        _, again, _ = learning_rows(request_for(others[-1], kind).read(), request_for(others[-1], kind), 0)
        assert again.tolist() == train.tolist()
    return kind, asked, *others


def fitted(path: Path, out: Path, kind: str, folds: int) -> Any:
    words = ["fit", path, "--target", "target", "--out", out, "--algorithm", "ivon", "--epochs", "2"]
    words += ["--no-report"]
    words += ["--batch-size", "16", "--folds", folds, *(word for each in QUICK for word in ("--set", each))]
    assert main([str(word) for word in words] + (["--impute"] if kind == "missing" else [])) == 0
    scores = json.loads((out / "metrics.json").read_text())["scores"]
    assert all(np.isfinite(value) for name, value in scores.items() if name != "ece")  # which few rows do not have
    config = json.loads((out / "config.json").read_text())
    return config["posterior"], {
        name: config[name] for name in config if name in ("levels", "fills", "prior_scales_tried")
    }


@pytest.mark.parametrize("folds", [0, pytest.param(2, marks=pytest.mark.stress)])
def test_fit_learns_from_the_training_rows_alone(tables: Any, folds: int, tmp_path: Path) -> None:
    kind, asked, other_test, other_train = tables
    if folds and kind != "missing":
        pytest.skip("the table with most to learn stands for the others")
    first = fitted(asked, tmp_path / "asked", kind, folds)
    assert fitted(other_test, tmp_path / "test", kind, folds) == first
    if kind == "classes":  # whose altered rows have the same words, hence no other shape
        assert fitted(other_train, tmp_path / "train", kind, folds)[0] != first[0]


def test_compare_learns_from_the_training_rows_alone(tables: Any, tmp_path: Path) -> None:
    """Belief and evidence; the scores are of the test rows, and differ."""
    kind, *paths = tables
    found = []
    for path in paths[: 3 if kind == "classes" else 2]:
        keep = tmp_path / path.stem
        answer = fit_and_score(request_for(path, kind), "ivon", QUICK, 1, str(keep))["splits"][0]
        found.append((fingerprint(keep / "0"), answer["evidence"], np.asarray(answer["nll"]).tolist()))
    first, test, *train = found
    assert test[:2] == first[:2]
    assert test[2] != first[2]
    assert all(each[0] != first[0] for each in train)
