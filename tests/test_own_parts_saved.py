"""Posteriors with parts that are not the library's: saved by one process, loaded by another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import lamu
from lamu import store
from lamu.constraints import _frozen
from lamu.record import decode, encode, record
from tests.for_each import for_each

PARTS = """
import jax.numpy as jnp
from lamu.likelihoods import Gaussian
from lamu.priors import Normal
from lamu.record import record

NOISE = 2.0
print("priors was imported")

@record
class Quiet(Gaussian):
    scale: float = NOISE

@record
class Normal(Normal):  # of the name of one of the library's, in a module of the name of one of its floors
    scale: float = 3.0

class NoRecord:
    pass
"""
SAVE = """
import numpy as np, lamu
{imported}
x = np.linspace(-1, 1, 8)[:, None]
model = lamu.Model(lamu.networks.Linear(), priors.Quiet(), priors.Normal())
posterior = lamu.fit(model, (x, x[:, 0]), lamu.algorithms.conjugate()).posterior
posterior.save("saved")
print(float(posterior.predict(x).mean[0]))
"""
LOAD = """
import numpy as np, lamu
posterior = lamu.load("saved", trust=["priors"])
print(type(posterior.model.likelihood).__name__, posterior.model.prior, posterior.model.likelihood.scale)
print(float(posterior.predict(np.linspace(-1, 1, 8)[:, None]).mean[0]))
"""


def python(folder: Path, script: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path or ""), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=folder, env=environment
    )


@pytest.mark.stress
def test_a_new_process_imports_the_module_of_what_was_saved(tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "priors.py").write_text(PARTS)
    wrote = python(tmp_path, SAVE.format(imported="import priors"), modules)
    assert wrote.returncode == 0, wrote.stderr
    read = python(tmp_path, LOAD, modules)
    assert read.returncode == 0, read.stderr
    assert read.stdout.splitlines() == [
        "priors was imported",
        "Quiet Normal(scale=3.0, loc=0.0, patterns=None) 2.0",
        wrote.stdout.splitlines()[1],
    ]
    elsewhere = python(tmp_path, "import sys; sys.path.remove('')" + LOAD)
    assert elsewhere.returncode == 1
    assert "the type 'priors:Quiet' is not known here; no module 'priors' can be imported" in elsewhere.stderr
    distrusted = python(tmp_path, LOAD.replace(', trust=["priors"]', ""), modules)
    assert distrusted.returncode == 1
    assert "priors was imported" not in distrusted.stdout
    assert "its module 'priors' is not imported" in distrusted.stderr


def test_what_a_script_defines_is_told_apart(tmp_path: Path) -> None:
    imported = f"import types; priors = types.SimpleNamespace()\n{PARTS}\npriors.Quiet, priors.Normal = Quiet, Normal"
    wrote = python(tmp_path, SAVE.format(imported=imported))
    assert wrote.returncode == 0, wrote.stderr
    read = python(tmp_path, LOAD)
    assert read.returncode == 1
    assert "the type '__main__:Quiet' is not known here; Quiet was saved by the script that defines it" in read.stderr


def test_files_hold_names_and_never_code(tmp_path: Path) -> None:
    (tmp_path / "priors.py").write_text(PARTS)
    assert python(tmp_path, SAVE.format(imported="import priors"), tmp_path).returncode == 0
    model = store.read(tmp_path / "saved")[0]["fields"]["model"]["fields"]
    assert (model["likelihood"]["record"], model["prior"]["record"]) == ("priors:Quiet", "priors:Normal")
    assert model["network"]["record"] == "networks.Linear"


def a_module(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def test_only_records_are_taken_from_a_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    a_module(monkeypatch, "someones").Plain = type("Plain", (), {})
    with pytest.raises(ValueError, match="the module 'someones' has no record 'Plain' at its top level"):
        decode({"record": "someones:Plain", "fields": {}}, {})
    for name in ("os:system", "subprocess:Popen", "builtins:eval"):
        for trust in ((), (name.partition(":")[0],)):
            with pytest.raises(ValueError, match=f"the type '{name}' is not known here"):
                decode({"record": name, "fields": {}}, {}, trust=trust)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__main__.py").write_text("raise SystemExit('it ran')")
    for name in ("program.__main__:X", "lamu.cli.__main__:X", "no module:X", ":X", "..x:X"):
        with pytest.raises(ValueError, match="not known here"):
            decode({"record": name, "fields": {}}, {}, trust=["program", "lamu", "no module", ""])


def test_a_module_that_needs_another_one_says_which(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "needy.py").write_text("import nowhere_to_be_found")
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        decode({"record": "needy:X", "fields": {}}, {}, trust=["needy"])
    with pytest.raises(ValueError, match=r"no module 'absent\.deeper' can be imported"):
        decode({"record": "absent.deeper:X", "fields": {}}, {}, trust=["absent"])


@record
class Own:
    """A record of this module.

    Attributes:
        value: anything.
    """

    value: Any


def test_a_file_of_before_with_a_point_in_the_place_of_the_colon_is_read() -> None:
    written = json.loads(json.dumps(encode(Own(np.float64(2.0).item()), {})))
    assert written["record"] == f"{__name__}:Own"
    assert decode(written, {}) == Own(2.0)
    assert decode({**written, "record": f"{__name__}.Own"}, {}) == Own(2.0)


YOURS = Path(__file__).parent.parent / "examples" / "yours"


@pytest.mark.stress
def test_an_examples_likelihood_and_algorithm_at_the_command_line_and_in_a_new_process(tmp_path: Path) -> None:
    """As a reader of the page would: the folder of the module is the current one."""
    for name in ("poisson.py", "curvature_every_k.py"):
        (tmp_path / name).write_text((YOURS / name).read_text())
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2))
    table = np.c_[x, random.poisson(np.exp(1 + x @ [0.8, -0.5]))]
    np.savetxt(tmp_path / "counts.csv", table, delimiter=",", header="a,b,visits", comments="")
    words = ["fit", "counts.csv", "--target", "visits", "--task", "regression", "--likelihood", "poisson:Poisson"]
    words += ["--algorithm", "curvature_every_k:CurvatureEveryK", "--set", "every=2", "--epochs", "2", "--out", "run"]
    lamu = "import sys; sys.path = [p for p in sys.path if p]; from lamu.cli import main; sys.exit(main({}))"
    fitted = python(tmp_path, lamu.format(words))
    assert fitted.returncode == 0, fitted.stderr
    predicted = python(tmp_path, lamu.format(["predict", "run", "counts.csv", "--json", "--trust", "poisson"]))
    assert predicted.returncode == 0, predicted.stderr
    assert json.loads(predicted.stdout)["rows"] == 60
    loaded = python(tmp_path, "import lamu; print(lamu.load('run/posterior', trust=['poisson']).model.likelihood)")
    assert loaded.stdout.strip() == "Poisson()", loaded.stderr


def regression(x: Any, y: Any = None) -> None:
    noise = numpyro.sample("noise", dist.Gamma(2.0, 1.0))
    slope = numpyro.sample("slope", dist.TruncatedNormal(0.0, 1.0, low=-1.0).expand([2]).to_event(1))
    share = numpyro.sample("share", dist.Uniform(0.0, 2.0))
    weight = numpyro.sample("weight", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(share * (x @ (slope * weight)), 1 / jnp.sqrt(noise)), obs=y)


def another(x: Any, y: Any = None) -> None:
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(numpyro.sample("level", dist.Normal(0.0, 1.0)), 1.0), obs=y)


@pytest.mark.filterwarnings("ignore::lamu.Unconverged")
@pytest.mark.parametrize("rows", ["rows", None])
def test_a_program_is_given_back_to_its_posterior(rows: str | None, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(10, 2))
    target = lamu.from_numpyro(regression, {"x": x, "y": x[:, 0] - x[:, 1]}, rows=rows)
    algorithm = lamu.algorithms.cvi() if rows else lamu.mcmc.nuts(chains=1, warmup=3, draws=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lamu.mcmc.UnreliableChains)
        posterior = lamu.fit(target, None, algorithm, progress=False, steps=3 if rows else None).posterior
    posterior.save(tmp_path / "saved")
    loaded = lamu.load(tmp_path / "saved", program=regression)
    asked = {"x": x[:3]}
    np.testing.assert_array_equal(loaded.predict(asked).mean, posterior.predict(asked).mean)
    draws = (one.sample(jax.random.key(0), 2) for one in (loaded, posterior))
    for one, other in zip(*map(jax.tree.leaves, draws), strict=True):
        np.testing.assert_array_equal(one, other)
    missing = r"function '.*regression' was not saved, and is needed; give it, lamu.load\(path, program=...\)"
    with pytest.raises(store.StoreError, match=missing):
        lamu.load(tmp_path / "saved")
    with pytest.raises(store.StoreError, match="has the sites level, y, and the one that was saved noise, share"):
        lamu.load(tmp_path / "saved", program=another)
    with pytest.raises(store.StoreError, match="does not run on the arguments that were saved"):
        lamu.load(tmp_path / "saved", program=lambda other: None)
    with pytest.raises(TypeError, match="program=3"):
        lamu.load(tmp_path / "saved", program=3)  # pyright: ignore[reportArgumentType]


def test_a_program_where_none_was_saved_is_refused(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 8)[:, None]
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=1.0))
    lamu.fit(model, (x, x[:, 0]), lamu.algorithms.conjugate()).posterior.save(tmp_path / "saved")
    with pytest.raises(ValueError, match="holds no NumPyro program; leave program="):
        lamu.load(tmp_path / "saved", program=regression)


@for_each(
    "constraint",
    [
        constraints.positive,
        constraints.interval(-jnp.inf, jnp.array([1.0, 2.0], jnp.float32)),
        constraints.independent(constraints.greater_than(2.0), 1),
        constraints.zero_sum(1),
        constraints.corr_cholesky,
    ],
)
def test_numpyro_constraints_are_written_and_read(constraint: Any) -> None:
    kept = _frozen("x", constraint)
    arrays: dict[str, Any] = {}
    text = json.dumps(encode(kept, arrays))
    read = decode(json.loads(text), arrays)
    assert read == kept
    assert hash(read) == hash(kept)
    assert type(read.constraint) is type(constraint)
    for one, other in zip(jax.tree.leaves(read.constraint), jax.tree.leaves(constraint), strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.asarray(one).dtype == np.asarray(other).dtype
