"""A safety copy that cannot be written costs no fit, and nothing that fails after the training costs the training."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import lamu as library
from lamu import store
from lamu.cli import output_dir
from lamu.cli import output_dir as run_lock
from lamu.cli.output_dir import Interrupted, RunLock, draft, lock_holder, unfinished
from lamu.protocol import Traits
from lamu.running import Best, Checkpoints, History, Unsaved
from lamu.running.history import DrawsOnDisk
from lamu.running.resume import Resumption
from lamu.tabular.training import Stretches
from tests.command_line import assert_refused

FAILURES = {
    "full": (errno.ENOSPC, "No space left on device"),
    "denied": (errno.EACCES, "Permission denied"),
    "read-only": (errno.EROFS, "Read-only file system"),
    "quota": (errno.EDQUOT, "Disk quota exceeded"),
    "gone": (errno.ENOENT, "No such file or directory"),
}
X = np.linspace(-1, 1, 12)[:, None]
MODEL = library.Model(library.networks.Linear(), library.likelihoods.Gaussian(0.5))
ADAM = library.algorithms.adam(1e-2)


def raising(failure: str) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(*FAILURES[failure])

    return fail


# In Python.


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("function", ["mkdtemp", "rename", "fsync", "mkdir"])
def test_a_checkpoint_that_cannot_be_written_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str, function: str
) -> None:
    keeper = Checkpoints(tmp_path / "run")
    keeper.save(1, {"x": jnp.ones(3)})
    module = "tempfile" if function == "mkdtemp" else "os" if function != "mkdir" else "pathlib.Path"
    with monkeypatch.context() as patch:
        patch.setattr(f"{module}.{function}", raising(failure))
        with pytest.warns(
            Unsaved, match=r"of step 2 could not be written .*; the run goes on.*, and that of step 1 stays"
        ):
            assert not keeper.try_to_save(2, {"x": jnp.ones(3)})
        assert not keeper.try_to_save(3, {"x": jnp.ones(3)}, quietly=True)
    assert keeper.steps() == [1]
    assert keeper.restore(1, {"x": jnp.zeros(3)})[0]["x"].tolist() == [1, 1, 1]
    assert keeper.try_to_save(4, {"x": jnp.ones(3)})
    assert keeper.steps() == [4]


def test_a_fit_ends_as_without_checkpoints_where_none_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every checkpoint fails, the last one among them; there is one warning, and the same posterior."""
    whole = library.fit(MODEL, (X, X[:, 0]), ADAM, steps=150)
    monkeypatch.setattr(store, "write", raising("full"))
    with pytest.warns(Unsaved) as said:
        found = library.fit(MODEL, (X, X[:, 0]), ADAM, steps=150, checkpoint=Checkpoints(tmp_path / "run", every=0.0))
    assert len([each for each in said if each.category is Unsaved]) == 1
    np.testing.assert_array_equal(found.posterior.predict(X).mean, whole.posterior.predict(X).mean)


def test_a_folder_that_is_removed_during_a_run_costs_nothing(tmp_path: Path) -> None:
    def remove(*_: Any) -> None:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)

    keeper = Checkpoints(tmp_path / "run", every=0.0)
    library.fit(MODEL, (X, X[:, 0]), ADAM, steps=150, checkpoint=keeper, callbacks=[remove])


def test_what_keeps_a_run_warns_once_until_it_can_write_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resumption = Resumption(Checkpoints(tmp_path / "loop", every=0.0), {})
    kept = Stretches(Checkpoints(tmp_path / "table", every=0.0), {})

    def of_a_loop(step: int) -> None:
        history = History(Traits())
        history.steps = step
        resumption.keep({"w": 1.0}, history, Best(None))

    def of_a_table(step: int) -> None:
        kept.keep(step, {"w": 1.0}, [{"w": 1.0}])

    for keep in (of_a_loop, of_a_table):
        with monkeypatch.context() as patch:
            patch.setattr(store, "write", raising("full"))
            with pytest.warns(Unsaved, match=r"of step 1 .*No space left"):
                keep(1)
            keep(2)
        keep(3)
        with monkeypatch.context() as patch:
            patch.setattr(store, "write", raising("full"))
            with pytest.warns(Unsaved, match=r"of step 4 .* and that of step 3 stays"):
                keep(4)


