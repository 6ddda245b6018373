"""Options from a file, what the installation is, how many fits there will be, and completion by the shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import jax
import pytest

import lamu as library
from lamu.cli.learning import plan
from lamu.folds import fit_folds, num_fits
from tests.command_line import assert_refused


@pytest.fixture
def asked(monkeypatch):
    """What `lamu fit` and `lamu compare` would run."""
    seen = SimpleNamespace()

    def train(request, rows, out, algorithm, settings, *flags):
        seen.request, seen.out, seen.algorithm, seen.settings, seen.flags = request, out, algorithm, settings, flags[:4]

    def compare(request, algorithms, setting, *rest):
        seen.request, seen.algorithms, seen.settings = request, algorithms, setting
        return True

    monkeypatch.setattr("lamu.cli.training.train", train)
    monkeypatch.setattr("lamu.cli.comparing.compare", compare)
    return seen


def test_a_file_gives_options_by_name_and_the_command_line_comes_first(lamu, asked, tmp_path):
    (tmp_path / "run.toml").write_text(
        'data = "iris"\nout = "from_file"\nalgorithm = "ivon"\nepochs = 7\ntest-size = 0.3\n'
        "report = false\njson = true\n[set]\nlearning_rate = 0.05\n"
    )
    assert lamu("fit", "--config", "run.toml", "--epochs", "9").code == 0
    assert (asked.request.data, asked.request.epochs, asked.request.test_size) == ("iris", 9, 0.3)
    assert (str(asked.out), asked.algorithm, asked.settings) == ("from_file", "ivon", ("learning_rate=0.05",))
    assert asked.flags == (True, False, False, False)  # --json, and no report
    assert lamu("fit", "wine", "--out", "other", "--config", "run.toml", "--set", "b1=0.8").code == 0
    assert (asked.request.data, str(asked.out), asked.settings) == ("wine", "other", ("b1=0.8",))


def test_a_file_for_compare_has_lists_and_tables(lamu, asked, tmp_path):
    (tmp_path / "c.toml").write_text('algorithms = ["adam", "ivon"]\nsplits = 3\n[set]\nadam.learning_rate = 0.1\n')
    assert lamu("compare", "iris", "--config", "c.toml").code == 0
    assert asked.algorithms == "adam,ivon"
    assert list(asked.settings) == ["adam.learning_rate=0.1"]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("epoch = 3", ["'epoch'", "not an option of `lamu fit`", "did you mean 'epochs'?"]),
        ("splits = 3", ["'splits'", "not an option of `lamu fit`"]),
        ('config = "a.toml"', ["'config'", "not an option"]),
        ("epochs = ", ["is not TOML", "seed = 1"]),
        ('epochs = "many"', ["--epochs", "'many'"]),
        ("[epochs]\nfirst = 1", ["a table [epochs]", "epochs = ..."]),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(lamu, asked, tmp_path, content, parts):
    (tmp_path / "run.toml").write_text(content)
    assert_refused(lamu("fit", "iris", "--out", "run", "--config", "run.toml"), *parts)
    assert not vars(asked)


def test_a_file_that_is_not_there_is_one_sentence(lamu, tmp_path):
    words = ("fit", "iris", "--out", "run", "--config")
    assert_refused(lamu(*words, "no.toml"), "'no.toml' cannot be read", "check the path")
    (tmp_path / "bytes.toml").write_bytes(b"a = '\xff'")
    assert_refused(lamu(*words, "bytes.toml"), "not UTF-8")


def test_the_doctor_knows_versions_devices_memory_and_cache(lamu, tmp_path, monkeypatch, request):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "program").write_bytes(b"12345")
    set_folder = lambda folder: jax.config.update("jax_compilation_cache_dir", folder)
    request.addfinalizer(partial(set_folder, jax.config.jax_compilation_cache_dir))
    set_folder(str(tmp_path / "cache"))
    found = lamu("doctor", "--json").document
    assert found["versions"]["lamu"] == library.__version__
    assert found["cache"] == {"folder": str(tmp_path / "cache"), "lamu's": False, "bytes": 5}
    assert any("cpu" in device for device in found["devices"])
    assert found["memory"]["free"] > 0
    said = lamu("doctor").out
    for words in ("jax", "blackjax", "devices: ", "memory: ", "(5 B; LAMU_CACHE=off"):
        assert words in said
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    set_folder(None)
    monkeypatch.setenv("LAMU_CACHE", "off")
    assert "are not kept; set LAMU_CACHE" in lamu("doctor").out


def test_the_plan_counts_the_fits_that_are_made(monkeypatch):
    x, y = library.data.load("iris")
    model = library.Model(
        library.networks.Linear(), library.likelihoods.Categorical(3), library.priors.LearnedNormal(0.5)
    )
    model = model.standardised(x, y)
    made = []
    monkeypatch.setattr("lamu.folds.fit", lambda *a, **k: made.append(1) or library.fit(*a, **k))
    fit_folds(model, (x, y), library.algorithms.adam(1e-2), folds=2, epochs=1)
    assert len(made) == num_fits(150, 2, learned=True) == 6
    assert plan(model, library.algorithms.adam(1e-2), 150, 2, None, 1).startswith("6 fits (2 folds, 3 scales")
    # Five fifths of few rows judge seven temperatures; of many rows one fifth judges these, and the scales with them.
    assert plan(model, library.algorithms.ivon(), 150, 0, None, None).startswith("up to 36 fits (temperatures), the")
    assert plan(model, library.algorithms.ivon(), 5000, 0, None, None).startswith(
        "up to 17 fits (temperatures and scales"
    )
    assert plan(model, library.algorithms.laplace(), 150, 0, 1.0, 5) == "one fit of 5 epochs at most"
    assert plan(model, library.mcmc.hmc(), 150, 0, None, None) == "one fit"


def test_fit_says_the_number_of_fits_before_the_first(lamu, monkeypatch, capsys):
    said = []

    def stop(*arguments, **options):
        said.append(capsys.readouterr().out)
        raise KeyboardInterrupt

    monkeypatch.setattr("lamu.cli.learning.fit_folds", stop)
    assert lamu("fit", "iris", "--out", "run", "--epochs", "3").code == 130
    plan = "15 fits (5 folds, 3 scales of the prior), each of 3 epochs at most; --prior-scale gives it\n"
    assert plan in said[0]


def test_the_shell_completes_commands_and_options():
    program = [sys.executable, "-c", "import sys; from lamu.cli import main; sys.exit(main())"]
    for words, offered in (("lamu do", "doctor"), ("lamu fit --temp", "--temperature")):
        environment = {**os.environ, "_LAMU_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "1"}
        environment["COMP_CWORD"] = str(len(words.split()) - 1)
        ran = subprocess.run(program, capture_output=True, text=True, env=environment, timeout=120, check=False)
        assert offered in ran.stdout.split(), ran


def test_json_stays_one_document(lamu, monkeypatch):
    assert json.loads(lamu("doctor", "--json").out)
