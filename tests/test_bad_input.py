"""Mistakes that ended in a traceback or in another library's words: each is one sentence that says what to do."""

from __future__ import annotations

import gzip
import hashlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys

import jax
import numpy as np
import pandas as pd
import pytest

import lamu
from lamu.base import drafts
from lamu.cli.output_dir import draft
from lamu.data import table
from lamu.data.stream import read as read_rows
from lamu.data.wording import DataError
from lamu.predictives.interface import _probability
from lamu.running.compiled_steps import whole_seed
from lamu.store import StoreError
from tests.command_line import assert_refused, runner
from tests.for_each import for_each

X, Y = np.eye(4), np.array([0, 1, 0, 1])


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    return runner(capsys, tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def fitted():
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
    return lamu.fit(model, (X, Y), lamu.algorithms.adam(), epochs=1)


@pytest.mark.parametrize("byte", [-6, 0.5, 12, 0], ids=["checksum", "middle", "header", "magic"])
def test_a_compressed_file_that_is_damaged_inside(tmp_path, byte):
    content = bytearray(gzip.compress("".join(["a,y\n", *(f"{i},{i * i % 97}.5\n" for i in range(2000))]).encode()))
    content[int(len(content) * byte) if isinstance(byte, float) else byte] ^= 0xFF
    (tmp_path / "table.csv.gz").write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"is a damaged compressed file .*; copy it again"):
        table.read(tmp_path / "table.csv.gz", "y")


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "iris", "--out", "{}"),
        ("fit", "{}.csv", "--out", "run"),
        ("predict", "{}", "iris"),
        ("predict", "run", "iris", "--out", "{}.csv"),
        ("compare", "iris", "--algorithms", "adam", "--report", "{}.html"),
        ("fit", "iris", "--out", "run", "--config", "{}.toml"),
    ],
    ids=" ".join,
)
def test_a_value_too_long_for_a_file_name(run, words):
    ran = run(*(word.format("a" * 300) for word in words))
    assert_refused(ran, "too long")
    assert len(ran.err) < 200


def altered(folder, copy, index: bool, archive: bool):
    """A copy of a saved posterior that lacks its last array, its checksums made to fit."""
    shutil.copytree(folder, copy)
    if index:
        body = json.loads((copy / "content.json").read_text())
        (copy / "content.json").write_text(json.dumps({**body, "arrays": body["arrays"][:-1]}))
    if archive:
        with np.load(copy / "arrays.npz") as whole:
            kept = {name: whole[name] for name in whole.files[:-1]}
        np.savez(copy / "arrays.npz", **kept)
    sums = {name: hashlib.sha256((copy / name).read_bytes()).hexdigest() for name in ("content.json", "arrays.npz")}
    (copy / "checksums.json").write_text(json.dumps(sums))
    return copy


@pytest.mark.parametrize(("index", "archive"), [(True, False), (False, True), (True, True)])
def test_a_saved_posterior_that_lacks_an_array(fitted, tmp_path, index, archive):
    folder = fitted.posterior.save(tmp_path / "whole")
    with pytest.raises(StoreError, match="was altered after it was saved"):
        lamu.load(altered(folder, tmp_path / "copy", index, archive))


def test_a_path_that_cannot_be_saved_to(fitted, tmp_path, monkeypatch):
    for path in (None, 3):
        with pytest.raises(TypeError, match=f"the path is {path}; give the name of a folder"):
            _checked(path)
    with pytest.raises(ValueError, match="has 300 characters, too many for a name"):
        fitted.posterior.save(tmp_path / ("a" * 300))

    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    with pytest.raises(PermissionError, match=r"the folder .* cannot be written to \(permission denied\); choose"):
        fitted.posterior.save(tmp_path / "run")


def _checked(path):
    from lamu.store import _path  # `save` itself is checked by types in tests

    return _path(path)


@for_each("network", [lambda x: x, lamu.networks.MLP, object(), None])
def test_a_network_that_is_none(network):
    with pytest.raises(TypeError, match=r"the network is .*; give"):
        lamu.Model(network, lamu.likelihoods.Gaussian())


@for_each("classes", [2.5, "3", True, None])
def test_a_number_of_classes_that_is_none(classes):
    likelihood = object.__new__(lamu.likelihoods.Categorical)  # its constructor is checked by types in tests
    object.__setattr__(likelihood, "classes", classes)
    with pytest.raises(TypeError, match=r"Categorical\(.*\) is not a number of classes; give a whole number"):
        likelihood.__post_init__()


@for_each("seed", [1.5, "a", None, 2**32, 2**70, -1])
def test_a_seed_that_jax_would_not_take_as_it_is(seed):
    with pytest.raises((TypeError, ValueError), match="4294967295"):
        whole_seed(seed)


def test_the_largest_seed_is_taken_by_every_fold():
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
    found = lamu.fit_folds(model, (X, Y), lamu.algorithms.adam(), folds=2, epochs=1, seed=2**32 - 1)
    assert len(found.fits) == 2


