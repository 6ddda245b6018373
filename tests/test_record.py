"""Records: frozen, pytrees, and readable again after they were written."""

from __future__ import annotations

import dataclasses
import json
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.record import UnknownTypeError, decode, encode, record, static


@record
class Part:
    """A leaf, a tuple of structure, and a check of what a person gives."""

    value: Any
    names: tuple[str, ...] = static(default=())

    def __post_init__(self) -> None:
        if isinstance(self.value, float) and self.value < 0:
            raise ValueError(f"{self.value} is negative")


def there_and_back(value: Any) -> Any:
    arrays: dict[str, np.ndarray] = {}
    return decode(json.loads(json.dumps(encode(value, arrays))), arrays)


def test_a_record_is_frozen_and_a_pytree() -> None:
    part = Part(2.0, ("a",))
    with pytest.raises(dataclasses.FrozenInstanceError):
        part.value = 3.0  # pyright: ignore[reportAttributeAccessIssue]
    assert jax.tree.map(lambda leaf: 2 * leaf, part) == Part(4.0, ("a",))
    assert jax.tree.structure(part) != jax.tree.structure(Part(2.0, ("b",)))
    assert lamu.tree.paths(Part({"w": 1.0})) == ["value/w"]


def test_validation_is_for_people_and_not_for_jax() -> None:
    with pytest.raises(ValueError, match=r"-1\.0 is negative"):
        Part(-1.0)
    assert jax.tree.map(lambda _: -1.0, Part(1.0)).value == -1.0
    assert jax.jit(lambda part: part)(Part(1.0)).value == 1.0


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        0.1,
        "λ",
        (1, (2.5, "x"), []),
        {"a": {0: 1.0, 1: None}},
        Part(1.5, ("a", "b")),
        Part(Part({"deep": [Part(0.0)]})),
        float("inf"),
    ],
    ids=str,
)
def test_plain_values_come_back_equal(value: Any) -> None:
    found = there_and_back(value)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.bool_, jnp.bfloat16], ids=str)
def test_arrays_keep_bits_and_dtype(dtype: Any) -> None:
    array = jnp.asarray([[0.1, -2.0], [3.3, 0.0]]).astype(dtype)
    found = there_and_back({"a": array, "empty": array[:0], "one": array[0, 0]})
    for name, expected in (("a", array), ("empty", array[:0]), ("one", array[0, 0])):
        assert found[name].dtype == expected.dtype
        np.testing.assert_array_equal(found[name], expected)


def test_keys_come_back_as_keys() -> None:
    key = jax.random.key(7)
    found = there_and_back({"key": key})["key"]
    np.testing.assert_array_equal(jax.random.normal(found), jax.random.normal(key))


def test_a_model_and_a_state_come_back() -> None:
    model = lamu.Model(
        lamu.networks.MLP((3,)), lamu.likelihoods.Gaussian(), lamu.priors.Normal({"*bias": 3.0, "*": 1.0})
    )
    batch = lamu.data.Batch.of(jnp.ones((2, 2)), jnp.zeros(2))
    state = lamu.algorithms.ivon().init(jax.random.key(0), lamu.objective.Objective(model, 2), batch)
    for value in (model, state):
        found = there_and_back(value)
        assert jax.tree.structure(found) == jax.tree.structure(value)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(value), strict=True):
            np.testing.assert_array_equal(one, other)


def test_what_cannot_be_written_is_named_by_its_place() -> None:
    with pytest.raises(TypeError, match=r"value\.a\.1 is a SimpleNamespace"):
        encode({"a": [1, SimpleNamespace()]}, {})
    with pytest.raises(TypeError, match=r"dictionary key \(1, 2\)"):
        encode({(1, 2): 1}, {})
    with pytest.raises(TypeError, match="function"):
        encode(Part(lambda: None), {})


def test_an_unknown_type_is_named_and_may_be_passed() -> None:
    data = {"record": "elsewhere.Net", "fields": {"value": 1.0}}
    with pytest.raises(ValueError, match=r"'elsewhere\.Net' is not known here"):
        decode(data, {})
    assert decode(data, {}, known={"elsewhere.Net": Part}) == Part(1.0)


def test_two_records_of_one_name_are_refused() -> None:
    # Elsewhere on the same floor, a class of the same name.
    impostor = type("Model", (), {"__annotations__": {"a": Any}, "__module__": "lamu.model.elsewhere"})
    with pytest.raises(TypeError, match=r"'model\.Model' is taken by lamu\.model"):
        record(impostor)


