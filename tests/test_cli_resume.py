"""Ctrl-C at the command line: what was learned is kept, and --resume comes to the same end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import lamu as library
from tests.command_line import assert_refused
from tests.test_resume import assert_same

# Started in the background of a shell, as CI may be, a process ignores interruptions, and so do its children.
HEARD = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
RUN = f"{HEARD}; import sys; from lamu.cli import main; sys.exit(main(sys.argv[1:]))"


def started(folder: Path, *words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def interrupted(folder: Path, part: str, *words: str) -> str:
    """Runs a command and interrupts it once there is a checkpoint of a part; returns what it said on standard error."""
    process = started(folder, *words)
    until = time.monotonic() + 300
    while not list(folder.glob(f"run.unfinished/{part}/step-*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    return said


@pytest.mark.stress
@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("scale-0.5-fold-0", ("fit", "iris", "--folds", "2", "--epochs", "300", "--no-report")),
        pytest.param(
            "scale-0.5",
            ("fit", "iris", "--algorithm", "ivon", "--epochs", "400", "--temperature", "1", "--no-report"),
            marks=pytest.mark.stress,
        ),
    ],
)
def test_a_run_that_is_interrupted_goes_on_to_the_same_end(tmp_path, part, words):
    process = started(tmp_path, *words, "--out", "whole")
    said = interrupted(tmp_path, part, *words, "--out", "run")
    assert said == (
        "lamu: interrupted; what was learned is kept in 'run.unfinished', and the same command with --resume goes on\n"
    )
    assert not (tmp_path / "run").exists()
    for each in (started(tmp_path, *words, "--out", "run", "--resume"), process):
        _, errors = each.communicate(timeout=300)
        assert each.returncode == 0, errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "whole"]
    one, other = (pd.read_csv(tmp_path / name / "predictions.csv") for name in ("run", "whole"))
    pd.testing.assert_frame_equal(one, other, check_exact=True)


@pytest.mark.stress
def test_an_interrupted_run_is_neither_overwritten_nor_taken_for_another(lamu, tmp_path):
    (tmp_path / "run.unfinished").mkdir()
    words = ("fit", "iris", "--out", "run", "--algorithm", "ivon", "--epochs", "1", "--temperature", "1", "--no-report")
    assert_refused(lamu(*words), "'run.unfinished'", "--resume", "--force")
    assert_refused(lamu(*words, "--resume"), "no 'run.unfinished' of an interrupted run", "leave --resume out")
    assert lamu(*words, "--force").code == 0
    assert not (tmp_path / "run.unfinished").exists()


def test_another_command_does_not_go_on_from_it(lamu, tmp_path, monkeypatch):
    def stopped(*_, checkpoint, **__):
        (checkpoint / "last").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr("lamu.cli.learning.fit_prior_scale", stopped)
    words = ("fit", "iris", "--out", "run", "--algorithm", "ivon", "--temperature", "1", "--no-report")
    assert lamu(*words, "--epochs", "1").code == 130
    assert_refused(lamu(*words, "--epochs", "2", "--resume"), "whose epochs was 1 and not 2", "give the same")
    assert (tmp_path / "run.unfinished" / "last").exists()


class Stop(Exception):
    pass


@pytest.mark.sampled
@pytest.mark.parametrize("fitting", [library.fit_folds, library.fit_prior_scale, library.fit_temperature])
def test_fits_of_several_runs_go_on_from_the_run_that_was_cut_short(tmp_path, fitting):
    x, y = library.data.load("iris")
    network, likelihood = library.networks.MLP((4,)), library.likelihoods.Categorical(3)
    model = library.Model(network, likelihood, library.priors.LearnedNormal(0.5)).standardised(x, y)
    blocks = []

    def stop(*_):
        blocks.append(None)
        if len(blocks) == 5:
            raise Stop

    given = {"epochs": 70}
    if fitting is library.fit_folds:
        given["folds"] = 2
    algorithm = library.algorithms.ivon()
    whole = fitting(model, (x, y), algorithm, **given)
    kept = library.Checkpoints(tmp_path / "parts", every=0.0)
    with pytest.raises(Stop):
        fitting(model, (x, y), algorithm, checkpoint=kept, callbacks=[stop], **given)
    assert len(list((tmp_path / "parts").iterdir())) in (1, 2, 3)
    again = fitting(model, (x, y), algorithm, checkpoint=kept, resume=True, **given)
    fits = (lambda found: found.fits) if fitting is library.fit_folds else (lambda found: (found.fit,))
    for one, other in zip(fits(whole), fits(again), strict=True):
        assert_same(one, other)
