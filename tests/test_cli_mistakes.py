"""Bad input at the command line: one sentence that quotes the value and names the fix, code 2, and nothing written."""

from __future__ import annotations

import builtins
import errno
import io
import os
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lamu as library
from lamu.cli import learning, training
from lamu.cli.app import _in_options
from lamu.cli.output_dir import refuse_existing
from lamu.record import record
from tests.command_line import QUICK, assert_refused

FITS = []


def csv(path: Path, rows: int = 8, **columns) -> None:
    index = np.arange(rows)
    pd.DataFrame({"a": index, "b": 1.5 * index, "y": index % 2, **columns}).to_csv(path, index=False)


# What is wrong with the words


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["fit", "none.csv", "--target", "y"], ["there is no file 'none.csv'", "check the path"]),
        (["fit", "irs"], ["no bundled set 'irs'", "did you mean 'iris'?"]),
        (["fit", "iris", "--target", "targt"], ["no column 'targt'", "did you mean 'target'?"]),
        (["fit", "iris", "--algorithm", "ivonn"], ["no algorithm 'ivonn'", "did you mean 'ivon'?"]),
        (["fit", "iris", "--set", "learning_rat=0.1"], ["no setting 'learning_rat'", "did you mean 'learning_rate'?"]),
        (["fit", "iris", "--set", "learning_rate"], ["'learning_rate' has no value"]),
        (["fit", "iris", "--set", "learning_rate=fast"], ["is a number, not 'fast'"]),
        (["fit", "iris", "--set", "learning_rate=-1"], ["learning_rate", "-1"]),
        (["fit", "iris", "--epoch", "3"], ["No such option: --epoch", "--epochs"]),
        (["fit", "iris", "--task", "class"], ["no task 'class'", "did you mean 'classes'?"]),
        (["fit", "iris", "--task", "binary"], ["3 distinct values"]),
        (["fit", "iris", "--test-size", "1.5"], ["test_size is 1.5"]),
        (["fit", "iris", "--epochs", "-1"], ["--epochs is -1"]),
        (["fit", "iris", "--epochs", "many"], ["--epochs", "'many' was given"]),
        (["fit", "iris", "--batch-size", "0"], ["--batch-size is 0"]),
        (["fit", "iris", "--samples", "0"], ["--samples is 0"]),
        (["fit", "iris", "--seed", "-1"], ["--seed is -1"]),
        (["fit", "iris", "--out", "no/such/run"], ["there is no folder 'no/such'"]),
        (["fit", "table.csv"], ["name one of 'a', 'b', 'y'"]),
        (["fit"], ["Missing argument"]),
        (["fitt"], ["No such command 'fitt'", "'fit'"]),
        (["--nonsense"], ["--nonsense"]),
        (["verify", "no such check"], ["there is no check"]),
        (["compare", "iris", "--set", "forest.trees=3"], ["scikit-learn's 'forest'", "its defaults"]),
        (["compare", "iris", "--algorithms", "adam,ivonn"], ["no algorithm 'ivonn'", "did you mean 'ivon'?"]),
        (["compare", "iris", "--algorithms", "adam,"], ["--algorithms is 'adam,'"]),
        (["compare", "iris", "--algorithms", "adam,adam"], ["has 'adam' twice"]),
        (["compare", "irs", "--algorithms", "adam"], ["did you mean 'iris'?"]),
        (["compare", "iris", "--algorithms", "adam", "--splits", "0"], ["--splits is 0"]),
        (["compare", "iris", "--algorithms", "adam", "--set", "ivon.lr=1"], ["'ivon.lr=1' does not begin with an alg"]),
        (["compare", "iris", "--algorithms", "adam", "--set", "lr=1"], ["write --set adam.lr=1"]),
        (["compare", "iris", "--algorithms", "adam", "--set", "adam.learning_rate=-1"], ["-1"]),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_computed_or_written(lamu, tmp_path, monkeypatch, words, parts):
    csv(tmp_path / "table.csv")
    for module in ("learning.fit_prior_scale", "learning.fit_table", "comparing.run"):
        monkeypatch.setattr(f"lamu.cli.{module}", lambda *a, **k: pytest.fail("something was computed"))
    out = [] if words[0] != "fit" or "--out" in words else ["--out", "run"]
    assert_refused(lamu(*words, *out), *parts)
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


# What is wrong with the table