def test_draws_on_disk_have_their_room_before_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = DrawsOnDisk({"w": np.zeros(1000)}, total=50, folder=tmp_path / "draws")
    kept.reserve()
    file = tmp_path / "draws" / "w.npy"
    assert file.stat().st_blocks * 512 >= 50 * 1000 * 8
    file.unlink()
    monkeypatch.setattr(os, "posix_fallocate", raising("full"))
    words = r"the draws take 400\.0 kB in .*\(no space left on device\); make room, ask for fewer draws"
    with pytest.raises(ValueError, match=words):
        DrawsOnDisk({"w": np.zeros(1000)}, total=50, folder=tmp_path / "draws").reserve()
    assert not file.exists()


# At the command line.


@contextlib.contextmanager
def begun(out: Path, **options: Any) -> Iterator[Path]:
    with unfinished(out, {"seed": 0}, **{"resume": False, "force": False, **options}) as place:
        yield place


def fails_once_something_is_kept(out: Path, error: BaseException) -> None:
    with begun(out, force=True) as place:
        Checkpoints(place / "last").save(1, {"x": 1.0})
        with draft(out) as folder:
            folder.mkdir()
            raise error


def test_what_fails_after_a_checkpoint_leaves_it_and_says_how_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    for error in (OSError("a full disk"), ValueError("a curvature that is not finite"), ZeroDivisionError("ours")):
        with pytest.raises(type(error)) as raised:
            fails_once_something_is_kept(out, error)
        (note,) = raised.value.__notes__
        assert note == f"what was learned is kept in '{out}.unfinished', and the same command with --resume goes on"
        assert Checkpoints(f"{out}.unfinished/last").latest() == 1
        del error.__notes__
    with begun(out, resume=True) as place:
        assert Checkpoints(place / "last").latest() == 1
    assert not list(tmp_path.iterdir())


