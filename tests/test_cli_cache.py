"""What a command compiles, the next one finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from lamu.cli import stopwatch
from lamu.cli.compiled_programs import _forget_oldest, keep_compiled


def test_the_folder_is_the_users_own_unless_said_otherwise(tmp_path):
    settings = {"XDG_CACHE_HOME": str(tmp_path)}
    folder = keep_compiled(settings)
    assert folder is not None
    assert folder.parent == tmp_path / "lamu"
    assert settings["JAX_COMPILATION_CACHE_DIR"] == str(folder)
    other = {"LAMU_CACHE": str(tmp_path / "other")}
    assert str(keep_compiled(other)).startswith(str(tmp_path / "other"))
    for settings in ({"LAMU_CACHE": "off"}, {"JAX_COMPILATION_CACHE_DIR": "mine"}):
        before = dict(settings)
        assert keep_compiled(settings) is None
        assert settings == before
    (tmp_path / "file").write_text("")
    assert keep_compiled({"LAMU_CACHE": str(tmp_path / "file")}) is None


def test_the_oldest_programs_go_first(tmp_path):
    for index in range(4):
        path = tmp_path / str(index)
        path.write_bytes(b"x" * 10)
        os.utime(path, (index, index))
    _forget_oldest(tmp_path, 40)
    assert len(list(tmp_path.iterdir())) == 4
    _forget_oldest(tmp_path, 39)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3"]


def test_seconds_of_compilation_in_two_threads_at_once_count_once(monkeypatch):
    spent, event = stopwatch.CompileTime(), "/jax/core/compile/backend_compile_duration"
    for end, duration in ((3.0, 1.0), (4.0, 3.0), (9.0, 2.0), (9.5, 1.0)):  # 1 to 4, with 2 to 3 inside; 7 to 9.5
        monkeypatch.setattr(stopwatch.time, "perf_counter", lambda end=end: end)
        spent.add(event, duration)
    spent.add("/jax/something/else", 5.0)
    assert (spent.seconds, spent.programs) == (5.5, 4)


@pytest.mark.stress
def test_a_second_command_compiles_less(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")

    def fit(out: str) -> float:
        words = [
            "fit",
            "iris",
            "--algorithm",
            "laplace",
            "--epochs",
            "2",
            "--temperature",
            "1",
            "--no-report",
            "--json",
            "--out",
        ]
        command = [sys.executable, "-c", "import sys; from lamu.cli import main; sys.exit(main())", *words, out]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["metrics"]["seconds_compiling"]

    first, second = fit("first"), fit("second")
    assert second < 0.7 * first