@pytest.mark.parametrize("learn", [lamu.fit, lamu.fit_prior_scale], ids=lambda learn: learn.__name__)
def test_what_is_no_model_or_no_algorithm(learn):
    learn = inspect.unwrap(learn)  # without the tests' own check of types, which users do not have
    x, y = np.ones((4, 2)), np.arange(4) % 2
    network, likelihood = lamu.networks.Linear(), lamu.likelihoods.Bernoulli()
    model = lamu.Model(network, likelihood)
    with pytest.raises(TypeError, match="algorithm='ivon' is not an algorithm"):
        learn(model, (x, y), "ivon", epochs=1)
    with pytest.raises(TypeError, match=re.escape("algorithm=ivon is a function; call it, ivon(), for an algorithm")):
        learn(model, (x, y), lamu.algorithms.ivon, epochs=1)
    with pytest.raises(TypeError, match=r"model=Linear.* is not a model; give lamu.Model\(network, likelihood\)"):
        learn(network, (x, y), lamu.algorithms.ivon(), epochs=1)


def test_strings_are_no_data():
    with pytest.raises(TypeError, match=r"the data are the text 'iris'; give arrays, for instance lamu.data.load"):
        read_rows("iris")
    fixes = (r"pandas.get_dummies\(x\)", r"names, y = np.unique\(y, return_inverse=True\)")
    for data, fix in zip(((np.array([["a"]] * 4), Y), (X, np.array(["a", "b"] * 2))), fixes, strict=True):
        with pytest.raises(TypeError, match=f"not of real numbers; encode its words, as 'a', for instance {fix}"):
            read_rows(data)
    with pytest.raises(TypeError, match="dtype complex128, which is not of real numbers; convert it"):
        read_rows((X, 1j * Y))


def test_frames_of_numbers_and_truth_values_are_read_as_numbers():
    """The advice to take `pandas.get_dummies` led to columns of truth values, and these to the next refusal."""
    frame = pd.DataFrame({"a": [0.5, 1.5, 2.5, 3.5], "word": ["u", "v"] * 2})
    with pytest.raises(TypeError, match=r"encode its words, as 'u', for instance pandas.get_dummies\(x\)"):
        read_rows((frame, Y))
    coded = pd.get_dummies(frame)
    whole = coded.assign(n=pd.array([1, 2, 3, 4], dtype="Int64"))
    for given in (coded, coded.to_numpy(), whole):
        expected = np.asarray(given, np.float64)
        model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian())
        np.testing.assert_array_equal(model.rows((given, Y)).x, expected)
        np.testing.assert_array_equal(model.inputs(given), expected)
        np.testing.assert_allclose(model.standardised(given, Y).network.shift, expected.mean(axis=0))
    counted = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Binomial())
    assert counted.standardised(coded, {"value": Y, "trials": Y + 1}).network.shift.shape == (3,)
    with pytest.raises(ValueError, match="x is NaN or infinite in float64 in 1 place, first nan in row 1, column 3"):
        read_rows((whole.assign(n=pd.array([1, None, 3, 4], dtype="Int64")), Y))
    days = frame.assign(word=pd.to_timedelta(np.arange(4), unit="D"))
    with pytest.raises(TypeError, match=r"convert its values such as Timedelta\('0 days 00:00:00'\) to numbers"):
        read_rows((days, Y))


def test_a_third_array_is_told_from_batches():
    with pytest.raises(TypeError, match=r"data is a tuple of 3 arrays; give \(x, y\), .*\"weight\": weight"):
        read_rows((X, Y, np.ones(4)))


def test_targets_are_finite_before_they_are_scaled():
    with pytest.raises(ValueError, match=r"y is NaN or infinite in float64 in 1 place, first inf in row 2"):
        lamu.regression(X, np.array([0.0, 1.0, np.inf, 2.0]))


def test_a_quantile_has_one_probability():
    with pytest.raises(TypeError, match=r"\[0.1, 0.5\] is not a number; ask for one probability at a time"):
        _probability([0.1, 0.5])


@pytest.mark.parametrize("level", [1 - 1e-8, 1e-50])
def test_a_probability_that_rounds_to_one_is_refused(level):
    """A quantile at 1 - 1e-8 lay 28 deviations from the mean in single precision, in silence, and not 5.6."""
    with (
        jax.enable_x64(False),
        pytest.raises(ValueError, match=rf"{level!r} rounds to [01].0 in float32; use jax.enable_x64"),
    ):
        _probability(level)
    with jax.enable_x64(True):
        assert _probability(level) == level


