"""A folder is written whole or not at all, and read back only if every byte is what was written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import store

FILES = ("content.json", "arrays.npz", "checksums.json")
X = np.random.default_rng(0).normal(size=(6, 2))
MODEL = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5))


@pytest.fixture(scope="module")
def posterior() -> lamu.Posterior:
    return lamu.fit(MODEL, (X, X[:, 0]), lamu.algorithms.conjugate()).posterior


def test_what_is_written_is_read(tmp_path: Path) -> None:
    arrays = {"x": np.arange(3.0), "a/b.c": np.array([[True]]), "empty": np.zeros((0, 2), np.float32)}
    content = {"numbers": [1, 2.5, None], "text": "λ", "inf": float("inf")}
    found, back = store.read(store.write(tmp_path / "run", content, arrays))
    assert found == content
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(FileExistsError, match="not overwritten"):
        store.write(tmp_path / "run", {}, {})
    assert (tmp_path / "run").read_text() == "mine"
    with pytest.raises(FileNotFoundError, match="make it first"):
        store.write(tmp_path / "no" / "run", {}, {})


def test_nothing_half_written_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.write(tmp_path / "run", {}, {"x": np.zeros(2)})
    assert not list(tmp_path.iterdir())


def test_objects_are_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Python objects"):
        store.write(tmp_path / "run", {}, {"x": np.array([print], dtype=object)})
    with pytest.raises(TypeError):
        store.write(tmp_path / "run", {"x": print}, {})
    assert not list(tmp_path.iterdir())


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [flip, truncate, empty, Path.unlink], ids=["flip", "truncate", "empty", "remove"])
@pytest.mark.parametrize("name", FILES)
def test_a_harmed_folder_is_refused(
    tmp_path: Path, posterior: lamu.Posterior, harm: Callable[[Path], None], name: str
) -> None:
    harm(posterior.save(tmp_path / "run") / name)
    with pytest.raises(store.StoreError, match=r"altered|missing"):
        lamu.load(tmp_path / "run")


def test_a_missing_or_foreign_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(store.StoreError, match="no folder"):
        lamu.load(tmp_path / "nowhere")
    (tmp_path / "foreign").mkdir()
    with pytest.raises(store.StoreError, match="is not a folder that Lamu saved"):
        lamu.load(tmp_path / "foreign")
    with pytest.raises(store.StoreError, match="holds no posterior"):
        lamu.load(store.write(tmp_path / "other", {"record": "model.Model"}, {}))
    with pytest.raises(store.StoreError, match="holds no posterior"):
        lamu.load(store.write(tmp_path / "list", [1, 2], {}))


def test_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "FORMAT", "lamu-store-0")
    path = store.write(tmp_path / "run", {}, {})
    monkeypatch.undo()
    with pytest.raises(store.StoreError, match="lamu-store-0"):
        store.read(path)


def test_a_folder_names_only_types_that_are_known(tmp_path: Path, posterior: lamu.Posterior) -> None:
    content, arrays = store.read(posterior.save(tmp_path / "run"))
    changed = json.loads(json.dumps(content).replace("networks.Linear", "os.system"))
    with pytest.raises(ValueError, match=r"'os\.system' is not known"):
        lamu.load(store.write(tmp_path / "evil", changed, arrays))


def test_a_network_of_ones_own_is_given_again(tmp_path: Path, posterior: lamu.Posterior) -> None:
    content, arrays = store.read(posterior.save(tmp_path / "run"))
    changed = json.loads(json.dumps(content).replace("networks.Linear", "mine.Linear"))
    path = store.write(tmp_path / "mine", changed, arrays)
    with pytest.raises(ValueError, match=r"lamu\.load\(path, network="):
        lamu.load(path)
    found = lamu.load(path, network=lamu.networks.Linear())
    np.testing.assert_array_equal(found.predict(X).mean, posterior.predict(X).mean)


def test_a_network_of_ones_own_keeps_the_scaling_around_it(tmp_path: Path) -> None:
    model = MODEL.standardised(X, X[:, 0])
    posterior = lamu.fit(model, (X, X[:, 0]), lamu.algorithms.conjugate()).posterior
    path = posterior.save(tmp_path / "scaled")
    for network in (lamu.networks.Linear(), model.network):
        np.testing.assert_array_equal(lamu.load(path, network=network).predict(X).mean, posterior.predict(X).mean)


def test_a_folder_holds_no_pickle(tmp_path: Path, posterior: lamu.Posterior) -> None:
    path = posterior.save(tmp_path / "run")
    assert sorted(file.name for file in path.iterdir()) == sorted(FILES)
    with np.load(path / "arrays.npz", allow_pickle=False) as arrays:
        assert all(arrays[name].dtype != object for name in arrays)
    json.loads((path / "content.json").read_text())


def test_what_is_asked_wrongly_is_said(posterior: lamu.Posterior) -> None:
    for x, words in (
        (X[0], r"for one row x\[None\]"),
        (X[:0], "no rows"),
        (np.full((2, 2), np.nan), "NaN or infinity"),
        (np.ones((2, 3)), "3 features"),
    ):
        with pytest.raises(ValueError, match=words):
            posterior.predict(x)
    with pytest.raises(ValueError, match="at least 1"):
        posterior.predict(X, samples=0)
    with pytest.raises(AttributeError, match="holds no draws"):
        _ = posterior.samples


def test_rows_may_be_whole_numbers_also_where_inputs_are_standardised() -> None:
    model = MODEL.standardised(X, X[:, 0])
    posterior = lamu.fit(model, (X, X[:, 0]), lamu.algorithms.conjugate()).posterior
    whole = np.array([[1, -2], [3, 0]])
    expected = posterior.predict(whole.astype(float)).mean
    for x in (whole, whole.tolist(), jnp.asarray(whole)):
        np.testing.assert_array_equal(posterior.predict(x).mean, expected)
    with pytest.raises(ValueError, match=r"standardised for \(2,\)"):
        posterior.predict(np.ones((2, 3)))
