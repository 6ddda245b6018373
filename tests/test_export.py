"""`Posterior.export`: programs that predict the same numbers in a process that has JAX and no Lamu."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import lamu
from lamu.families import Point

PAGE = Path(__file__).parent.parent / "docs" / "serving.md"
ELSEWHERE = """
import sys
sys.modules["lamu"] = None  # whatever imports it fails
{loader}
import numpy as np
for name in sys.argv[1:]:
    exported, x = Exported(name), np.load(name + ".npy")
    number = {{"interval": [0.8], "quantile": [0.3], "prediction_set": [0.8], "moments": []}}
    found = {{f"{{p}} {{n}} {{k}}": v for p in exported.programs for n in (1, 5)
             for k, v in exported.ask(p, x[:n], *number[p]).items()}}
    np.savez(name + ".npz", **found)
assert not any(name.startswith("lamu.") for name in sys.modules)
"""


def loader() -> str:
    """Returns the loader of the page: its block that defines the class."""
    return next(
        block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "class Exported" in block
    )


def load(name: str):
    return tuple(np.asarray(part, float) for part in lamu.data.load(name))


def regression():
    x, y = load("diabetes")
    model = lamu.Model(lamu.networks.MLP((4,)), lamu.likelihoods.Gaussian()).standardised(x, y)
    return lamu.fit(model, (x, y), lamu.algorithms.ivon(0.1), steps=3).posterior, x[:5]


def classes():
    x, y = load("iris")
    y = y.astype(int)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Categorical(3)).standardised(x, y)
    return lamu.fit(model, (x, y), lamu.algorithms.laplace(), steps=3).posterior, x[:5]


def counts():
    x, y = load("diabetes")
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Poisson()).standardised(x, np.floor(y / 50))
    return lamu.fit(model, (x, np.floor(y / 50)), lamu.algorithms.adam(), steps=3).posterior, x[:5]


@pytest.mark.stress
def test_a_process_without_lamu_predicts_the_same_numbers(tmp_path):
    made = {"regression": regression(), "classes": classes(), "counts": counts()}
    for name, (posterior, x) in made.items():
        np.save(tmp_path / f"{name}.npy", x)
        assert posterior.export(tmp_path / name, samples=7) == tmp_path / name
    script = ELSEWHERE.format(loader=loader())
    ran = subprocess.run([sys.executable, "-c", script, *made], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    for name, (posterior, x) in made.items():
        with np.load(tmp_path / f"{name}.npz") as file:
            found = dict(file)
        for n in (1, 5):
            pred = posterior.predict(x[:n], samples=7)
            expected = {f"moments {n} {k}": getattr(pred, k) for k in ("mean", "variance", "std", "aleatoric", "total")}
            expected[f"moments {n} epistemic"] = pred.epistemic
            if pred.support.has_classes:
                expected[f"moments {n} probabilities"] = pred.probabilities
                expected[f"prediction_set {n} members"] = pred.prediction_set(0.8)
            else:
                lower, upper = pred.interval(0.8)
                expected |= {f"interval {n} lower": lower, f"interval {n} upper": upper}
                expected[f"quantile {n} quantile"] = pred.quantile(0.3)
            assert expected.keys() == {key for key in found if f" {n} " in key}
            for key, value in expected.items():
                np.testing.assert_allclose(found[key], value, rtol=1e-6, atol=1e-9, err_msg=f"{name} {key}")


def test_the_schema_names_shapes_and_dtypes(tmp_path):
    posterior, _ = regression()
    schema = json.loads((posterior.export(tmp_path / "e") / "schema.json").read_text())
    assert schema["format"] == "lamu-export-1"
    interval = schema["programs"]["interval"]
    assert interval["inputs"] == {
        "x": {"shape": ["rows", 10], "dtype": "float64"},
        "level": {"shape": [], "dtype": "float64"},
    }
    assert interval["outputs"]["lower"] == {"shape": ["rows"], "dtype": "float64"}
    assert (schema["samples"], schema["task"], schema["platforms"]) == (32, "regression", ["cpu", "cuda", "tpu"])
    with pytest.raises(FileExistsError, match="exists already and is not overwritten"):
        posterior.export(tmp_path / "e")
    assert [path.name for path in tmp_path.iterdir()] == ["e"]


class CallsBack(lamu.networks.Linear):
    def apply(self, params, state, x, *rest, **options):
        f, state = super().apply(params, state, x, *rest, **options)
        return jax.pure_callback(
            lambda f: f, jax.ShapeDtypeStruct(f.shape, f.dtype), f, vmap_method="expand_dims"
        ), state


def test_what_cannot_be_exported_is_refused_in_a_sentence(tmp_path):
    model = lamu.Model(CallsBack(), lamu.likelihoods.Gaussian(1.0))
    batch = lamu.data.Batch.of(np.ones((2, 3)), np.ones(2))
    params, state = model.init(jax.random.key(0), batch)
    posterior = lamu.posterior.Posterior(model, Point(params), state, lamu.predictives.Sampled(), jax.random.key(1))
    with pytest.raises(TypeError, match=r"cannot be exported.*calls back into Python"):
        posterior.export(tmp_path / "e", np.ones((1, 3)))
    with pytest.raises(FileNotFoundError, match="does not exist; make it first"):
        posterior.export(tmp_path / "missing" / "e", np.ones((1, 3)))
    wide = lamu.Model(lamu.networks.ConvNet((2,)), lamu.likelihoods.Gaussian(1.0))
    images = lamu.data.Batch.of(np.ones((2, 4, 4)), np.ones(2))
    params, state = wide.init(jax.random.key(0), images)
    posterior = lamu.posterior.Posterior(wide, Point(params), state, lamu.predictives.Sampled(), jax.random.key(1))
    with pytest.raises(ValueError, match="does not tell the shape of a row; give x"):
        posterior.export(tmp_path / "e")
    conjugate = lamu.ConjugateModel(lamu.observations.Poisson(), lamu.families.Gamma(1.0, 1.0))
    posterior = lamu.fit(conjugate, np.array([1.0, 2.0]), lamu.algorithms.conjugate()).posterior
    with pytest.raises(TypeError, match=r"a ConjugateModel cannot be exported"):
        posterior.export(tmp_path / "e")
    assert not list(tmp_path.iterdir())
