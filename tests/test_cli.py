"""The command line: what it writes and prints, and the one sentence for each mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lamu.cli import main
from lamu.cli.folder import draft
from lamu.cli.printing import dump
from lamu.cli.recipes import find, parse, recipes
from lamu.data import bundled, load
from lamu.protocol import Recipe

QUICK = ("--epochs", "4", "--set", "learning_rate=0.1", "--set", "initial=1")


@dataclass
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def lamu(capsys, tmp_path, monkeypatch):
    """Runs a command in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str | Path) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return run


def csv_of(name: str, rows: int = 120) -> pd.DataFrame:
    x, y = load(name)
    chosen = np.random.default_rng(0).permutation(len(x))[:rows]
    return pd.DataFrame(x[chosen], columns=list(bundled.columns(name))).assign(target=y[chosen])


def assert_refused(ran: Ran, *parts: str) -> None:
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("lamu: ")
    assert "Traceback" not in ran.err
    for part in parts:
        assert part in ran.err


# From a table to a folder, and back


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    """One fitted folder for each task."""
    folder = tmp_path_factory.mktemp("fitted")
    cancer = csv_of("breast_cancer").iloc[:, [0, 1, 2, 3, -1]]
    cancer.assign(target=cancer["target"].map({0: "malignant", 1: "benign"})).to_csv(folder / "binary.csv", index=False)
    csv_of("diabetes").to_csv(folder / "regression.csv", index=False)
    csv_of("iris").to_csv(folder / "classes.csv", index=False)
    for task in ("binary", "regression", "classes"):
        words = ["fit", folder / f"{task}.csv", "--target", "target", "--out", folder / task, *QUICK]
        assert main([str(word) for word in words]) == 0
    return folder


@pytest.mark.parametrize(
    ("task", "labels", "scores"),
    [
        ("regression", [], ["rmse", "nll", "coverage"]),
        ("binary", ["benign", "malignant"], ["accuracy", "nll", "ece"]),
        ("classes", [0, 1, 2], ["accuracy", "nll", "ece"]),
    ],
)
def test_fit_writes_the_folder(fitted, task, labels, scores):
    out = fitted / task
    assert sorted(path.name for path in out.iterdir()) == [
        "config.json",
        "metrics.json",
        "posterior",
        "predictions.csv",
    ]
    config = json.loads((out / "config.json").read_text())
    metrics = json.loads((out / "metrics.json").read_text())
    predictions = pd.read_csv(out / "predictions.csv")
    table = pd.read_csv(fitted / f"{task}.csv")
    assert (config["task"], config["target"], config["labels"]) == (task, "target", labels)
    assert config["columns"] == list(table.columns[:-1])
    assert config["settings"]["learning_rate"] == 0.1
    assert (config["algorithm"], config["epochs"], config["seed"], config["test_size"]) == ("ivon", 4, 0, 0.2)
    assert config["steps"] == 4 * 2
    assert {"lamu", "jax", "numpy", "python"} <= set(config["versions"])
    assert metrics["rows"] == {"train": 96, "test": 24}
    assert list(metrics["scores"]) == scores
    assert all(np.isfinite(value) for value in metrics["scores"].values())
    assert len(predictions) == 24
    assert predictions["target"].tolist() == table["target"].iloc[predictions["row"]].tolist()
    np.testing.assert_allclose(-predictions["log_prob"].mean(), metrics["scores"]["nll"], rtol=1e-4)
    if task == "regression":
        assert (predictions["lower"] < predictions["mean"]).all()
        assert (predictions["mean"] < predictions["upper"]).all()
        inside = predictions["target"].between(predictions["lower"], predictions["upper"]).mean()
        np.testing.assert_allclose(inside, metrics["scores"]["coverage"], atol=1e-6)
    else:
        probabilities = predictions[[f"p_{label}" for label in labels]]
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-5)
        assert predictions["prediction"].tolist() == [labels[best] for best in probabilities.to_numpy().argmax(axis=1)]
        accuracy = (predictions["prediction"] == predictions["target"]).mean()
        np.testing.assert_allclose(accuracy, metrics["scores"]["accuracy"], atol=1e-6)
        chosen = [predictions[f"p_{label}"][row] for row, label in enumerate(predictions["target"])]
        np.testing.assert_allclose(np.exp(predictions["log_prob"]), chosen, rtol=1e-3)


def test_fit_leaves_nothing_else_behind(fitted):
    expected = {f"{task}{end}" for task in ("binary", "regression", "classes") for end in ("", ".csv")}
    assert {path.name for path in fitted.iterdir()} == expected


@pytest.mark.parametrize("task", ["regression", "binary", "classes"])
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


def test_fit_prints_a_document_and_nothing_else(lamu, tmp_path):
    ran = lamu("fit", "iris", "--out", "run", "--json", "--test-size", "0.3", "--seed", "7", *QUICK)
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["metrics"] == json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert document["config"] == json.loads((tmp_path / "run" / "config.json").read_text())
    assert document["metrics"]["rows"] == {"train": 105, "test": 45}
    assert "--task regression overrides" in document["config"]["notes"][0]
    ran = lamu("predict", "run", "iris")
    assert ran.code == 0, ran.err


