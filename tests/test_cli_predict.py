"""`lamu predict`: the same rows as the fit, other rows, long tables, and folders that were tampered with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lamu import load
from tests.command_line import QUICK, TASKS, assert_refused, fit_each_task


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    return fit_each_task(tmp_path_factory)


@pytest.mark.parametrize("task", TASKS)
def test_predict_gives_the_test_rows_what_fit_wrote(fitted, task, lamu, tmp_path):
    ran = lamu("predict", fitted / task, fitted / f"{task}.csv", "--out", tmp_path / "all.csv", "--json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["rows"] == len(document["predictions"]) == 120
    written = pd.read_csv(tmp_path / "all.csv")
    pd.testing.assert_frame_equal(written, pd.DataFrame(document["predictions"]), check_dtype=False, rtol=1e-6)
    before = pd.read_csv(fitted / task / "predictions.csv")
    now = written.iloc[before["row"]].reset_index(drop=True)
    pd.testing.assert_frame_equal(now, before, check_dtype=False, rtol=1e-4, atol=1e-4)
    assert [path.name for path in tmp_path.iterdir()] == ["all.csv"]


_PREDICT = """
import json, sys
from jax import monitoring
from lamu.cli import main
compiled = []
monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **about: compiled.append(about.get("fun_name")) if "backend_compile" in event else None
)
code = main(sys.argv[1:])
sys.stderr.write(json.dumps([code, sorted(sys.modules), compiled]))
"""


def test_predict_imports_nothing_of_training_and_compiles_few_programs(fitted, tmp_path):
    pd.read_csv(fitted / "binary.csv").drop(columns="target").head(1).to_csv(tmp_path / "one.csv", index=False)
    words = ["predict", str(fitted / "binary"), str(tmp_path / "one.csv"), "--json"]
    ran = subprocess.run([sys.executable, "-c", _PREDICT, *words], capture_output=True, text=True, check=True)
    code, modules, compiled = json.loads(ran.stderr)
    assert code == 0
    needless = {"optax", "scipy", "sklearn", "matplotlib", "numpyro", "lamu.loop", "lamu.algorithms", "lamu.tabular"}
    assert not needless & set(modules)
    # Of an array that is read none is a program; of the scores, and what is shown, few are.
    assert compiled.count("jit(stage)") <= 1, compiled
    assert len(compiled) <= 12, compiled


def test_predict_prints_a_table_and_the_scores(fitted, lamu, tmp_path):
    shuffled = pd.read_csv(fitted / "binary.csv").iloc[:, ::-1].assign(extra="word")
    shuffled.to_csv(tmp_path / "new.csv", index=False)
    ran = lamu("predict", fitted / "binary", tmp_path / "new.csv")
    assert ran.code == 0, ran.err
    assert "note: ignored the extra column 'extra'\n" in ran.out
    for part in ("first 20 of 120", "p_malignant", "accuracy", "--out FILE.csv writes all"):
        assert part in ran.out
    shuffled.drop(columns="target").head(3).to_csv(tmp_path / "few.csv", index=False)
    ran = lamu("predict", fitted / "binary", tmp_path / "few.csv")
    assert ran.code == 0, ran.err
    assert "3 predictions" in ran.out
    assert "accuracy" not in ran.out
    assert "log_prob" not in ran.out


def test_predict_refuses_in_one_sentence(fitted, lamu, tmp_path):
    table = pd.read_csv(fitted / "regression.csv")
    table.drop(columns=["bmi"]).to_csv(tmp_path / "lacking.csv", index=False)
    assert_refused(lamu("predict", fitted / "regression", tmp_path / "lacking.csv"), "lacks the column 'bmi'")
    assert_refused(lamu("predict", tmp_path / "nowhere", "diabetes"), "there is no folder")
    assert_refused(lamu("predict", tmp_path, "diabetes"), "config.json is missing")
    there = fitted / "regression.csv"
    assert_refused(lamu("predict", fitted / "regression", there, "--out", there), "exists already")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{}")
    assert_refused(lamu("predict", broken, "diabetes"), "was altered")
    (broken / "config.json").write_bytes((fitted / "regression" / "config.json").read_bytes())
    assert_refused(lamu("predict", broken, there), "posterior")


# Long tables, block by block


@pytest.mark.parametrize("task", TASKS)
def test_blocks_of_rows_give_the_same_file_and_scores(fitted, task, lamu, tmp_path, monkeypatch):
    whole = lamu("predict", fitted / task, fitted / f"{task}.csv", "--out", "whole.csv", "--json").document
    monkeypatch.setattr("lamu.cli.predicting.BLOCK", 50)
    parts = lamu("predict", fitted / task, fitted / f"{task}.csv", "--out", "parts.csv", "--json").document
    tables = [pd.read_csv(tmp_path / f"{name}.csv") for name in ("whole", "parts")]
    pd.testing.assert_frame_equal(*tables, rtol=1e-5)
    assert len(parts["predictions"]) == 120
    for kind in ("scores", "standard_errors"):
        # A probability at the edge of a bin may change it with its last bit, hence the room for the ece.
        assert parts[kind] == pytest.approx(whole[kind], rel=0.02)
    printed = lamu("predict", fitted / task, fitted / f"{task}.csv")
    assert "the first 20 of 120" in printed.out


def test_a_prediction_that_fails_halfway_leaves_no_file(fitted, lamu, tmp_path, monkeypatch):
    monkeypatch.setattr("lamu.cli.predicting.BLOCK", 50)
    from lamu.cli import predicting

    append, calls = predicting.append_csv, []

    def full(path, table):
        calls.append(path)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        append(path, table)

    monkeypatch.setattr(predicting, "append_csv", full)
    ran = lamu("predict", fitted / "classes", fitted / "classes.csv", "--out", "all.csv")
    assert_refused(ran, "'all.csv' could not be written (no space left on device; free some space")
    assert list(tmp_path.iterdir()) == []


# Folders that are not what they were


@pytest.fixture
def copy(fitted, tmp_path) -> Path:
    return Path(shutil.copytree(fitted / "classes", tmp_path / "copy"))


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        ("truncated", "truncated or altered"),
        ("altered", "truncated or altered"),
        ("missing", "arrays.npz is missing"),
        ("sums", "truncated or altered"),
        ("foreign", "is not the one that `lamu fit` wrote there"),
        ("kin", "is not the one that `lamu fit` wrote there"),
        ("none", "posterior"),
    ],
)
def test_a_damaged_posterior_is_refused(copy, fitted, lamu, tmp_path, damage, part):
    arrays = copy / "posterior" / "arrays.npz"
    if damage == "truncated":
        arrays.write_bytes(arrays.read_bytes()[:-100])
    elif damage == "altered":
        content = copy / "posterior" / "content.json"
        content.write_text(content.read_text().replace('"', "'", 1))
    elif damage == "missing":
        arrays.unlink()
    elif damage == "sums":
        (copy / "posterior" / "checksums.json").write_text("{")
    else:
        shutil.rmtree(copy / "posterior")
        if damage == "foreign":
            shutil.copytree(fitted / "binary" / "posterior", copy / "posterior")
        elif damage == "kin":  # of the same task and shape
            replace(load(fitted / "classes" / "posterior"), evidence=1.0).save(copy / "posterior")
    assert_refused(lamu("predict", copy, fitted / "classes.csv", "--out", "all.csv"), part)
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_a_damaged_configuration_is_refused(copy, fitted, lamu):
    path = copy / "config.json"
    config = json.loads(path.read_text())
    for text in ("", "[]", json.dumps(config)[:-50], json.dumps({**config, "samples": "many"})):
        path.write_text(text)
        assert_refused(lamu("predict", copy, fitted / "classes.csv"), "config.json' cannot be read: it was altered")
    path.write_text(json.dumps({**config, "format": 99}))
    assert_refused(lamu("predict", copy, fitted / "classes.csv"), "has the format 99 and this version reads 2")


@pytest.mark.stress
def test_predict_notes_what_it_never_saw(lamu, tmp_path):
    rows = np.arange(40)
    table = pd.DataFrame({"size": rows % 7, "colour": np.array(["red", "blue"])[rows % 2], "y": 0.5 * rows})
    table.to_csv(tmp_path / "old.csv", index=False)
    assert lamu("fit", "old.csv", "--target", "y", "--out", "run", *QUICK).code == 0
    table.assign(colour="green", other=1).head(6).to_csv(tmp_path / "new.csv", index=False)
    ran = lamu("predict", "run", "new.csv")
    assert ran.code == 0, ran.err
    notes = [line for line in ran.out.splitlines() if line.startswith("note: ")]
    assert any("'green'" in note for note in notes)
    assert any("'other'" in note for note in notes)
    assert_refused(lamu("predict", "run", "new.csv", "--samples", "0"), "--samples is 0")


def test_predictions_are_csv_and_say_so(lamu, fitted):
    assert_refused(lamu("predict", fitted / "classes", "iris", "--out", "o.parquet"), "'o.parquet'", "FILE.csv")


def test_the_table_that_was_fitted_is_known_again(lamu, fitted, tmp_path):
    run, table = fitted / "regression", fitted / "regression.csv"
    note = "96 of its 120 rows were learned from"
    assert note in lamu("predict", run, table).out
    assert any(note in each for each in lamu("predict", run, table, "--json").document["notes"])
    other = pd.read_csv(table).iloc[:-1]
    other.to_csv(tmp_path / "other.csv", index=False)
    assert "learned from" not in lamu("predict", run, tmp_path / "other.csv").out
    pd.read_csv(table).drop(columns="target").to_csv(tmp_path / "new.csv", index=False)
    assert "learned from" not in lamu("predict", run, tmp_path / "new.csv").out