TABLES = {
    "a constant target": ({"y": 3.5}, ["'y' is 3.5 in every row", "choose another"]),
    "one class only": ({"y": "cat"}, ["'y' is 'cat' in every row", "choose another"]),
    "NaN": ({"b": [*range(7), ""]}, ["missing values in the column 'b' (1)", "--impute"]),
    "NaN in the target": ({"y": [*range(7), ""]}, ["'y'", "1"]),
    "infinity": ({"b": [*range(7), "inf"]}, ["has inf in row 7", "'b'", "replace it"]),
    "infinity in the target": ({"y": [*np.linspace(0.1, 0.7, 7), "-inf"]}, ["'y'", "infinite"]),
    "text in a numeric column": ({"b": [*range(29), "six"]}, ["'b'", "'six'"]),
    "text in a numeric target": ({"y": [*np.linspace(0.1, 0.9, 29), "six"]}, ["'y'", "'six'"]),
    "dates": ({"b": "2024-01-05"}, ["'b'", "'2024-01-05'"]),
    "a class of one row": ({"y": [*"ababab", "c", "a"]}, ["the class 'c' has one row", "leave that class out"]),
    "identifiers": ({"y": [f"person {row}" for row in range(40)]}, ["'y'", "'person 0'", "identifiers"]),
}


@pytest.mark.parametrize("wrong", TABLES)
def test_a_table_that_cannot_be_used(lamu, tmp_path, monkeypatch, wrong):
    columns, parts = TABLES[wrong]
    lengths = [len(values) for values in columns.values() if isinstance(values, list)]
    monkeypatch.setattr("lamu.cli.learning.fit_prior_scale", lambda *a, **k: pytest.fail("something was computed"))
    csv(tmp_path / "table.csv", *lengths, **columns)
    assert_refused(lamu("fit", "table.csv", "--target", "y", "--out", "run"), *parts)
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


