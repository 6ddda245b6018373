"""Nothing is imported that the caller has not imported or named, whatever a file says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamu as library
from lamu import store
from lamu.record import _TYPES, decode, encode, record
from lamu.store import fingerprint
from tests.command_line import assert_refused, runner

X = np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32)
PAYLOAD = """
import pathlib
pathlib.Path("it-ran").write_text("")
from lamu.likelihoods import Gaussian
from lamu.record import record

@record
class X(Gaussian):
    pass
"""
NAMES = ("run.payload:X", "payload:X", "posterior.payload:X")


@pytest.fixture(autouse=True)
def forget_payload() -> Iterator[None]:
    """Lets no test see what another one imported: which of them runs first is for the workers to say."""
    yield
    sys.modules.pop("payload", None)
    for name in [name for name in _TYPES if name.startswith("payload:")]:
        del _TYPES[name]


@pytest.fixture(scope="module")
def posterior() -> Any:
    model = library.Model(library.networks.Linear(), library.likelihoods.Gaussian(0.5))
    return library.fit(model, (X, X[:, 0]), library.algorithms.conjugate()).posterior


@pytest.fixture
def forged(tmp_path: Path, posterior: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a function that makes a run with a module in it, which its posterior and its config.json name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])

    def make(name: str) -> Path:
        run = tmp_path / "run"
        run.mkdir()
        content, arrays = store.read(posterior.save(tmp_path / "whole"))
        content["fields"]["model"]["fields"]["likelihood"]["record"] = name
        store.write(run / "posterior", content, arrays)
        for folder in (tmp_path, run, run / "posterior"):
            (folder / "payload.py").write_text(PAYLOAD)
        config = {
            "format": 2, "target": "y", "task": "regression", "labels": [], "columns": ["a", "b"], "samples": 4,
            "algorithm": name, "likelihood": name, "posterior": fingerprint(run / "posterior"),
        }  # fmt: skip
        (run / "config.json").write_text(json.dumps(config))
        np.savetxt(tmp_path / "t.csv", X, delimiter=",", header="a,b", comments="")
        return run

    return make


@pytest.mark.parametrize("name", NAMES)
def test_predict_imports_no_module_that_a_run_names(
    forged: Any, name: str, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged(name)
    path = [*sys.path]
    module = name.partition(":")[0]
    ran = runner(capsys, tmp_path, monkeypatch)("predict", "run", "t.csv")
    assert_refused(ran, f"its module {module!r} is not imported", f"import it first, or give --trust {module}")
    assert sys.path == path
    assert not (tmp_path / "it-ran").exists()
    assert module not in sys.modules


@pytest.mark.parametrize("name", NAMES)
def test_load_imports_no_module_that_a_file_names(forged: Any, name: str, tmp_path: Path) -> None:
    run = forged(name)
    monkeyed = [*sys.path]
    with pytest.raises(store.StoreError, match=r"is not imported.*trust=\["):
        library.load(run / "posterior")
    sys.path.insert(0, str(tmp_path))  # as in an interactive Python
    with pytest.raises(store.StoreError, match=r"is not imported.*trust=\["):
        library.load(run / "posterior")
    sys.path[:] = monkeyed
    assert not (tmp_path / "it-ran").exists()


def test_a_module_that_is_named_is_imported(
    forged: Any, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged("payload:X")
    ran = runner(capsys, tmp_path, monkeypatch)("predict", "run", "t.csv", "--json", "--trust", "payload")
    assert ran.code == 0, ran.err
    assert (tmp_path / "it-ran").exists()
    assert ran.document["rows"] == len(X)
    assert str(tmp_path) == sys.path[-1]  # behind all that is installed
    assert not any(str(path).startswith(f"{tmp_path}/") for path in sys.path)


@record
class Mine:
    """A record of this module.

    Attributes:
        value: anything.
    """

    value: Any


def a_function() -> None:
    raise AssertionError("it was called")


a_module_value = Mine(1.0)


def test_of_a_module_that_is_imported_only_records_are_built() -> None:
    assert decode(encode(Mine(1.0), {}), {}) == Mine(1.0)
    for short in ("a_function", "a_module_value", "Path", "Mine.value", "library", "__builtins__", "encode"):
        with pytest.raises(ValueError, match="not known here"):
            decode({"record": f"{__name__}:{short}", "fields": {}}, {})
    for name in ("record.encode", "store.write", "cli.main", "fit", "lamu.fit", "posterior.load", "os.system"):
        with pytest.raises(ValueError, match="not known here"):
            decode({"record": name, "fields": {}}, {})


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "system", "__class__", "relu.__call__"])
def test_an_activation_is_a_word_of_a_table(name: str) -> None:
    data = encode(library.networks.MLP((3,)), {})
    data["fields"]["activation"] = name
    with pytest.raises(ValueError, match="activation"):
        decode(data, {})


def test_a_function_is_never_read() -> None:
    for name in ("builtins.print", "os.system", f"{__name__}.a_function"):
        with pytest.raises(ValueError, match="was not saved, and is needed"):
            decode({"function": name}, {})


def test_trust_is_a_list() -> None:
    with pytest.raises(TypeError, match=r"trust='mine' is one string; give a list of modules, for instance \['mine'\]"):
        decode(1, {}, trust="mine")


def test_no_command_takes_a_module_from_a_config_file(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runner(capsys, tmp_path, monkeypatch)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    (tmp_path / "payload.py").write_text(PAYLOAD)
    fit, compare = ("fit", "iris", "--out", "run"), ("compare", "iris")
    for words, line in (
        (fit, 'algorithm = "payload:X"'),
        (fit, 'likelihood = "payload:X"'),
        (compare, 'algorithms = "adam,payload:X"'),
        (compare, 'algorithms = ["adam", "payload:X"]'),
        (compare, 'likelihood = "payload:X"'),
    ):
        (tmp_path / "options.toml").write_text(line)
        refused = run(*words, "--config", "options.toml", "--trust", "pay")
        assert_refused(refused, "--config names 'payload:X'", "give --trust payload")
        assert not (tmp_path / "it-ran").exists()
    for words in (fit, compare, ("predict", "run", "iris")):
        (tmp_path / "options.toml").write_text('trust = ["payload"]')
        assert_refused(run(*words, "--config", "options.toml"), "'trust', which a file may not say")
    (tmp_path / "options.toml").write_text('likelihood = "payload:Y"')
    assert_refused(run(*fit, "--config", "options.toml", "--trust", "payload"), "the module 'payload' has no 'Y'")
    assert (tmp_path / "it-ran").exists()


def test_the_processes_of_compare_take_no_module_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lamu.cli import comparing

    asked = []

    def recorded(words: list[str], **_: Any) -> Any:
        asked.append(words)
        return subprocess.CompletedProcess(words, 1, stderr=b"")

    monkeypatch.setattr(comparing.subprocess, "run", recorded)
    comparing.run({})
    command = asked[0]
    (tmp_path / "jax.py").write_text("print('shadowed')")
    monkeypatch.undo()
    ran = subprocess.run(
        [*command[: command.index("-m")], "-c", "import sys; print([p for p in sys.path if p in ('', '.')])"],
        capture_output=True, text=True, check=True, cwd=tmp_path, env={**os.environ},
    )  # fmt: skip
    assert ran.stdout.strip() == "[]"
    assert command.index("-P") < command.index("-m")
