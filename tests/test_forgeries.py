"""A thousand damaged or forged posteriors: each is read as what it says and predicts, or is refused in a sentence."""

from __future__ import annotations

import dataclasses
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamu
from lamu import store
from lamu.base.arguments import hints_of
from lamu.record import _TYPES, declared, decode, encode
from tests.for_each import for_each
from tests.forgeries import FORGERIES, archived, forged, header, members, posteriors

X = np.random.default_rng(5).normal(size=(6, 3)).astype(np.float32)
SEEDS = 1000


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    """Saved posteriors in a folder, and what each predicts."""
    root = tmp_path_factory.mktemp("forgeries")
    expected = {}
    for name, posterior in posteriors().items():
        posterior.save(root / name)
        expected[name] = np.asarray(lamu.load(root / name).predict(X, samples=4).mean)
        np.testing.assert_array_equal(expected[name], posterior.predict(X, samples=4).mean)
    return root, expected


@pytest.mark.stress
def test_a_thousand_forgeries_are_read_as_what_they_say_or_refused(saved: Any, tmp_path: Path) -> None:
    root, expected = saved
    names, refused, kinds = list(expected), 0, set()
    for seed in range(SEEDS):
        name, place = names[seed % len(names)], tmp_path / "copy"
        kind = forged(root / name, place, seed)
        kinds.add(kind)
        where = f"seed {seed}, {kind} of {name}"
        try:
            mean = np.asarray(lamu.load(place).predict(X, samples=4).mean)
        except store.StoreError as error:
            refused += 1
            sentence = str(error)
            assert str(place) in sentence, where
            assert "\n" not in sentence, where
            assert len(sentence) < 600, where
            continue
        assert mean.shape == expected[name].shape, where
        assert np.isfinite(mean).all(), where
    assert kinds == {harm.__name__ for harm in FORGERIES}
    assert refused > 0.8 * SEEDS


def test_a_small_archive_that_unpacks_to_much_is_not_unpacked(saved: Any, tmp_path: Path) -> None:
    root, _ = saved
    forged(root / "sampled", tmp_path / "bomb", 0)
    for file in (root / "sampled").iterdir():
        (tmp_path / "bomb" / file.name).write_bytes(file.read_bytes())
    size = 2**26
    first, *rest = members(root / "sampled").items()
    archived(tmp_path / "bomb", [(first[0], header(f"({size // 4},)") + bytes(size)), *rest], zipfile.ZIP_DEFLATED)
    assert (tmp_path / "bomb" / "arrays.npz").stat().st_size < size / 100
    tracemalloc.start()
    try:
        with pytest.raises(store.StoreError, match="its arrays are compressed, and Lamu writes them as they are"):
            lamu.load(tmp_path / "bomb")
        assert tracemalloc.get_traced_memory()[1] < size / 10
    finally:
        tracemalloc.stop()


def test_an_array_larger_than_its_file_is_not_made(tmp_path: Path) -> None:
    whole = store.write(tmp_path / "whole", {}, {"x": np.zeros(3, np.float32)})
    for shape in (f"({2**40},)", "(10**12,)", "(4,)", "(2,)", "(-3,)"):
        archived(whole, [("a0.npy", header(shape) + bytes(12))])
        with pytest.raises(store.StoreError, match="was altered"):
            store.read(whole)


def test_objects_of_an_archive_are_not_unpickled(tmp_path: Path) -> None:
    whole = store.write(tmp_path / "whole", {}, {"x": np.zeros(3)})
    archived(whole, [("a0.npy", header("(1,)", "'|O'") + b"cos\nsystem\n(S'touch it-ran'\ntR.")])
    with pytest.raises(store.StoreError, match="an array is object, which Lamu does not write"):
        store.read(whole)


def test_the_numbers_of_one_leaf_do_not_pass_for_those_of_another(saved: Any) -> None:
    content, arrays = store.read(saved[0] / "draws")
    one, other = "layers.0.kernel", "layers.1.kernel"
    names = [next(name for name in arrays if name.endswith(end)) for end in (one, other)]
    assert arrays[names[0]].shape == (2, 3, 3, 2)
    flipped = {**arrays, names[0]: arrays[names[0]] * np.where(np.arange(2) == 1, -1, 1).astype(np.float32)}
    with pytest.raises(ValueError, match=f"'{names[0]}' has other numbers than those that were written"):
        decode(content, flipped)
    swapped = {**arrays, names[0]: arrays[names[1]]}
    with pytest.raises(ValueError, match=rf"'{names[0]}' is float32\[2, 3, 2, 3\], and float32\[2, 3, 3, 2\] was"):
        decode(content, swapped)
    decode(content, arrays)