FILES = {
    "empty.csv": (b"", ["'empty.csv' is empty"]),
    "header.csv": (b"a,y\n", ["0 rows"]),
    "short.csv": (b"a,y\n1,2\n2,3\n", ["has 2 rows of data", "at least"]),
    "ragged.csv": (b"a,y\n1,2\n1,2,3\n", ["'ragged.csv'"]),
    "latin.csv": (b"a,y\n\xe9,1\n" + b"b,2\n" * 6, ["UTF-8"]),
    "nothing.xlsx": (b"PK", ["'.xlsx'"]),
    "broken.npz": (b"PK\x03\x04", ["'broken.npz'"]),
    "broken.parquet": (b"PAR1", ["'broken.parquet'"]),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_read(lamu, tmp_path, name):
    content, parts = FILES[name]
    (tmp_path / name).write_bytes(content)
    assert_refused(lamu("fit", name, "--target", "y", "--out", "run"), *parts)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.stress
def test_arrays_that_do_not_match(lamu, tmp_path):
    np.savez(tmp_path / "lengths.npz", X=np.ones((8, 2)), y=np.arange(7))
    assert_refused(lamu("fit", "lengths.npz", "--out", "run"), "(8, 2)", "(7,)", "one target a row")
    labels = np.array([0, 1] * 4, np.uint64) + np.uint64(2**63)
    np.savez(tmp_path / "labels.npz", X=np.arange(16.0).reshape(8, 2), y=labels)
    ran = lamu("fit", "labels.npz", "--out", "run", *QUICK)
    assert ran.code == 0, ran.err  # large labels are names of classes, and none is ever an index
    assert pd.read_csv(tmp_path / "run" / "predictions.csv")["target"].max() == 2**63 + 1


def test_what_only_python_can_get_wrong():
    """Rows that do not match, labels too large for any index, a rate below zero."""
    x, y = np.ones((8, 2)), np.arange(8) % 3
    model = library.Model(library.networks.Linear(), library.likelihoods.Categorical(3))
    with pytest.raises(ValueError, match="x has 8 rows and y has 7"):
        library.fit(model, (x, y[:7]), library.algorithms.adam(1e-2), epochs=1)
    with pytest.raises(ValueError, match="18446744073709551615"):
        library.fit(model, (x, np.full(8, 2**64 - 1, np.uint64)), library.algorithms.adam(1e-2), epochs=1)
    with pytest.raises(ValueError, match="-1"):
        library.algorithms.adam(-1.0)


@pytest.mark.parametrize("likelihood", ["Gaussian", "Bernoulli"])
def test_a_network_of_another_width_than_the_likelihoods(likelihood):
    @record
    class TwoOutputs(library.networks.Linear):
        def init(self, key, x, outputs):
            return super().init(key, x, 2)

    model = library.Model(TwoOutputs(), getattr(library.likelihoods, likelihood)())
    with pytest.raises(ValueError, match=r"2.*1|1.*2"):
        library.fit(model, (np.ones((8, 2)), np.arange(8) % 2), library.algorithms.adam(1e-2), epochs=1)


# What is wrong with the place


@pytest.fixture
def fit_once(monkeypatch):
    """The first fit stands in for all others: what is tested is what becomes of its files."""
    real, done = learning.fit_prior_scale, FITS

    def fit(*arguments, **options):
        if not done:
            done.append(real(*arguments, **options))
        return done[0]

    monkeypatch.setattr(learning, "fit_prior_scale", fit)


def test_an_existing_folder_is_refused_before_any_work(lamu, tmp_path):
    (tmp_path / "run").mkdir()
    assert_refused(lamu("fit", "no file at all", "--out", "run"), "'run' exists already", "choose another --out")
    assert_refused(lamu("fit", "no file at all", "--out", "."), "exists already")
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_one_sentence(lamu, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o555)
    assert_refused(lamu("fit", "iris", "--out", "closed/run", *QUICK), "cannot be written to")


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_read_only_or_full_folder_is_found_before_the_fit(lamu, tmp_path, monkeypatch, number):
    make = tempfile.mkdtemp

    def refuse(suffix=None, prefix=None, dir=None):
        if dir is not None and Path(dir).resolve() == tmp_path:
            raise OSError(number, os.strerror(number), str(dir))
        return make(suffix, prefix, dir)

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    monkeypatch.setattr("lamu.cli.learning.fit_prior_scale", lambda *a, **k: pytest.fail("something was computed"))
    ran = lamu("fit", "iris", "--out", "run")
    assert ran.err.startswith("lamu: the folder '.' cannot be written to (")
    assert os.strerror(number).lower() in ran.err
    assert_refused(ran, "choose another --out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "file",
    [
        "posterior",
        "calibration.png",
        *(pytest.param(name, marks=pytest.mark.stress) for name in ("metrics.json", "config.json", "predictions.csv")),
    ],
)
@pytest.mark.filterwarnings("ignore::lamu.running.Unsaved")  # of the copy, which has no room either
def test_a_disk_that_fills_up_costs_no_training(lamu, tmp_path, monkeypatch, fit_once, file):
    """Every file of a run in turn is the first for which there is no room: no part of it stays but what was learned."""
    fill = lambda *a, **k: (_ for _ in ()).throw(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    def full(opener):
        def open_or_fail(path, mode="r", *arguments, **options):
            inside = isinstance(path, str | os.PathLike) and f"{os.sep}run{os.sep}" in f"{path}{os.sep}"  # or a number
            no_room = inside and Path(path).name == file and set(mode) & set("wax")
            return fill() if no_room else opener(path, mode, *arguments, **options)

        return open_or_fail

    if file == "posterior":
        monkeypatch.setattr("lamu.posterior.Posterior.save", fill)  # checkpoints say so themselves
    else:
        monkeypatch.setattr(builtins, "open", full(builtins.open))
        monkeypatch.setattr(io, "open", full(io.open))
    ran = lamu("fit", "iris", "--out", "run", *QUICK, "--task", "regression")
    assert ran.code == 2, ran.out
    assert ran.err.count("\n") == 1
    assert "'run' could not be written (no space left on device; free some space or choose another --out)" in ran.err
    assert "is kept in 'run.unfinished', and the same command with --resume goes on" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["run.unfinished"]
    assert (tmp_path / "run.unfinished" / "posterior").is_dir() == (file != "posterior")


@pytest.mark.stress
def test_a_file_that_may_not_grow_costs_no_training(lamu, tmp_path, monkeypatch, fit_once):
    """The operating system itself refuses, by a limit on the size of files."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    save = training.draft

    def limited(*arguments):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        return save(*arguments)

    monkeypatch.setattr(training, "draft", limited)
    try:
        ran = lamu("fit", "iris", "--out", "run", *QUICK, "--task", "regression")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert ran.code == 2, ran.out
    assert ran.err == (
        "lamu: 'run' could not be written (file too large), and no part of it was; what was learned, the posterior in "
        "'run.unfinished/posterior', is kept in 'run.unfinished', and the same command with --resume goes on\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["run.unfinished"]


def test_the_names_that_have_none_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (".", "..", "/"):
        with pytest.raises(FileExistsError, match="exists already"):
            refuse_existing(Path(name))


def test_a_call_of_an_algorithm_is_an_option_there():
    told = _in_options("take ivon(), lamu.nuts() or describe(); max_memory='1GB' is too little")
    assert told == "take --algorithm ivon, lamu.nuts() or describe(); --max-memory '1GB' is too little"
