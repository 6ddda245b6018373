"""The command line's small parts: lists, checks, settings, exit codes, and what is imported when."""

from __future__ import annotations

import gc
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lamu.cli.printing import dump
from lamu.cli.recipes import find, parse, recipes
from lamu.protocol import Recipe
from tests.command_line import Ran, assert_refused

# Lists and checks


def test_algorithms_are_listed_from_the_code(lamu):
    ran = lamu("algorithms")
    assert ran.code == 0
    assert all(name in ran.out for name in recipes())
    rows = json.loads(lamu("algorithms", "--json").out)
    assert [row["algorithm"] for row in rows] == list(recipes())
    for row in rows:
        assert list(row) == ["algorithm", "family", "expectation", "curvature", "departures", "axes", "source"]
        assert isinstance(row["departures"], list)


def test_one_algorithm_is_shown_with_its_options(lamu):
    ran = lamu("algorithms", "ivon")
    assert ran.code == 0
    assert all(word in ran.out for word in ("Price", "Shen et al. 2024", "--set b1=", "0.9"))
    shown = json.loads(lamu("algorithms", "ivon", "--json").out)
    assert shown["options"]["b1"] == "0.9"
    assert shown["departures"]
    assert "did you mean 'ivon'" in lamu("algorithms", "ivno").err


# A plain install, without the extras

WITHOUT_EXTRAS = """
import contextlib
import io
import json
import sys

sys.modules |= dict.fromkeys(("arviz", "blackjax"))
from lamu.cli import main

ran = []
for words in json.loads(sys.argv[1]):
    if isinstance(words, str):
        sys.modules[words] = None
        continue
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(words)
    ran.append((code, out.getvalue(), err.getvalue()))
json.dump(ran, sys.stdout)
"""


def plainly(*commands: Sequence[str] | str) -> list[Ran]:
    """What commands come to in one process without the extras; a word alone is a package that is missing from then."""
    given = [sys.executable, "-c", WITHOUT_EXTRAS, json.dumps(commands)]
    return [Ran(*ran) for ran in json.loads(subprocess.run(given, capture_output=True, text=True, check=True).stdout)]


def test_a_plain_install_lists_every_algorithm_and_names_the_extra_where_one_needs_it(tmp_path):
    out = str(tmp_path / "run")
    listed, *others = plainly(
        ["algorithms", "--json"],
        ["fit", "iris", "--out", out, "--algorithm", "nuts"],
        ["compare", "iris", "--algorithms", "adam", "--reference", "hmc"],
    )
    assert listed.code == 0, listed.err
    assert [row["algorithm"] for row in json.loads(listed.out)] == list(recipes())
    for ran in others:
        assert_refused(ran, 'pip install "lamu[mcmc]"')
    assert "step_size" not in others[0].err  # nuts has none
    assert not list(tmp_path.iterdir())


def test_a_check_that_needs_an_extra_was_not_run_and_did_not_fail():
    ran, without_references = plainly(["verify", "hmc"], "lamu_verification", ["verify", "hmc"])
    assert ran.code == 0, ran.out + ran.err
    assert "not run, for want of an extra: hmc" in ran.out
    assert "failed" not in ran.out
    assert_refused(without_references, 'pip install "lamu[verify]"')


def test_the_rows_that_are_listed_without_the_extra_are_the_algorithms_own():
    for recipe in recipes().values():
        assert recipe.choices == recipe.factory().choices


def checks_of(monkeypatch, deviations: Sequence[float]) -> None:
    def check(name: str, deviation: float):
        return lambda: SimpleNamespace(algorithm=name, reference="two", deviation=deviation, tolerance=1e-3)

    table = {f"check{index}": check(f"check{index}", deviation) for index, deviation in enumerate(deviations)}
    monkeypatch.setattr("lamu_verification.command.checks", lambda: table)
    monkeypatch.setattr("lamu_verification.command.likelihood_checks", dict)
    monkeypatch.setattr("lamu_verification.command.latent_checks", dict)
    monkeypatch.setattr("lamu_verification.command.shipped_rows", dict)


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


def test_a_quick_verification_runs_a_row_of_each_kind(lamu, monkeypatch):
    from lamu_verification import checks, latent_checks, likelihood_checks
    from lamu_verification.command import QUICK

    assert set(QUICK) <= {*checks(), *likelihood_checks(), *latent_checks()}
    checks_of(monkeypatch, [1e-2])  # a row that would fail
    assert lamu("verify", "--quick", "--json").code == 0
    monkeypatch.setattr("lamu_verification.command.QUICK", ("check0",))
    assert lamu("verify", "--quick").code == 1
    assert_refused(lamu("verify", "check0", "--quick"), "leave one of the two out")