def test_fit_prints_what_it_decided(lamu):
    ran = lamu("fit", "iris", "--out", "run", "--task", "regression", *QUICK)
    assert ran.code == 0, ran.err
    for part in ("regression of 'target'", "rmse", "30 test rows", "written to run"):
        assert part in ran.out
    ran = lamu("fit", "iris", "--out", "again", "--batch-size", "500", *QUICK)
    assert ran.code == 0, ran.err
    assert "note: the target 'target' has 3 whole values, taken as classes; --task regression overrides" in ran.out


def test_the_defaults_learn_a_regression(lamu):
    ran = lamu("fit", "diabetes", "--out", "run", "--epochs", "20", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["metrics"]["scores"]["rmse"] < np.std(load("diabetes")[1])


def test_the_same_seed_gives_the_same_predictions(lamu, tmp_path):
    for name in ("one", "two"):
        assert lamu("fit", "iris", "--out", name, "--seed", "3", *QUICK).code == 0
    written = [(tmp_path / name / "predictions.csv").read_bytes() for name in ("one", "two")]
    assert written[0] == written[1]


# Mistakes


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["fit", "none.csv", "--target", "y"], ["there is no file 'none.csv'"]),
        (["fit", "irs"], ["no bundled set 'irs'", "did you mean 'iris'?"]),
        (["fit", "iris", "--target", "targt"], ["no column 'targt'", "did you mean 'target'?"]),
        (["fit", "iris", "--algorithm", "ivonn"], ["no algorithm 'ivonn'", "did you mean 'ivon'?"]),
        (["fit", "iris", "--set", "learning_rat=0.1"], ["no setting 'learning_rat'", "did you mean 'learning_rate'?"]),
        (["fit", "iris", "--set", "learning_rate"], ["'learning_rate' has no value"]),
        (["fit", "iris", "--set", "learning_rate=fast"], ["is a number, not 'fast'"]),
        (["fit", "iris", "--set", "learning_rate=-1"], ["-1"]),
        (["fit", "iris", "--task", "class"], ["no task 'class'", "did you mean 'classes'?"]),
        (["fit", "iris", "--task", "binary"], ["3 distinct values"]),
        (["fit", "iris", "--test-size", "1.5"], ["test_size is 1.5"]),
        (["fit", "iris", "--epochs", "-1"], ["--epochs is -1"]),
        (["fit", "iris", "--epochs", "many"], ["--epochs"]),
        (["fit", "iris", "--batch-size", "0"], ["--batch-size is 0"]),
        (["fit", "iris", "--seed", "-1"], ["--seed is -1"]),
        (["fit", "iris", "--out", "no/such/run"], ["there is no folder 'no/such'"]),
        (["fit", "words.csv", "--target", "y"], ["non-numeric column 'b'", "'six'"]),
        (["fit", "gaps.csv", "--target", "y"], ["missing values in the column 'b' (1)"]),
        (["fit", "words.csv"], ["name one of 'a', 'b', 'y'"]),
        (["fit"], ["Missing argument"]),
        (["fitt"], ["fitt"]),
        (["--nonsense"], ["--nonsense"]),
        (["verify", "no such check"], ["there is no check"]),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(lamu, tmp_path, words, parts):
    rows = "".join(f"{index},{{}},{index % 2}\n" for index in range(8))
    (tmp_path / "words.csv").write_text("a,b,y\n" + rows.format(*range(7), "six"))
    (tmp_path / "gaps.csv").write_text("a,b,y\n" + rows.format(*range(7), ""))
    out = [] if words[0] != "fit" or "--out" in words else ["--out", "run"]
    assert_refused(lamu(*words, *out), *parts)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gaps.csv", "words.csv"]


def test_an_existing_folder_is_refused_before_any_work(lamu, tmp_path):
    (tmp_path / "run").mkdir()
    assert_refused(lamu("fit", "no file at all", "--out", "run"), "'run' exists already")
    assert list((tmp_path / "run").iterdir()) == []


