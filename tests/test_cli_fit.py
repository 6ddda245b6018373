"""`lamu fit`: the folder that it writes, what it prints, and what becomes of a folder that is there."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import lamu as library
from lamu import validation_choice
from lamu.base import drafts as exchanging
from lamu.base.drafts import exchange
from lamu.cli.learning import likelihood_for
from lamu.cli.output_dir import CONTENT, draft
from lamu.data import Encoding, load
from lamu.posterior import load as posterior_of
from tests.command_line import CHOOSING, QUICK, TASKS, assert_refused, csv_of, fit_each_task


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    return fit_each_task(tmp_path_factory)


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
    assert sorted(path.name for path in out.iterdir()) == sorted(CONTENT)
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
    assert list(metrics["standard_errors"]) == scores
    errors = metrics["standard_errors"]
    assert all(0 < errors[name] < np.inf for name in scores[:2])
    assert 0 <= errors[scores[2]] < np.inf  # of a coverage, zero where every interval holds its target
    error = predictions["log_prob"].std(ddof=1) / np.sqrt(24)
    np.testing.assert_allclose(metrics["standard_errors"]["nll"], error, rtol=1e-4)
    assert set(metrics["monte_carlo_errors"]) <= {"nll", "elbo"}
    assert np.isfinite(metrics["elbo"])
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
    expected = {f"{task}{end}" for task in TASKS for end in ("", ".csv")}
    assert {path.name for path in fitted.iterdir()} == expected


@pytest.mark.stress
def test_fit_prints_a_document_and_nothing_else(lamu, tmp_path):
    ran = lamu("fit", "iris", "--out", "run", "--json", "--test-size", "0.3", "--seed", "7", "--samples", "5", *QUICK)
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["metrics"] == json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert document["config"] == json.loads((tmp_path / "run" / "config.json").read_text())
    assert document["metrics"]["rows"] == {"train": 105, "test": 45}
    assert "--task regression overrides" in document["config"]["notes"][0]
    assert document["config"]["samples"] == 5
    assert (document["config"]["impute"], document["config"]["data"]) == (False, "iris")
    ran = lamu("predict", "run", "iris")
    assert ran.code == 0, ran.err


@pytest.mark.stress
def test_fit_prints_what_it_decided(lamu):
    ran = lamu("fit", "iris", "--out", "run", "--task", "regression", "--batch-size", "500", *QUICK)
    assert ran.code == 0, ran.err
    for part in ("regression of 'target'", "rmse", "lower is better", "30 test rows", "± stand", "written to run"):
        assert part in ran.out
    ran = lamu("fit", "iris", "--out", "again", *QUICK)
    assert ran.code == 0, ran.err
    assert "note: the target 'target' has 3 whole values, taken as classes; --task regression overrides" in ran.out


@pytest.mark.stress
@pytest.mark.measured
def test_fit_says_how_far_it_is_from_its_fixed_point_and_at_what_temperature(lamu, tmp_path, monkeypatch):
    monkeypatch.setattr(validation_choice, "_FEWEST", 1)  # a fifth alone judges
    ran = lamu("fit", "iris", *CHOOSING, "--out", "run")
    assert ran.code == 0, ran.err
    assert "not converged: " in ran.out
    assert "chosen by training rows: nll " in ran.out
    metrics, config = (json.loads((tmp_path / "run" / f"{name}.json").read_text()) for name in ("metrics", "config"))
    assert metrics["convergence"]["converged"] is False
    assert metrics["convergence"]["offset"] > 0.25 or metrics["convergence"]["precision_error"] > 0.2
    tried = {float(each): nll for each, nll in config["temperatures_tried"].items()}
    assert metrics["temperature"] == config["temperature"]
    assert config["temperature"] in tried
    one = lamu("fit", "iris", *QUICK, "--temperature", "0.5", "--out", "half", "--json")
    assert one.document["metrics"]["temperature"] == 0.5
    assert one.document["config"]["temperatures_tried"] == {}
    assert posterior_of(tmp_path / "half" / "posterior").temperature == 0.5


@pytest.mark.stress
def test_the_bound_is_the_evidence_of_the_training_rows_where_the_belief_is_exact(lamu, tmp_path):
    """Of a mean field it is below, in the target's units; a point has none. The error is that of 32 draws."""
    table, bounds = csv_of("diabetes").astype(np.float64), {}
    for name, target in {"t": table["target"], "far": 1e12 + 3.0 * table["target"]}.items():  # float32 cannot hold it
        table.assign(target=target).to_csv(f"{name}.csv", index=False)
        words = ("--target", "target", "--algorithm", "conjugate", "--no-report", "--out", name, "--json")
        ran = lamu("fit", f"{name}.csv", *words)
        assert ran.code == 0, ran.err
        bounds[name] = ran.document["metrics"]["elbo"]
    assert bounds["t"] == pytest.approx(float(posterior_of(tmp_path / "t" / "posterior").evidence), abs=1e-2)
    assert bounds["far"] == pytest.approx(bounds["t"] - 96 * np.log(3.0), abs=0.5)
    ran = lamu("fit", "t.csv", "--target", "target", "--out", "mean field", *QUICK)
    assert ran.code == 0, ran.err
    assert "nats, of the 96 rows learned from" in ran.out
    quick = ("--algorithm", "adam", "--epochs", "2", "--temperature", "1", "--prior-scale", "1", "--no-report")
    point = lamu("fit", "t.csv", "--target", "target", *quick, "--out", "point", "--json")
    assert point.document["metrics"]["elbo"] is None