def test_dtypes_of_other_libraries_come_back_from_a_file(tmp_path: Path) -> None:
    import jax.numpy as jnp

    arrays: dict[str, np.ndarray] = {}
    content = encode({"half": jnp.asarray([0.5, -2.0], jnp.bfloat16)}, arrays)
    found = decode(*store.read(store.write(tmp_path / "half", content, arrays), declared))
    assert found["half"].dtype == jnp.bfloat16
    assert found["half"].tolist() == [0.5, -2.0]


@for_each(
    "field, value, words",
    [
        ("widths", {"tuple": ["four"]}, r"networks\.MLP\.widths is \('four',\) and no tuple\[int, \.\.\.\]"),
        ("widths", 4, r"networks\.MLP\.widths is 4 and no tuple\[int, \.\.\.\]"),
        ("activation", 1, r"networks\.MLP\.activation is 1 and no str"),
        ("activation", "os.system", "activation"),
        ("widths", {"tuple": [10**30]}, "a whole number of 100 bits, where 64 are the most"),
        ("widths", {"tuple": [True]}, "and no tuple"),
    ],
)
def test_a_field_of_another_kind_is_named(field: str, value: Any, words: str) -> None:
    data = encode(lamu.networks.MLP((4,)), {})
    data["fields"][field] = value
    with pytest.raises(ValueError, match=words):
        decode(data, {})


def test_the_annotations_of_all_types_are_known() -> None:
    """One that cannot be evaluated would leave a type's fields unchecked."""

    ours = {name: cls for name, cls in _TYPES.items() if ":" not in name}
    assert len(ours) > 200
    for name, cls in ours.items():
        assert set(hints_of(cls)) == {field.name for field in dataclasses.fields(cls)}, name


def test_no_default_takes_the_place_of_a_field_that_was_lost() -> None:
    data = encode(lamu.priors.Normal(2.0), {})
    del data["fields"]["scale"]
    with pytest.raises(ValueError, match="lacks its field 'scale'"):
        decode(data, {})


def test_not_a_number_is_read_only_where_something_was_measured() -> None:
    data = encode(lamu.priors.Normal(2.0), {})
    data["fields"]["scale"] = float("nan")
    with pytest.raises(ValueError, match=r"priors\.Normal\.scale is nan"):
        decode(data, {})
    measured = lamu.convergence.Convergence(residual=float("nan"), ess=float("inf"))
    assert repr(decode(encode(measured, {}), {})) == repr(measured)
    tobit = lamu.likelihoods.Tobit()
    assert decode(encode(tobit, {}), {}) == tobit


def test_what_is_nested_too_deep_is_refused_before_it_is_read() -> None:
    data: Any = 1.0
    for _ in range(5000):
        data = {"list": [data]}
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        decode(data, {})


def test_a_saved_estimator_that_was_altered_is_refused(tmp_path: Path) -> None:
    from lamu.sklearn import BayesianRegressor, load

    estimator: Any = BayesianRegressor()
    estimator.posterior_ = posteriors()["closed"]
    estimator.dtype_ = np.dtype("float32")
    estimator.n_features_in_ = 3
    content, arrays = store.read(estimator.save(tmp_path / "whole"))
    load(tmp_path / "whole")
    for index, (field, value) in enumerate(
        [("parameters", {"copy": {"list": []}}), ("learned", {"dict": [["__class__", 1]]}), ("posterior", 3)]
    ):
        forgery = store.write(tmp_path / str(index), {**content, field: value}, arrays)
        with pytest.raises(store.StoreError, match="was altered after it was saved"):
            load(forgery)


def test_a_field_that_came_later_has_its_default_in_older_files() -> None:
    """`Convergence` of before the shape of a belief was measured; every other field of it is still missed."""
    seen = lamu.Convergence(0.1, pareto_k=0.9)
    data = encode(seen, {})
    for name in ("divergence", "pareto_k", "share", "misshapen"):
        del data["fields"][name]
    read = decode(data, {})
    assert (read.divergence, read.pareto_k, read.share, read.misshapen) == (None, None, None, "")
    del data["fields"]["shift"]
    with pytest.raises(ValueError, match="lacks its field 'shift'"):
        decode(data, {})