def test_an_interruption_exits_with_130_and_leaves_nothing(lamu, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("lamu.cli.training.fit", interrupted)
    ran = lamu("fit", "iris", "--out", "run", *QUICK)
    assert (ran.code, ran.out) == (130, "")
    assert ran.err == "lamu: interrupted, and nothing was written\n"
    assert list(tmp_path.iterdir()) == []


def test_a_fit_that_the_loop_broke_off_is_not_written(lamu, tmp_path, monkeypatch):
    monkeypatch.setattr("lamu.cli.training.fit", lambda *arguments, **options: SimpleNamespace(interrupted=True))
    assert lamu("fit", "iris", "--out", "run", *QUICK).code == 130
    assert list(tmp_path.iterdir()) == []


def test_our_own_faults_keep_their_traceback(lamu, tmp_path, monkeypatch):
    def broken(*arguments, **options):
        return np.ones(2) + np.ones(3)

    monkeypatch.setattr("lamu.cli.training.score", broken)
    with pytest.raises(ValueError, match="broadcast"):
        lamu("fit", "iris", "--out", "run", *QUICK)
    assert list(tmp_path.iterdir()) == []


def test_a_draft_does_not_replace_what_came_in_the_meantime(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(FileExistsError, match="exists already"), draft(out) as folder:  # noqa: PT012
        folder.mkdir()
        out.write_text("mine")
    assert out.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_one_sentence(lamu, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o555)
    assert_refused(lamu("fit", "iris", "--out", "closed/run", *QUICK), "cannot be written to")


# Lists and checks


def test_algorithms_are_listed_from_the_code(lamu):
    ran = lamu("algorithms")
    assert ran.code == 0
    assert all(name in ran.out for name in recipes())
    rows = json.loads(lamu("algorithms", "--json").out)
    assert [row["algorithm"] for row in rows] == list(recipes())
    for row in rows:
        assert list(row) == ["algorithm", "family", "expectation", "curvature", "departures", "source"]
        assert isinstance(row["departures"], list)


def checks_of(monkeypatch, deviations: Sequence[float]) -> None:
    def check(name: str, deviation: float):
        return lambda: SimpleNamespace(algorithm=name, reference="two", deviation=deviation, tolerance=1e-3)

    table = {f"check{index}": check(f"check{index}", deviation) for index, deviation in enumerate(deviations)}
    monkeypatch.setattr("lamu.verification.checks", lambda: table)


def test_verify_exits_with_one_if_any_check_fails(lamu, monkeypatch):
    checks_of(monkeypatch, [1e-4, 1e-3])
    assert lamu("verify").code == 0
    checks_of(monkeypatch, [1e-4, 1e-2, float("nan")])
    ran = lamu("verify")
    assert ran.code == 1
    assert "failed: check1, check2" in ran.out
    ran = lamu("verify", "check0", "--json")
    assert ran.code == 0
    document = json.loads(ran.out)
    assert document["passed"] is True
    assert [row["deviation"] for row in document["checks"]] == [1e-4]
    assert_refused(lamu("verify", "chek0"), "did you mean 'check0'?")


def test_a_check_that_breaks_has_failed(lamu, monkeypatch):
    def broken():
        raise RuntimeError("no reference here")

    monkeypatch.setattr("lamu.verification.checks", lambda: {"broken": broken})
    ran = lamu("verify", "--json")
    assert ran.code == 1
    assert "no reference here" in json.loads(ran.out)["checks"][0]["reference"]


def test_the_real_checks_are_known_by_name():
    from lamu import verification

    assert verification.checks()


# Small parts


def test_settings_are_parsed_by_kind():
    def factory(rate=0.1, steps: int = 3, nesterov: bool = False, decay=None, mode: str = "a", part: object = object()):
        return None

    recipe = Recipe("made_up", factory, "nowhere")
    read = lambda *words: parse(words, recipe)
    words = ("rate=1e-3", "steps=5", "nesterov=True", "decay=none", "mode=b")
    assert read(*words) == {"rate": 1e-3, "steps": 5, "nesterov": True, "decay": None, "mode": "b"}
    assert read("rate=1", "decay=0.5") == {"rate": 1, "decay": 0.5}
    for word, sentence in [
        ("rate=true", "is a number, not 'true'"),
        ("steps=1.5", "is a whole number, not '1.5'"),
        ("nesterov=1", "is true or false, not '1'"),
        ("mode=1", "is a word, not '1'"),
        ("part=1", "is an object, which only Python can set"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            read(word)
    with pytest.raises(ValueError, match="given twice"):
        read("rate=1", "rate=2")


def test_every_algorithm_is_found_by_its_name():
    assert all(find(name).name == name for name in recipes())


def test_json_has_no_number_that_is_not_finite():
    assert json.loads(dump({"a": np.float32("inf"), "b": [np.int64(3), float("nan")]})) == {"a": None, "b": [3, None]}


# A process of its own


def shell(*words: str, code: str | None = None) -> subprocess.CompletedProcess:
    source = str(Path(__file__).resolve().parents[1] / "src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    program = code or "import sys; from lamu.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("words", [["--help"], ["fit", "--help"], ["--version"], ["fit", "iris", "--out", "."]])
def test_no_heavy_import_before_it_is_needed(words):
    code = (
        "import sys; from lamu.cli import main; exit_code = main()\n"
        "heavy = [name for name in ('jax', 'numpy', 'pandas', 'sklearn', 'scipy') if name in sys.modules]\n"
        "sys.exit(f'imported {heavy}' if heavy else exit_code)"
    )
    ran = shell(*words, code=code)
    assert ran.returncode == (2 if "iris" in words else 0), ran.stderr
    assert "Traceback" not in ran.stderr


def test_exit_codes_reach_the_shell():
    ran = shell("fit", "none.csv", "--out", "run that is never made")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "lamu: there is no file 'none.csv'; check the path\n"