@pytest.mark.stress
def test_the_defaults_learn_a_regression(lamu):
    ran = lamu("fit", "diabetes", "--out", "run", "--epochs", "20", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["metrics"]["scores"]["rmse"] < np.std(load("diabetes")[1])


def test_the_same_seed_gives_the_same_predictions(lamu, tmp_path):
    for name in ("one", "two"):
        assert lamu("fit", "iris", "--out", name, "--seed", "3", *QUICK).code == 0
    written = [(tmp_path / name / "predictions.csv").read_bytes() for name in ("one", "two")]
    assert written[0] == written[1]


def test_an_interruption_exits_with_130_and_leaves_nothing(lamu, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("lamu.cli.learning.fit_prior_scale", interrupted)
    ran = lamu("fit", "diabetes", "--out", "run", *QUICK)
    assert (ran.code, ran.out.count("\n")) == (130, 2)  # what was read, and the number of fits
    assert ran.err == "lamu: interrupted, and nothing was written\n"
    assert list(tmp_path.iterdir()) == []


def test_a_fit_that_the_loop_broke_off_is_not_written(lamu, tmp_path, monkeypatch):
    run = validation_choice.fit

    def stopped(model, data, algorithm, **options):
        found = run(model, data, algorithm, **options)
        return replace(found, interrupted=options["checkpoint"].name == "last")

    monkeypatch.setattr(validation_choice, "fit", stopped)
    monkeypatch.setattr(validation_choice, "_FEWEST", 1)  # a fifth alone judges
    assert lamu("fit", "iris", "--out", "run", *CHOOSING).code == 130
    assert [path.name for path in tmp_path.iterdir()] == ["run.unfinished"]  # the temperatures that were tried


def test_our_own_faults_are_a_line_and_a_traceback_when_asked(lamu, tmp_path, monkeypatch):
    def broken(*arguments, **options):
        return np.ones(2) + np.ones(3)

    monkeypatch.setattr("lamu.cli.training.score_rows", broken)
    ran = lamu("fit", "iris", "--out", "run", *QUICK)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert ran.err.startswith("lamu: ValueError: operands could not be broadcast")
    assert "--debug shows where" in ran.err
    with pytest.raises(ValueError, match="broadcast"):
        lamu("fit", "iris", "--out", "run", "--debug", "--force", *QUICK)
    assert [path.name for path in tmp_path.iterdir()] == ["run.unfinished"]  # what was learned before the fault


def test_a_draft_does_not_replace_what_came_in_the_meantime(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(FileExistsError, match="exists already"), draft(out) as folder:  # noqa: PT012  (the exit is what raises)
        folder.mkdir()
        out.write_text("mine")
    assert out.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("given", [(), ("--prior-scale", "0.5")], ids=["chosen", "given"])
def test_a_table_is_read_once_and_every_fit_was_announced(lamu, monkeypatch, capsys, given):
    csv_of("diabetes").to_csv("t.csv", index=False)
    model = library.Model(library.networks.Linear(), library.likelihoods.Gaussian(0.7))
    exact = library.fit(model, (np.eye(4), np.arange(4.0)), library.algorithms.conjugate())
    opened, fits, said = [], [], []

    def record(model, data, algorithm, **options):
        said.append(capsys.readouterr().out)
        fits.append(options)
        if options.get("validation") is None:  # the one that was asked for, of all training rows
            raise KeyboardInterrupt
        return replace(exact, history={"validation_nll": np.array([-float(model.prior.scale)])})

    sys.addaudithook(lambda event, words: opened.append(1) if event == "open" and words[0] == "t.csv" else None)
    for module in ("validation_choice", "folds"):
        monkeypatch.setattr(f"lamu.{module}.fit", record)
    words = ("--target", "target", "--algorithm", "ivon", "--epochs", "2", "--out", "run")
    assert lamu("fit", "t.csv", *words, *given).code == 130
    assert len(opened) == 1
    assert len(fits) == (1 if given else 6)
    plan = "one fit of 2" if given else "up to 6 fits (scales of the prior), each of 2"
    assert f"{plan} epochs at most{'' if given else '; --prior-scale gives it'}\n" in said[0]


@pytest.mark.parametrize("task", TASKS)
def test_the_picture_is_a_picture(fitted, task):
    with Image.open(fitted / task / "calibration.png") as image:
        pixels = np.asarray(image.convert("RGB"))
    assert min(pixels.shape[:2]) > 500
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20


@pytest.mark.parametrize("task", TASKS)
def test_effects_are_written_as_numbers(fitted, task):
    change = json.loads((fitted / task / "metrics.json").read_text())["effects"]
    table = pd.read_csv(fitted / task / "effects.csv")
    by = table.groupby(["column", "class"] if "class" in table else ["column"], sort=False)["mean"]
    largest = (by.max() - by.min()).groupby("column").max()
    assert sorted(change.values(), reverse=True) == list(change.values())
    assert {name: pytest.approx(size) for name, size in largest.items()} == change


def test_the_monte_carlo_error_is_kept_where_the_prediction_knows_it(lamu, tmp_path, monkeypatch):
    monkeypatch.setattr("lamu.predictives.MixturePredictive.monte_carlo_error", lambda pred, y: 0.0625)
    ran = lamu("fit", "iris", "--out", "run", *QUICK)
    assert "would move nll by about 0.06; --samples takes more" in ran.out
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["monte_carlo_errors"]["nll"] == 0.0625


# --force: a run in the place of a run


def test_force_replaces_a_run_and_nothing_else(lamu, tmp_path):
    assert lamu("fit", "iris", "--out", "run", "--seed", "1", *QUICK).code == 0
    assert_refused(lamu("fit", "iris", "--out", "run", *QUICK), "'run' exists already", "--force")
    ran = lamu("fit", "iris", "--out", "run", "--seed", "2", "--force", *QUICK)
    assert ran.code == 0, ran.err
    assert json.loads((tmp_path / "run" / "config.json").read_text())["seed"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    (tmp_path / "run" / "notes.txt").write_text("mine")
    assert_refused(lamu("fit", "iris", "--out", "run", "--force", *QUICK), "'run' also holds 'notes.txt'", "move it")
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    assert json.loads((tmp_path / "run" / "config.json").read_text())["seed"] == 2


@pytest.mark.parametrize("kind", ["folder", "file", "link", "config"])
def test_force_never_touches_what_is_no_run(lamu, tmp_path, kind):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("mine")
    out = "precious"
    if kind == "file":
        out = "precious/thesis.tex"
    elif kind == "link":
        (tmp_path / "link").symlink_to(tmp_path / "precious")
        out = "link"
    elif kind == "config":
        (tmp_path / "precious" / "config.json").write_text('{"format": 2}')
    assert_refused(lamu("fit", "iris", "--out", out, "--force", *QUICK), f"'{out}' is not a folder", "--force")
    assert (tmp_path / "precious" / "thesis.tex").read_text() == "mine"


def test_a_fit_that_fails_leaves_the_run_that_was_there(lamu, tmp_path, monkeypatch):
    assert lamu("fit", "iris", "--out", "run", *QUICK).code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lamu.cli.training.append_csv", full)
    ran = lamu("fit", "iris", "--out", "run", "--force", "--seed", "3", *QUICK)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()} == before
    assert "the same command with --resume goes on" in ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.unfinished"]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert lamu("fit", "iris", "--out", "run", "--force", "--resume", "--seed", "3", *QUICK).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("swap", ["in one step", "in three", "in three, failing"])
def test_two_folders_change_places(tmp_path, monkeypatch, swap):
    one, other = tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        path.mkdir()
        (path / path.name).touch()
    names = lambda path: [each.name for each in path.iterdir()]
    if swap != "in one step":
        monkeypatch.setattr(exchanging, "_in_one_step", lambda one, other: False)
    if "failing" in swap:
        rename = exchanging.os.rename

        def fail(source, to):
            if source == one:
                raise OSError(5, "Input/output error")
            rename(source, to)

        monkeypatch.setattr(exchanging.os, "rename", fail)
        with pytest.raises(OSError, match="Input/output"):
            exchange(one, other)
        assert (names(one), names(other)) == (["one"], ["other"])
        return
    exchange(one, other)
    assert (names(one), names(other)) == (["other"], ["one"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "other"]


def test_swapping_with_nothing_is_an_error(tmp_path):
    (tmp_path / "one").mkdir()
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "one", tmp_path / "none")


@pytest.mark.stress
def test_angles_have_a_density_and_no_intervals(lamu, tmp_path):
    """No calibration picture and no report either, both of which are about intervals; `predict` reads the run."""
    random = np.random.default_rng(0)
    x = random.uniform(-1.0, 1.0, 60)
    pd.DataFrame({"x": x, "angle": x + random.vonmises(0.0, 4.0, 60)}).to_csv("angles.csv", index=False)
    words = ("fit", "angles.csv", "--target", "angle", "--likelihood", "von_mises", "--algorithm", "adam")
    assert lamu(*words, "--epochs", "2", "--out", "run").code == 0
    assert set(json.loads((tmp_path / "run" / "metrics.json").read_text())["scores"]) == {"nll"}
    assert list(pd.read_csv(tmp_path / "run" / "predictions.csv").columns) == ["row", "target", "mean", "log_prob"]
    assert not (tmp_path / "run" / "calibration.png").exists()
    assert set(lamu("predict", "run", "angles.csv", "--json").document["scores"]) == {"nll"}


@pytest.mark.stress
def test_the_noise_may_differ_from_row_to_row(lamu, tmp_path):
    random = np.random.default_rng(0)
    x = random.uniform(-1.0, 1.0, 600)
    table = pd.DataFrame({"x": x, "y": x + np.where(x > 0, 1.0, 0.1) * random.normal(size=600)})
    table.to_csv("noisy.csv", index=False)
    words = ("fit", "noisy.csv", "--target", "y", "--folds", "2", "--epochs", "80")
    widths = {}
    for name in ("gaussian", "heteroscedastic"):
        assert lamu(*words, "--likelihood", name, "--out", name).code == 0
        found = pd.read_csv(tmp_path / name / "predictions.csv")
        wide = table["x"].to_numpy()[found["row"]] > 0
        width = (found["upper"] - found["lower"]).to_numpy()
        widths[name] = width[wide].mean() / width[~wide].mean()
    assert widths["gaussian"] == pytest.approx(1.0, abs=0.05)
    assert widths["heteroscedastic"] > 1.5
    config = json.loads((tmp_path / "heteroscedastic" / "config.json").read_text())
    assert config["likelihood"] == "heteroscedastic"
    again = lamu("predict", "heteroscedastic", "noisy.csv", "--json").document
    assert 0.85 < again["scores"]["coverage"] < 1.0


def test_a_likelihood_is_one_that_there_is_for_the_task(lamu):
    words = ("fit", "iris", "--out", "run", "--likelihood")
    assert_refused(lamu(*words, "heteroscedstic"), "no likelihood 'heteroscedstic'", "did you mean 'heteroscedastic'?")
    assert_refused(lamu(*words, "heteroscedastic"), "--likelihood heteroscedastic is of a regression", "classes")
    words = ("compare", "iris", "--algorithms", "adam", "--likelihood")
    assert_refused(lamu(*words, "heteroscedastic"), "is of a regression", "leave it out")


@pytest.mark.parametrize(
    ("labels", "ordered"),
    [
        (("1 low", "2 mid", "10 high"), True),
        (("1 low", "10 high", "2 mid"), False),
        (("high", "low"), False),
        ((1, 2), True),
    ],
)
def test_ordered_classes_have_numbers(labels: tuple, ordered: bool) -> None:
    encoding = Encoding("y", "classes", labels, ("a",))
    if ordered:
        assert likelihood_for(encoding, "ordinal").classes == len(labels)
    else:
        with pytest.raises(ValueError, match="would be in that of the alphabet"):
            likelihood_for(encoding, "ordinal")


def _table_of(kind: str) -> pd.DataFrame:
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(size=90), "b": random.choice(["red", "green", "blue"], 90)})
    signal = frame["a"] + (frame["b"] == "red")
    targets = {
        "numbers": signal + 0.3 * random.normal(size=90),
        "classes": np.where(signal + 0.3 * random.normal(size=90) > 0.3, "yes", "no"),
        "counts": random.poisson(np.exp(1.0 + 0.7 * signal)),
        "categories": np.digitize(signal + 0.3 * random.normal(size=90), [-0.3, 0.6]).astype(str),
    }
    return frame.assign(y=np.char.add("c", targets[kind].astype(str)) if kind == "categories" else targets[kind])


@pytest.mark.stress
@pytest.mark.parametrize("kind", ["numbers", "classes", "counts", "categories"])
def test_the_defaults_run_to_the_end_on_a_table_of_each_kind(lamu, tmp_path, kind):
    """With candidates, not the ensemble that `--epochs` trains."""
    _table_of(kind).to_csv(tmp_path / "table.csv", index=False)
    ran = lamu("fit", "table.csv", "--target", "y", "--out", "run", "--folds", "2", "--no-report", "--json")
    assert ran.code == 0, ran.err
    metrics, config = ran.document["metrics"], ran.document["config"]
    assert sum(config["candidates"].values()) == pytest.approx(1.0)
    assert set(metrics) >= {f"seconds_{part}" for part in ("reading", "choosing", "compiling", "scoring")}
    constant = {"numbers": 1.7, "classes": np.log(2), "counts": 3.0, "categories": np.log(3)}[kind]
    assert metrics["scores"]["nll"] < constant
    ran = lamu("predict", "run", "table.csv", "--json")
    assert ran.code == 0, ran.err
    assert len(ran.document["predictions"]) == 90


@pytest.mark.stress
def test_peers_are_compared_from_end_to_end(lamu, tmp_path):
    _table_of("numbers").to_csv(tmp_path / "table.csv", index=False)
    ran = lamu("compare", "table.csv", "--target", "y", "--algorithms", "linear,boosting,forest", "--json")
    assert ran.code == 0, ran.err
    rows = {row["algorithm"]: row for row in ran.document["algorithms"]}
    assert list(rows) == ["linear", "boosting", "forest"]
    assert all(np.isfinite(row["scores"]["nll"]) for row in rows.values())
    # The table is linear: the difference is paired with the first, and is what the scores differ by.
    difference = rows["forest"]["nll_difference"]["value"]
    assert difference == pytest.approx(rows["forest"]["scores"]["nll"] - rows["linear"]["scores"]["nll"], abs=1e-6)
    assert difference > 0