def test_a_type_of_the_library_that_nobody_imported_yet(tmp_path: Path) -> None:
    """A file may name a rule of `lamu.algorithms`, which loading a posterior does not import by itself."""
    encoded = {"record": "algorithms.Masked", "fields": {}}
    code = (
        f"from lamu.record import decode, _TYPES; assert 'algorithms.Masked' not in _TYPES; decode({encoded!r}, {{}})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "is not known here" not in ran.stderr
    assert "TypeError" in ran.stderr or ran.returncode == 0  # its fields are missing here
    with pytest.raises(ValueError, match=r"the type 'cryptography\.Key' is not known here"):
        decode({"record": "cryptography.Key", "fields": {}}, {})


ALL_NAMES = """
import importlib, pkgutil, sys, lamu.record
for module in pkgutil.walk_packages(sys.modules["lamu"].__path__, "lamu."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print("\\n".join(name for name, cls in lamu.record._TYPES.items() if cls.__module__.startswith("lamu.")))
"""

RESOLVED = """
import os, sys, lamu.posterior
from lamu.record import _TYPES, _imported
names = [name for name in sys.stdin.read().split() if name not in _TYPES]
print(len(names), flush=True)
for floor in {name.partition(".")[0] for name in names}:
    if os.fork() == 0:  # a process of its own, since one floor's modules import another's
        for name in names:
            if name.startswith(floor + ".") and (_TYPES.get(name) or _imported(name)) is None:
                print(name, flush=True)
        os._exit(0)
    os.wait()
"""


def python(script: str, words: str = "") -> str:
    run = subprocess.run([sys.executable, "-c", script], input=words, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_every_record_is_known_to_a_process_that_can_load_posteriors() -> None:
    """A file names types; a new process that imported `lamu.posterior` alone finds every one of them."""
    names = python(ALL_NAMES)
    assert len(names.split()) > 200
    count, *unknown = python(RESOLVED, names).split()
    assert int(count) > 50, "nothing was left to find"
    assert unknown == []


@pytest.mark.parametrize("kind", ["shape", "statistics"])
def test_what_an_option_brought_in_is_read_by_a_new_process(kind: str, tmp_path: Path) -> None:
    """Saved in one process, predicted in another that knows no algorithm."""
    from lamu.families.location_scale import StandardLogistic
    from lamu.networks import MLP, BatchNorm

    x, y = np.linspace(-1, 1, 8)[:, None], np.array([0, 1] * 4)
    network = MLP((2,), normalise=BatchNorm()) if kind == "statistics" else MLP((2,))
    model = lamu.Model(network, lamu.likelihoods.Bernoulli())
    if kind == "shape":
        algorithm: Any = lamu.algorithms.bayes_by_backprop(base_distribution=StandardLogistic())
        posterior = lamu.fit(model, (x, y), algorithm, steps=1).posterior
    else:
        own = lamu.batch_statistics.RecomputedPerDraw()
        posterior = lamu.fit(model, (x, y), lamu.algorithms.ivon(), steps=1, statistics=own).posterior
    folder = posterior.save(tmp_path / "posterior")
    script = f"import lamu.posterior, numpy as np; p = lamu.posterior.load({str(folder)!r})"
    python(script + "; p.predict(np.ones((2, 1), np.float32)).mean")


def test_a_field_of_another_version_is_refused_by_its_name() -> None:
    """`samples` was called `draws`: the constructor's own words would be a TypeError about a keyword."""
    from lamu.expectations import MonteCarlo

    arrays: dict[str, np.ndarray] = {}
    data = encode(MonteCarlo(2), arrays)
    assert decode(data, arrays) == MonteCarlo(2)
    data["fields"]["draws"] = data["fields"].pop("samples")
    with pytest.raises(ValueError, match=r"'expectations\.MonteCarlo' has the fields samples, .* and not 'draws'"):
        decode(data, arrays)


def test_a_name_in_a_file_runs_no_program() -> None:
    for name in ("__main__.X", "cli.__main__.X", "no floor.X", ".X"):
        with pytest.raises(ValueError, match="not known here"):
            decode({"record": name, "fields": {}}, {})


def test_a_record_is_written_with_the_shapes_of_its_arrays() -> None:
    many, few = jnp.zeros((3, 5), jnp.float32), np.array([1.0, 2.0])
    nested = {"a": [many], "b": (Part(many),), "c": few}
    assert repr(Part(nested, ("x",))) == (
        "Part(value={'a': [float32[3, 5]], 'b': (Part(value=float32[3, 5], names=()),), 'c': array([1., 2.])}, "
        "names=('x',))"
    )
    assert len(repr(Part({"weights": np.zeros((1000, 1000))}))) < 60


def test_a_class_that_writes_itself_is_left_to_it() -> None:
    @record
    class Named:
        value: Any

        def __repr__(self) -> str:
            return "its own"

    assert repr(Part(Named(1))) == "Part(value=its own, names=())"


def test_a_network_standardised_before_it_had_a_level_is_read() -> None:
    arrays: dict[str, np.ndarray] = {}
    written = encode(lamu.networks.Standardised(lamu.networks.Linear(), np.zeros(2), np.ones(2)), arrays)
    del written["fields"]["level"]
    assert decode(written, arrays).level is None


@pytest.mark.parametrize(("part", "sentence"), [("posterior", "a Posterior lacks rule"), (None, "a Fit lacks history")])
def test_a_pickle_of_another_version_is_refused_in_one_sentence(part: str | None, sentence: str) -> None:
    """It was read, and failed at its first use for an attribute that nobody had asked for."""
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
    fit: Any = lamu.fit(model, (np.ones((3, 1)), np.arange(3.0)), lamu.algorithms.conjugate())
    value = fit if part is None else getattr(fit, part)
    assert repr(pickle.loads(pickle.dumps(value))) == repr(value)
    older = object.__new__(type(value))
    vars(older).update({name: leaf for name, leaf in vars(value).items() if name != sentence.split()[-1]})
    with pytest.raises(UnknownTypeError, match=rf"this pickle of {sentence}: another version .* lamu\.load\(path\)"):
        pickle.loads(pickle.dumps(older))
    vars(older).update(vars(value), remembered=1)
    with pytest.raises(UnknownTypeError, match="has remembered: another version"):
        pickle.loads(pickle.dumps(older))