def test_where_nothing_was_learned_nothing_is_left(tmp_path: Path) -> None:
    for error in (ValueError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised, begun(tmp_path / "run"):
            raise error
        assert not hasattr(raised.value, "__notes__")
        assert not list(tmp_path.iterdir())


def test_an_interruption_while_the_result_is_saved_keeps_what_was_learned(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(Interrupted, match="--resume goes on"):
        fails_once_something_is_kept(out, KeyboardInterrupt())
    assert [path.name for path in tmp_path.iterdir()] == ["run.unfinished"]


def test_a_folder_of_checkpoints_that_is_removed_meanwhile_is_no_traceback(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as place:
        shutil.rmtree(place)

    def fail() -> None:
        with begun(tmp_path / "run") as place:
            shutil.rmtree(place)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("function", ["os.rename", "tempfile.mkdtemp", "pathlib.Path.write_text"])
def test_what_cannot_begin_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str, function: str
) -> None:
    monkeypatch.setattr(function, raising(failure))
    with pytest.raises(OSError, match=r"could not be made|cannot be written to") as raised, begun(tmp_path / "run"):
        raise AssertionError("it began")
    assert FAILURES[failure][1].lower() in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_a_result_that_cannot_be_replaced_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.json").write_text(json.dumps({"format": 2, "algorithm": "adam", "target": "y"}))
    monkeypatch.setattr("lamu.base.drafts.exchange", raising("full"))

    def replace() -> None:
        with draft(out, force=True) as folder:
            folder.mkdir()

    with pytest.raises(OSError, match=r"could not be written \(no space left on device; free some space"):
        replace()
    assert json.loads((out / "config.json").read_text())["algorithm"] == "adam"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


WORDS = ("fit", "iris", "--out", "run", "--algorithm", "laplace", "--temperature", "1", "--epochs", "1", "--no-report")
STAGES = {
    "scores": "lamu.cli.training.score_rows",
    "picture": "lamu.cli.training.picture",
    "config": "lamu.cli.training.package_versions",
    "metrics": "lamu.cli.training.dump",
    "predictions": "lamu.cli.training.append_csv",
}


@pytest.fixture(scope="module")
def learned() -> Any:
    from lamu.cli.learning import Learned

    x, y = library.data.load("iris")
    model = library.Model(library.networks.Linear(), library.likelihoods.Categorical(3))
    return Learned(posterior=library.fit(model, (x, y), library.algorithms.laplace(), steps=2).posterior)


@pytest.mark.stress
def test_what_fails_after_the_training_does_not_cost_it(
    lamu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learned: Any
) -> None:
    """At each stage; the training is a stub, whose posterior is kept before anything else is done."""
    monkeypatch.setattr("lamu.cli.learning.Runs.learn", lambda *_: learned)
    for stage, function in STAGES.items():
        with monkeypatch.context() as patch:
            patch.setattr(function, raising("full"))
            ran = lamu(*WORDS, "--json", "--force")
        assert ran.code in (1, 2), stage
        assert "Traceback" not in ran.err, stage
        assert ran.err.count("\n") == 1, stage
        said = "what was learned, the posterior in 'run.unfinished/posterior', is kept in 'run.unfinished'"
        assert f"{said}, and the same command with --resume goes on" in ran.err, stage
        kept = library.load(tmp_path / "run.unfinished" / "posterior")
        np.testing.assert_array_equal(
            kept.belief.factors["network"].precision.matrix,
            learned.posterior.belief.factors["network"].precision.matrix,
        )
        assert not (tmp_path / "run").exists(), stage
    assert lamu(*WORDS, "--json", "--resume").code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_posterior_that_cannot_be_kept_meanwhile_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learned: Any
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(store, "write", raising("full"))
        with pytest.warns(Unsaved, match="could not be kept .*; the run goes on without the copy"):
            output_dir.keep_posterior(learned.posterior, tmp_path)
    output_dir.keep_posterior(learned.posterior, tmp_path)
    output_dir.keep_posterior(learned.posterior, tmp_path)  # of the command that was cut short
    assert (tmp_path / "posterior").is_dir()


# Two processes.


HOLD = """
import pathlib, sys
from lamu.cli.output_dir import RunLock
lock = RunLock(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_run_that_another_process_writes_is_neither_resumed_nor_replaced(lamu: Any, tmp_path: Path) -> None:
    place = tmp_path / "run.unfinished"
    place.mkdir()
    (place / "asked.json").write_text("{}")
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    for option in ((), ("--force",), ("--resume",)):
        said = f"another run writes 'run': process {process.pid} since "
        assert_refused(lamu(*WORDS, *option), said, "wait until it ends, or choose another --out")
    process.kill()
    process.communicate()
    assert (place / run_lock.NAME).read_text()  # it could not say that it ended
    assert_refused(lamu(*WORDS), "holds an interrupted run; go on from it with --resume")
    with begun(tmp_path / "run", force=True):
        pass
    assert not list(tmp_path.iterdir())


def test_a_folder_is_locked_from_its_first_moment_to_its_last(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with begun(out) as place:
        for options in ({}, {"force": True}, {"resume": True}):
            with (
                pytest.raises(ValueError, match=f"another run writes .*: process {os.getpid()}"),
                begun(out, **options),
            ):
                raise AssertionError("two at once")
        assert (place / "asked.json").is_file()
    with begun(out):
        pass


@pytest.mark.parametrize(
    ("change", "alive"),
    [
        ({}, True),
        ({"process": 2**22 + 1}, False),  # none of this number
        ({"born": "1"}, False),  # another one has its number since
        ({"born": None}, True),
        ({"host": "elsewhere"}, True),  # of which nothing is known
        ({"process": "x"}, False),
    ],
    ids=str,
)
def test_a_lock_of_a_process_that_ended_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], alive: bool
) -> None:
    """Where the file system has no locks, the names in the file decide."""
    monkeypatch.setattr(run_lock, "_try_to_lock", lambda file: None)
    lock = RunLock(tmp_path)
    path = tmp_path / run_lock.NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert (lock_holder(tmp_path) is not None) == alive
    lock.release()
    assert lock_holder(tmp_path) is None


def test_where_the_system_has_locks_it_is_believed(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    path = tmp_path / run_lock.NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "process": 2**22 + 1}))
    assert lock_holder(tmp_path) is not None
    lock.release()
    path.write_text(json.dumps({"process": 1, "host": "elsewhere", "since": 0.0}))
    assert lock_holder(tmp_path) is None