@pytest.mark.parametrize("task", ["regression", "classes"])
def test_targets_are_one_for_each_prediction_and_known_classes(task, monkeypatch):
    """A column of targets was broadcast to `[N, N]` and summed, and a label that is no class picked another one."""
    x, y = np.arange(12.0)[:, None], np.arange(12) % 3
    if task == "regression":
        posterior = lamu.regression(x, y * 1.0)
    else:
        model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Categorical(3))
        posterior = lamu.fit(model, (x, y), lamu.algorithms.adam(), steps=1).posterior
    right = posterior.predict(x[:4]).log_prob(y[:4])
    for most in (None, 1):  # in memory, and in chunks of one row
        if most is not None:
            monkeypatch.setattr(lamu.memory, "budget", lambda: 1)
        pred = posterior.predict(x[:4])
        assert bool(pred.deferred) is (most is not None)
        for same in (y[:4, None], y[:4].tolist()):
            np.testing.assert_allclose(pred.log_prob(same), right, rtol=1e-6)
        with pytest.raises(
            ValueError, match=r"the targets have the shape \(3,\); give one for each prediction, .*\(4,"
        ):
            pred.log_prob(y[:3])
        for wrong in (7, -1, np.nan) if task == "classes" else ():
            with pytest.raises(ValueError, match=f"the target in row 0 is {wrong}, and log_prob takes whole numbers"):
                pred.log_prob(np.full(4, wrong))
        assert task == "classes" or pred.cdf(y[:4, None]).shape == (4,)


def test_what_other_libraries_call_otherwise_is_pointed_to(fitted):
    for owner, names in (
        (fitted, ("predict", "predict_proba", "sample", "save", "score")),
        (fitted.posterior, ("predict_proba", "predict_interval", "fit", "score", "load")),
        (fitted.posterior.model, ("fit", "predict", "predict_proba", "sample")),
    ):
        for name in names:
            with pytest.raises(AttributeError, match=rf"has no '{name}'; write "):
                getattr(owner, name)
        with pytest.raises(AttributeError, match="object has no attribute 'nonsense'"):
            _ = owner.nonsense
    with pytest.raises(AttributeError, match="holds no draws; use sample"):  # a property's own error
        _ = fitted.posterior.samples
    assert jax.tree.leaves(fitted.posterior)


def test_a_killed_run_leaves_nothing_that_the_next_one_keeps(tmp_path):
    """A process that is killed while it writes, then another that writes beside."""
    script = (
        "import os, pathlib, signal\nfrom lamu.cli.output_dir import draft\n"
        f"with draft(pathlib.Path({str(tmp_path)!r}) / 'run') as path:\n"
        "    path.mkdir()\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=120).returncode == -9
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".run.")
    others = [f".run.{drafts._machine()}-{os.getpid()}.abc", f".run.00000000-{2**22}.abc", ".run.config", ".runs"]
    for name in others:  # of a process that runs, of another machine, and what is no draft
        (tmp_path / name).mkdir()
    with draft(tmp_path / "run") as path:
        path.write_text("whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, "run"])


def separated(path, separator: str):
    rows = [("a", "b c", "y"), *((f"{i}", f"{i % 3}", f"{i % 7}.5") for i in range(30))]
    path.write_text("".join(separator.join(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_usual_separators_are_found(tmp_path, separator):
    assert table.read(separated(tmp_path / "t.csv", separator), "y").encoding.columns == ("a", "b c")


@pytest.mark.parametrize("separator", [":", "^", "~"])
def test_other_separators_are_named_and_read_when_told_so(run, tmp_path, separator):
    separated(tmp_path / "t.csv", separator)
    refused = run("fit", "t.csv", "--target", "y", "--out", "run")
    assert_refused(refused, f"one column 'a{separator}b c{separator}y'", f"--separator {separator!r}")
    found = table.read("t.csv", "y", separator=separator)
    assert found.encoding.columns == ("a", "b c")
    assert table.match("t.csv", found.encoding, separator).x.tolist() == found.x.tolist()


def test_a_separator_is_one_character(run, tmp_path):
    separated(tmp_path / "t.csv", "\t")
    assert table.read("t.csv", "y", separator="tab").encoding.columns == ("a", "b c")
    for given in ("", "ab", "x", "1", '"'):
        words = ("fit", "t.csv", "--target", "y", "--out", "run", "--separator", given)
        assert_refused(run(*words), f"the separator is {given!r}; give one character")


def test_one_column_with_a_blank_in_its_name_is_a_column(tmp_path):
    (tmp_path / "t.csv").write_text("petal width\n" + "".join(f"{i}.5\n" for i in range(9)))
    encoding = lamu.data.Encoding("y", "regression", (), ("petal width",))
    assert table.match(tmp_path / "t.csv", encoding).x.shape == (9, 1)


@for_each(
    "make",
    [
        lambda: lamu.geometry.LogNormal(scale=np.nan),
        lambda: lamu.mcmc.hmc(path_length=np.nan),
        lambda: lamu.update_rules.ByFanIn(radius=np.nan),
        lambda: lamu.expectations.Relaxed(floor=np.nan),
    ],
)
def test_nan_is_refused_where_a_positive_number_is_asked(make):
    with pytest.raises(ValueError, match="nan"):
        make()


@pytest.mark.parametrize("name", ["x", "y"])
def test_numbers_that_are_strings_are_converted_and_no_words(name: str) -> None:
    """The advice was to code each number as a word of its own: as a column of `get_dummies`, or by its rank."""
    rows = {"x": np.ones((4, 1)), "y": np.ones(4)}
    rows[name] = rows[name].astype(str)
    with pytest.raises(TypeError, match=rf"its strings, such as '1.0', to numbers: {name} = {name}\.astype\(float\)"):
        read_rows((rows["x"], rows["y"]))
