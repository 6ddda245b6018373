"""What one process compiles, the next one finds: in a folder that others may share, and that a kill leaves whole."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from lamu.base.compiled_programs import ProgramFolder, forget_oldest, programs_folder
from lamu.cli import training

# Writes programs whose keys are the checksums of what they hold, without end.
WRITER = """
import hashlib, os, sys
from pathlib import Path
from lamu.base.compiled_programs import ProgramFolder
folder = ProgramFolder(Path(sys.argv[1]), int(sys.argv[2]))
print(flush=True)
while True:
    value = os.urandom(4) * 100_000
    folder.put(hashlib.sha256(value).hexdigest(), value)
"""

# Compiles a program, and says how many were read from the folder, and which folder it is.
USER = """
import json, sys
import jax
exec(sys.argv[1])
from jax import monitoring
hits = []
monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None)
import lamu.base.compile_once
value = jax.jit(lambda x: x * x + 41.0)(3.0)
settings = [jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs]
print(json.dumps([float(value), len(hits), *settings]))
"""


def environment(**variables: str) -> dict[str, str]:
    """This process's variables without those of JAX's cache, and some others."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "LAMU_CACHE"))}
    return {**kept, "JAX_PLATFORMS": "cpu", **variables}


def use(code: str = "", flags: tuple[str, ...] = ("-W", "error"), **variables: str) -> list:
    command = [sys.executable, *flags, "-c", USER, code]
    done = subprocess.run(command, env=environment(**variables), capture_output=True, text=True, check=True)
    return [*json.loads(done.stdout), done.stderr]


def test_the_folder_is_the_users_own_unless_said_otherwise(tmp_path):
    folder = programs_folder({"XDG_CACHE_HOME": str(tmp_path)})
    assert folder is not None
    assert folder.parent == tmp_path / "lamu"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert str(programs_folder({"LAMU_CACHE": str(tmp_path / "other")})).startswith(str(tmp_path / "other"))
    assert programs_folder({"LAMU_CACHE": "off"}) is None
    (tmp_path / "file").write_text("")
    assert programs_folder({"LAMU_CACHE": str(tmp_path / "file")}) is None


def test_the_programs_used_longest_ago_go_first_and_drafts_that_were_left(tmp_path):
    for index in range(4):
        path = tmp_path / f"{index}-cache"
        path.write_bytes(b"x" * 10)
        os.utime(path, (index, index))
    (tmp_path / "folder").mkdir()
    forget_oldest(tmp_path, 40)
    assert len(list(tmp_path.iterdir())) == 5
    assert ProgramFolder(tmp_path).get("0") == b"x" * 10
    assert ProgramFolder(tmp_path).get("4") is None
    (tmp_path / ".draft-new").write_bytes(b"")
    (tmp_path / ".draft-old").write_bytes(b"")
    os.utime(tmp_path / ".draft-old", (1, 1))
    forget_oldest(tmp_path, 39)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".draft-new", "0-cache", "folder"]


def test_a_folder_that_fails_keeps_nothing_and_stops_nobody(tmp_path):
    folder = ProgramFolder(tmp_path / "gone")
    folder.put("key", b"value")
    assert folder.get("key") is None


def test_processes_that_write_at_once_and_are_killed_leave_whole_programs(tmp_path):
    most = 8_000_000
    for turn in range(4):
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(most)]
        writers = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) for _ in range(2)]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        time.sleep(0.05 + 0.07 * turn)
        for writer in writers:
            assert writer.poll() is None, "a writer ended by itself"
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()
        programs = [path for path in tmp_path.iterdir() if path.name.endswith("-cache")]
        assert programs
        for path in programs:
            assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name.removesuffix("-cache")
    # Each of two processes counts the folder again after a sixteenth of it.
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1.5 * most


def test_a_second_process_reads_what_the_first_has_compiled(tmp_path):
    (value, hits, folder, threshold, said), cache = use(LAMU_CACHE=str(tmp_path)), str(tmp_path)
    assert (value, hits, threshold) == (50.0, 0, 0.0)
    assert folder.startswith(cache)
    assert said == ""
    programs = sorted(os.listdir(folder))
    assert programs
    _, hits, _, _, said = use(LAMU_CACHE=cache)
    assert hits == len(programs)
    assert said == ""
    for name in programs:  # as a full disk or a cut of the power would leave them
        path = os.path.join(folder, name)
        with open(path, "rb+") as file:
            file.truncate(os.path.getsize(path) // 2)
    value, hits, _, _, said = use(flags=(), LAMU_CACHE=cache)
    assert (value, hits) == (50.0, 0)
    assert said.count("Error reading persistent compilation cache entry") == len(programs)
    assert use(LAMU_CACHE=cache)[1] == len(programs), "what could not be read was not written again"


def test_a_user_who_has_decided_is_left_alone(tmp_path):
    mine = str(tmp_path / "mine")
    lamus = {"LAMU_CACHE": str(tmp_path / "lamus")}
    assert use(f"jax.config.update('jax_compilation_cache_dir', {mine!r})", **lamus)[2:4] == [mine, 1.0]
    assert use(JAX_COMPILATION_CACHE_DIR=mine, **lamus)[2:4] == [mine, 1.0]
    assert use(JAX_ENABLE_COMPILATION_CACHE="0", **lamus)[2:4] == [None, 1.0]
    assert use(LAMU_CACHE="off")[2:4] == [None, 1.0]
    assert not (tmp_path / "lamus").exists()
    assert use(JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="2", **lamus)[3] == 2.0
    # One who decides later, before anything was compiled, has the last word.
    later = f"import lamu.base.compile_once; jax.config.update('jax_compilation_cache_dir', {mine!r})"
    assert use(later, **lamus)[2] == mine
    assert os.listdir(mine)


def test_seconds_of_compilation_in_two_threads_at_once_count_once(monkeypatch):
    spent, event = training.CompileTime(), "/jax/core/compile/backend_compile_duration"
    for end, duration in ((3.0, 1.0), (4.0, 3.0), (9.0, 2.0), (9.5, 1.0)):  # 1 to 4, with 2 to 3 inside; 7 to 9.5
        monkeypatch.setattr(training.time, "perf_counter", lambda end=end: end)
        spent.add(event, duration)
    spent.add("/jax/something/else", 5.0)
    assert (spent.seconds, spent.programs) == (5.5, 4)


@pytest.mark.stress
def test_a_second_command_compiles_less(tmp_path):
    settings = environment(XDG_CACHE_HOME=str(tmp_path / "cache"))

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
        done = subprocess.run(command, env=settings, cwd=tmp_path, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["metrics"]["seconds_compiling"]

    first, second = fit("first"), fit("second")
    assert second < 0.7 * first
