"""Every algorithm from the command line: it runs, or one sentence names an option that helps."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import lamu as library
from lamu.cli.learning import Runs, likelihood_for, model_for
from lamu.cli.recipes import build, find, recipes, settings_of
from lamu.cli.request import Request
from lamu.data import Encoding
from lamu.networks.normalisation import Dropout
from lamu.priors import ARD, LearnedNormal
from tests.command_line import assert_refused, csv_of

X, Y = np.arange(12.0).reshape(6, 2), np.arange(6.0)


def table(*levels: tuple[str, ...]) -> Encoding:
    return Encoding("y", "regression", (), ("a", "b"), levels or ((), ()))


@pytest.mark.parametrize("name", ["dropout", "mc_dropout"])
def test_dropout_gets_a_network_that_drops_units(name):
    model, told = model_for(table(), X, Y, None, name)
    assert model.network.base.dropout == Dropout(0.1)
    assert told == f"{name}: a network that drops 10 % of its units"
    model, _ = model_for(table((), ("u", "v")), X, Y, None, name)
    assert model.network.base.base.dropout == Dropout(0.1)
    model, told = model_for(table(), X, Y, None, "adam")
    assert (model.network.base.dropout, model.prior, told) == (None, LearnedNormal(0.5), "")


def test_conjugate_scales_gets_a_prior_with_scales():
    model, told = model_for(table(), X, Y, None, "conjugate_scales")
    assert model.prior == ARD()
    assert "ARD()" in told


def test_extended_kalman_gets_a_known_noise():
    model, told = model_for(table(), X, Y + np.array([0.3, -0.2, 0.1, 0.4, -0.3, 0.2]), None, "extended_kalman")
    assert 0 < model.likelihood.base.scale < 0.5
    assert "known noise" in told


def test_the_prior_of_a_run_is_about_the_constant_model():
    # About zero: 600 counts of mean 1,062 had an nll of 6.29 under ivon, and about the constant 5.51.
    counts, weight, offset = np.array([990, 1010, 980, 1020, 5, 7]), np.array([1.0, 1, 1, 1, 0, 0]), np.full(6, 2.0)

    def level(model: Any, **data: Any) -> Any:
        runs = Runs(Request("table.csv"), model, library.algorithms.adam(), "adam", 6, 2, {"steps": 1})
        return runs.learn({"x": X, **data}, 0, {"progress": False}).posterior.model.network.level

    model, _ = model_for(table(), X, counts, "poisson", "ivon", None, weight)
    assert level(model, y=counts, weight=weight, offset=offset) == pytest.approx([np.log(1000) - 2], abs=1e-3)
    classes, y = Encoding("y", "binary", ("no", "yes"), ("a", "b"), ((), ())), np.array([0, 0, 0, 1, 0, 0])
    assert level(model_for(classes, X, y, None, "laplace", 0.5)[0], y=y) == pytest.approx([np.log(1 / 5)], abs=0.02)
    assert level(model_for(table(), X, Y, None, "ivon")[0], y=Y) is None


def test_pbp_is_refused_for_classes(lamu):
    ran = lamu("fit", "iris", "--algorithm", "pbp", "--out", "run")
    assert_refused(ran, "pbp", "the task of 'target' is classes", "--algorithm ivon")


def test_families_are_written_in_words():
    families = {name: recipe.choices.family for name, recipe in recipes().items()}
    assert families["last_layer"] == "Gaussian, dense or per-output precision, last layer"
    assert families["kfac"] == families["noisy_kfac"] == "Gaussian, Kronecker precision"


@pytest.mark.stress
def test_conjugate_is_bayesian_linear_regression(lamu, tmp_path):
    data = csv_of("diabetes")
    data.to_csv("d.csv", index=False)
    ran = lamu("fit", "d.csv", "--target", "target", "--algorithm", "conjugate", "--out", "run", "--no-report")
    assert ran.code == 0, ran.err
    assert "conjugate: a linear model with known noise, 0." in ran.out
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert "base=Linear(" in config["network"]
    rmse = json.loads((tmp_path / "run" / "metrics.json").read_text())["scores"]["rmse"]
    assert rmse < 0.9 * data["target"].std()  # it learned


def test_conjugate_is_refused_where_it_is_not_exact(lamu):
    assert_refused(
        lamu("fit", "iris", "--algorithm", "conjugate", "--out", "run"),
        "the task of 'target' is classes",
        "--algorithm",
    )
    words = ("fit", "diabetes", "--algorithm", "conjugate", "--out", "run")
    assert_refused(lamu(*words, "--likelihood", "student_t"), "the likelihood is StudentT", "--likelihood gaussian")
    csv_of("diabetes").assign(age=lambda t: np.where(t["age"] > 0, "old", "young")).to_csv("words.csv", index=False)
    assert_refused(
        lamu("fit", "words.csv", "--target", "target", "--algorithm", "conjugate", "--out", "run"),
        "'age' is of categories",
    )
    assert_refused(lamu(*words, "--epochs", "3"), "leave --epochs out")


@pytest.mark.parametrize("name", ["em", "vmp", "ncvmp", "svi", "cvi"])
def test_algorithms_of_graphs_point_to_one_of_networks(lamu, name):
    assert_refused(
        lamu("fit", "iris", "--algorithm", name, "--out", "run"), f"{name} learns graphs", "--algorithm ivon"
    )


def test_a_memory_that_is_too_small_names_the_option(lamu):
    short = ("--epochs", "1", "--temperature", "1", "--folds", "0", "--no-report")
    ran = lamu("fit", "iris", "--algorithm", "sgd", *short, "--max-memory", "1kB", "--out", "run")
    assert ran.code == 2
    assert "or give --max-memory '" in ran.err
    assert "max_memory=" not in ran.err
    assert_refused(lamu("fit", "iris", "--max-memory", "much", "--out", "run"), "--max-memory 'much' is not a size")


@pytest.mark.stress
@pytest.mark.parametrize("task", ["classes", "regression"])
@pytest.mark.parametrize("name", recipes())
@pytest.mark.filterwarnings("ignore:the prior's scale")  # of 48 rows and one epoch
def test_every_algorithm_runs_or_is_refused_with_an_option(lamu, name, task):
    csv_of({"classes": "iris", "regression": "diabetes"}[task], 60).iloc[:, -5:].to_csv("t.csv", index=False)
    recipe = find(name)
    short = {"warmup": 2, "draws": 2, "chains": 2, "samples": 2}
    words = [word for key in short if key in settings_of(recipe) for word in ("--set", f"{key}={short[key]}")]
    traits = build(recipe, {}).traits if not _needs(recipe) else None
    if traits is None or (traits.length is None and traits.batching != "once"):
        words += ["--epochs", "1"]
    ran = lamu(
        "fit",
        "t.csv",
        "--target",
        "target",
        "--algorithm",
        name,
        "--out",
        "run",
        "--temperature",
        "1",
        "--no-report",
        *words,
    )
    assert ran.code == 0 or (ran.code == 2 and ran.err.count("\n") == 1 and "--" in ran.err), ran.err


def _needs(recipe) -> bool:
    return any(parameter.default is parameter.empty for parameter in settings_of(recipe).values())


@pytest.mark.parametrize("name", ["gamma", "poisson"])
def test_a_target_counted_from_its_least_is_refused_where_its_zero_matters(name):
    """Counts above 1e7 were said to be 0.2857143, which is their distance from the least in units of the range."""
    shifted = Encoding("y", "regression", (), ("a", "b"), ((), ()), units=(("y", 1e7, 3.0),))
    with pytest.raises(ValueError, match="takes it neither shifted nor scaled; leave --likelihood"):
        likelihood_for(shifted, name)
    assert likelihood_for(shifted, "gaussian").support.affine
