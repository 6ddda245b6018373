"""Algorithms and likelihoods of one's own at the command line: `--algorithm package.module:name`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lamu.cli.recipes import build, find, parse
from lamu.record import _TYPES
from tests.command_line import assert_refused, runner

MODULE = """
import lamu
from lamu.likelihoods import Gaussian
from lamu.protocol import Wrapper
from lamu.record import record

@record
class Named(Wrapper):
    pass

def slow(learning_rate=0.01, structure=3, b1=0.9):
    return Named(lamu.algorithms.adam(learning_rate, b1=b1))

fixed = slow(0.02)
number = 3.0

class Half:
    traits = None
    def init(self): ...

def half():
    return Half()

def needy(scale):
    return slow(scale)

@record
class Quiet(Gaussian):
    scale: float = 0.5

class NoLikelihood:
    pass
"""


@pytest.fixture
def lamu(capsys, tmp_path, monkeypatch):
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text(MODULE)
    (package / "broken.py").write_text("import nowhere_to_be_found")
    x = np.random.default_rng(0).normal(size=(40, 2))
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": x[:, 0] - x[:, 1]}).to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("mine", "mine.parts", "mine.broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield runner(capsys, tmp_path, monkeypatch)
    for name in ("mine", "mine.parts", "mine.broken"):
        sys.modules.pop(name, None)


DATA = ("t.csv", "--target", "y")
QUICK = ("--epochs", "2", "--temperature", "1", "--json")


@pytest.mark.stress
def test_fit_and_predict_with_parts_of_a_module_in_the_current_folder(lamu, tmp_path: Path) -> None:
    words = ("--algorithm", "mine.parts:slow", "--set", "learning_rate=0.5", "--set", "structure=4")
    ran = lamu("fit", *DATA, *QUICK, *words, "--likelihood", "mine.parts:Quiet", "--out", "run")
    assert ran.code == 0, ran.err
    config = ran.document["config"]
    assert config["algorithm"] == "mine.parts:slow"
    assert config["settings"] == {"learning_rate": 0.5, "structure": 4, "b1": 0.9}
    assert config["likelihood"] == "mine.parts:Quiet"
    content = json.loads((tmp_path / "run" / "posterior" / "content.json").read_text())
    assert "mine.parts:Quiet" in json.dumps(content)
    for name in ("mine", "mine.parts"):
        sys.modules.pop(name)
    _TYPES.pop("mine.parts:Quiet")
    assert_refused(lamu("predict", "run", "t.csv"), "its module 'mine.parts' is not imported", "--trust mine.parts")
    predicted = lamu("predict", "run", "t.csv", "--json", "--trust", "mine")
    assert predicted.code == 0, predicted.err
    assert predicted.document["rows"] == 40


@pytest.mark.stress
def test_an_algorithm_that_is_made_already(lamu) -> None:
    ran = lamu("fit", *DATA, *QUICK, "--algorithm", "mine.parts:fixed", "--out", "run")
    assert ran.code == 0, ran.err
    refused = lamu("fit", *DATA, "--algorithm", "mine.parts:fixed", "--set", "b1=0.5", "--out", "other")
    assert_refused(refused, "mine.parts:fixed has no setting 'b1'", "it has none")


@pytest.mark.stress
def test_compare_takes_names_of_modules_beside_its_own(lamu) -> None:
    words = ("--algorithms", "adam,mine.parts:slow", "--set", "mine.parts:slow.b1=0.5", "--set", "adam.b1=0.5")
    ran = lamu("compare", *DATA, *QUICK, *words)
    assert ran.code == 0, ran.err + ran.out
    assert [row["algorithm"] for row in ran.document["algorithms"]] == ["adam", "mine.parts:slow"]
    assert ran.document["complete"]
    refused = lamu("compare", *DATA, "--algorithms", "adam,mine.parts:slow", "--set", "mine.parts:slo.b1=0.5")
    assert_refused(refused, "'mine.parts:slo.b1=0.5' does not begin with an algorithm")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--algorithm", "nomodule:slow"], ["--algorithm is 'nomodule:slow'", "no module 'nomodule'", "PYTHONPATH"]),
        (["--algorithm", "mine.nopart:slow"], ["--algorithm is 'mine.nopart:slow'", "no module 'mine.nopart'"]),
        (["--algorithm", "mine.parts:slwo"], ["'mine.parts' has no 'slwo'", "did you mean 'slow'?"]),
        (["--algorithm", "mine.parts:"], ["--algorithm is 'mine.parts:'", "package.module:name"]),
        (["--algorithm", "mine.parts:number"], ["'mine.parts:number' gives a float", "it lacks traits, choices, init"]),
        (["--algorithm", "mine.parts:half"], ["'mine.parts:half' gives a Half", "lacks choices, step and posterior"]),
        (["--algorithm", "mine.parts:needy"], ["needs the setting 'scale'", "--set scale=VALUE"]),
        (["--algorithm", "mine.parts:slow", "--set", "b2=1"], ["mine.parts:slow has no setting 'b2'"]),
        (["--algorithm", "mine.parts:slow", "--set", "b1=fast"], ["'b1' of mine.parts:slow is a number, not 'fast'"]),
        (["--algorithm", "math:sin"], ["takes 'x' by position alone"]),
        (["--likelihood", "mine.parts:NoLikelihood"], ["--likelihood is 'mine.parts:NoLikelihood'", "NoLikelihood"]),
        (["--likelihood", "mine.parts:needy"], ["needs arguments"]),
        (["--likelihood", "lamu.likelihoods:Bernoulli"], ["for the task binary", "--task binary"]),
    ],
)
def test_mistakes_are_told_in_a_sentence(lamu, words, parts) -> None:
    assert_refused(lamu("fit", *DATA, *words, "--out", "run"), *parts)


def test_what_a_module_lacks_itself_is_named_and_debug_shows_where(lamu) -> None:
    words = ("fit", *DATA, "--algorithm", "mine.broken:x", "--out", "run")
    ran = lamu(*words)
    assert ran.code == 1
    assert "No module named 'nowhere_to_be_found'; --debug shows where" in ran.err
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        lamu("--debug", *words)


def test_words_of_the_librarys_own_settings_stay() -> None:
    recipe = find("lamu.algorithms:laplace")
    assert parse(["structure=diagonal"], recipe)["structure"].__name__ == "Diagonal"
    assert build(recipe, {}).choices == find("laplace").choices