def test_a_check_that_breaks_has_failed(lamu, monkeypatch):
    def broken():
        raise RuntimeError("no reference here")

    monkeypatch.setattr("lamu_verification.command.checks", lambda: {"broken": broken})
    monkeypatch.setattr("lamu_verification.command.likelihood_checks", dict)
    monkeypatch.setattr("lamu_verification.command.latent_checks", dict)
    monkeypatch.setattr("lamu_verification.command.shipped_rows", lambda: {"broken": broken})
    ran = lamu("verify", "--json")
    assert ran.code == 1
    assert "no reference here" in json.loads(ran.out)["checks"][0]["reference"]
    assert "no reference here" in json.loads(ran.out)["shipped"][0]["reference"]
    assert "as shipped: 0 of 1 reached what is expected of their kind; missed: broken" in lamu("verify").out


def test_verify_prints_a_default_fit_that_misses_its_reference_as_missed(lamu, monkeypatch):
    from lamu_verification import Check, Limits, Shipped

    def row(name: str, ratio: float):
        limits = Limits(mean=0.3, sd=0.1)
        return lambda: Shipped(name, "data", "mean field", 0.1, ratio, 0.5, float("nan"), 1.0, limits)

    monkeypatch.setattr("lamu_verification.command.checks", dict)
    even = lambda name: lambda: {name: lambda: Check(name, "two", 0.0, 1.0)}
    monkeypatch.setattr("lamu_verification.command.likelihood_checks", even("Even"))
    monkeypatch.setattr("lamu_verification.command.latent_checks", even("ELBO"))
    monkeypatch.setattr(
        "lamu_verification.command.shipped_rows", lambda: {"good": row("good", 1.05), "bad": row("bad", 0.21)}
    )
    ran = lamu("verify")
    assert ran.code == 1
    assert "missed: sd" in ran.out
    assert "as shipped: 1 of 2 reached what is expected of their kind; missed: bad" in ran.out
    assert "likelihoods: all 1 passed" in ran.out
    assert "latent variables: all 1 passed" in ran.out
    assert lamu("verify", "likelihoods").code == 0
    assert "likelihoods" not in lamu("verify", "latent").out
    assert lamu("verify", "good").code == 0
    document = json.loads(lamu("verify", "bad", "--json").out)
    assert document["passed"] is False
    assert document["shipped"][0]["sd_ratio"] == 0.21
    assert document["shipped"][0]["nats"] is None


def test_the_real_checks_are_known_by_name():
    from lamu_verification import checks

    assert checks()


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


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["fit", "--help"],
        ["compare", "--help"],
        ["serve", "--help"],
        ["--version"],
        ["fit", "iris", "--out", "."],
    ],
)
def test_no_heavy_import_before_it_is_needed(words):
    code = (
        "import sys; from lamu.cli import main; exit_code = main()\n"
        "names = ('jax', 'numpy', 'pandas', 'sklearn', 'scipy', 'matplotlib')\n"
        "heavy = [name for name in names if name in sys.modules]\n"
        "sys.exit(f'imported {heavy}' if heavy else exit_code)"
    )
    ran = shell(*words, code=code)
    assert ran.returncode == (2 if "iris" in words else 0), ran.stderr
    assert "Traceback" not in ran.stderr


def test_garbage_is_collected_seldom_while_a_command_runs_and_as_before_after_it(monkeypatch):
    from lamu.cli import app as commands

    before, during = gc.get_threshold(), []
    monkeypatch.setattr(commands, "app", lambda **_: during.append(gc.get_threshold()[0]))
    assert commands.main(["algorithms"]) == 0
    assert during == [1_000_000]
    assert gc.get_threshold() == before


def test_a_process_does_not_search_for_garbage_when_it_ends_and_a_caller_still_does(monkeypatch):
    from lamu.cli import app as commands

    frozen = []
    monkeypatch.setattr(commands, "app", lambda **_: None)
    monkeypatch.setattr(commands.gc, "freeze", lambda: frozen.append(True))
    monkeypatch.setattr(sys, "argv", ["lamu", "algorithms"])
    commands.main(["algorithms"])
    assert not frozen
    commands.main()
    assert frozen


def test_exit_codes_reach_the_shell():
    ran = shell("fit", "none.csv", "--out", "run that is never made")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "lamu: there is no file 'none.csv'; check the path\n"


def test_a_fit_says_what_it_read_before_algorithms_are_imported(tmp_path):
    program = (
        "import sys\n"
        "sys.modules['lamu.cli.training'] = None\n"  # whose import fails
        "from lamu.cli import main\n"
        "main(['fit', 'iris', '--out', 'run'])\n"
        "names = ('lamu.algorithms', 'lamu.scores', 'lamu.plots', 'numpyro', 'matplotlib')\n"
        "print(*[name for name in names if name in sys.modules])\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.stdout == "read iris: 150 rows of 4 features\n\n"


def test_the_package_runs_as_a_module(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["lamu", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("lamu", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("lamu ")
