"""Checkpoints of a run: cut short at any block it ends, once resumed, with the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.running.checkpoints import CheckpointError, Checkpoints

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
Y = X @ np.array([1.0, -1.0]) + 0.5 * rng.normal(size=40)
MODEL = lamu.Model(lamu.networks.MLP((3,)), lamu.likelihoods.Gaussian())
LINEAR = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5))


class Cut(Exception):
    """What ends a run from outside."""


def cut_after(blocks: int) -> Any:
    seen: list[int] = []

    def callback(done: int, _: Any) -> None:
        seen.append(done)
        if len(seen) == blocks:
            raise Cut

    return callback


def leaves(fit: Any) -> list[np.ndarray]:
    """Everything that a run returns, as bits."""
    arrays = [*jax.tree.leaves(fit.posterior), *jax.tree.leaves(fit.state), *fit.history.values()]
    keys = [jax.dtypes.issubdtype(getattr(a, "dtype", None), jax.dtypes.prng_key) for a in arrays]
    return [np.asarray(jax.random.key_data(a) if key else a) for a, key in zip(arrays, keys, strict=True)]


def assert_same(one: Any, other: Any) -> None:
    for a, b in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


A = lamu.algorithms
ALGORITHMS = {
    "ivon": (A.ivon(), MODEL),
    "map_estimate": (A.map_estimate(), MODEL),
    "deep_ensemble": (A.deep_ensemble(A.adam(), members=2), MODEL),
    "laplace": (A.laplace(), MODEL),
    "nuts": (lamu.mcmc.nuts(chains=2, warmup=100, draws=60), LINEAR),
}
REST = {
    "gradient_descent": (A.gradient_descent(0.01), MODEL),
    "sgd": (A.sgd(0.01), MODEL),
    "adam": (A.adam(), MODEL),
    "von": (A.von(), LINEAR),
    "vogn": (A.vogn(), MODEL),
    "last_layer": (A.last_layer(), MODEL),
    "conjugate": (A.conjugate(), LINEAR),
    "ogn": (A.ogn(), MODEL),
    "slang": (A.slang(), MODEL),
    "kfac": (A.kfac(), MODEL),
    "noisy_kfac": (A.noisy_kfac(), MODEL),
    "bayes_by_backprop": (A.bayes_by_backprop(), MODEL),
    "bsam": (A.bsam(), MODEL),
}
EVERY = {**ALGORITHMS, **REST}
REPEATED = ("deep_ensemble", "laplace", "map_estimate")  # what the others say too, in the long run


def options(name: str) -> dict[str, Any]:
    return {} if name in ("nuts", "conjugate") else {"epochs": 47, "batch_size": 16, "validation": 0.2}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.stress] if name in REPEATED else []) for name in ALGORITHMS]
)
def test_a_run_that_was_cut_short_ends_with_the_same_bits(name: str, tmp_path: Path) -> None:
    algorithm, model = EVERY[name]
    whole = lamu.fit(model, (X, Y), algorithm, **options(name))
    keeper = Checkpoints(tmp_path / "run", every=0.0)
    with pytest.raises(Cut):
        lamu.fit(model, (X, Y), algorithm, checkpoint=keeper, callbacks=[cut_after(2)], **options(name))
    again = lamu.fit(model, (X, Y), algorithm, checkpoint=keeper, resume=True, **options(name))
    assert_same(whole, again)
    # A run that is over has nothing left to do, and says the same once more.
    assert_same(whole, lamu.fit(model, (X, Y), algorithm, checkpoint=keeper, resume=True, **options(name)))


def test_streams_are_resumed_where_they_were_left(tmp_path: Path) -> None:
    batches = [(X[i : i + 10], Y[i : i + 10]) for i in range(0, 40, 10)]
    given: dict[str, Any] = {"steps": 11, "data_size": 40}
    whole = lamu.fit(MODEL, batches, A.ivon(), **given)
    keeper = Checkpoints(tmp_path / "run", every=0.0)
    with pytest.raises(Cut):
        lamu.fit(MODEL, batches, A.ivon(), checkpoint=keeper, callbacks=[cut_after(6)], **given)
    assert_same(whole, lamu.fit(MODEL, batches, A.ivon(), checkpoint=keeper, resume=True, **given))


def test_a_run_may_be_made_longer(tmp_path: Path) -> None:
    keeper = Checkpoints(tmp_path / "run")
    lamu.fit(MODEL, (X, Y), A.adam(), steps=4, batch_size=16, checkpoint=keeper)
    longer = lamu.fit(MODEL, (X, Y), A.adam(), steps=9, batch_size=16, checkpoint=keeper, resume=True)
    np.testing.assert_allclose(
        longer.history["loss"], lamu.fit(MODEL, (X, Y), A.adam(), steps=9, batch_size=16).history["loss"], rtol=1e-12
    )


def test_an_early_stop_is_remembered(tmp_path: Path) -> None:
    given: dict[str, Any] = {"epochs": 40, "batch_size": 16, "validation": 0.2, "stop": lambda seen: True}
    short = lamu.fit(MODEL, (X, Y), A.adam(), checkpoint=tmp_path / "run", **given)
    again = lamu.fit(MODEL, (X, Y), A.adam(), checkpoint=tmp_path / "run", resume=True, **given)
    assert_same(short, again)


def test_an_interrupted_run_leaves_a_checkpoint(tmp_path: Path) -> None:
    def interrupt(done: int, _: Any) -> None:
        raise KeyboardInterrupt

    given: dict[str, Any] = {"epochs": 47, "batch_size": 16}
    fit = lamu.fit(MODEL, (X, Y), A.adam(), checkpoint=tmp_path / "run", callbacks=[interrupt], **given)
    assert fit.interrupted
    again = lamu.fit(MODEL, (X, Y), A.adam(), checkpoint=tmp_path / "run", resume=True, **given)
    assert_same(again, lamu.fit(MODEL, (X, Y), A.adam(), **given))


def test_nothing_is_overwritten_and_no_other_run_is_continued(tmp_path: Path) -> None:
    given: dict[str, Any] = {"epochs": 1, "batch_size": 16}
    lamu.fit(MODEL, (X, Y), A.adam(), checkpoint=tmp_path / "run", **given)
    with pytest.raises(ValueError, match="resume=True"):
        lamu.fit(MODEL, (X, Y), A.adam(), checkpoint=tmp_path / "run", **given)
    with pytest.raises(CheckpointError, match="seed=0, and this one has 1"):
        lamu.fit(MODEL, (X, Y), A.adam(), checkpoint=tmp_path / "run", resume=True, seed=1, **given)
    with pytest.raises(CheckpointError):
        lamu.fit(MODEL, (X, Y), A.ivon(), checkpoint=tmp_path / "run", resume=True, **given)
    wider = lamu.Model(lamu.networks.MLP((4,)), lamu.likelihoods.Gaussian())
    with pytest.raises(CheckpointError):
        lamu.fit(wider, (X, Y), A.adam(), checkpoint=tmp_path / "run", resume=True, **given)


def test_resume_without_a_checkpoint_begins(tmp_path: Path) -> None:
    fit = lamu.fit(MODEL, (X, Y), A.adam(), epochs=1, checkpoint=tmp_path / "run", resume=True)
    assert len(fit.history["loss"]) == 1


PROGRAM = """
import sys
import numpy as np
import lamu
from lamu.running.checkpoints import Checkpoints
from tests.test_resume import EVERY, X, Y, leaves, options
name, folder = sys.argv[1:]
algorithm, model = EVERY[name]
given = options(name)
if "epochs" in given:
    given["epochs"] = 400
fit = lamu.fit(model, (X, Y), algorithm, checkpoint=Checkpoints(folder, every=0.0), resume=True, **given)
np.savez(folder + "/end.npz", *leaves(fit))
"""


def run(name: str, folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    return subprocess.Popen([sys.executable, "-c", PROGRAM, name, str(folder)], cwd=Path(__file__).parent.parent)


@pytest.mark.stress
@pytest.mark.parametrize("name", EVERY)
def test_killed_at_ten_random_moments(name: str, tmp_path: Path) -> None:
    """SIGKILL at ten moments drawn from the time that a whole run takes: the end has the same bits."""
    begin = time.monotonic()
    assert run(name, tmp_path / "whole").wait(600) == 0
    seconds = time.monotonic() - begin
    moments = np.random.default_rng(sum(map(ord, name))).uniform(0.2, 1.0, 10) * seconds
    for moment in moments:
        process = run(name, tmp_path / "cut")
        try:
            process.wait(float(moment))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    assert run(name, tmp_path / "cut").wait(600) == 0
    one, other = (np.load(tmp_path / which / "end.npz") for which in ("whole", "cut"))
    for key in one.files:
        np.testing.assert_array_equal(one[key], other[key])


def test_a_checkpoint_of_any_other_run_is_refused_by_what_differs(tmp_path: Path) -> None:
    """Each of these once went on from another run's weights, without a word."""
    given: dict[str, Any] = {"epochs": 1, "batch_size": 16, "checkpoint": tmp_path / "run"}
    prior, likelihood = lamu.priors.Normal(1.0), lamu.likelihoods.Gaussian(0.5)
    model = lamu.Model(lamu.networks.MLP((3,), "tanh"), likelihood, prior).standardised(X, Y)
    lamu.fit(model, (X, Y), A.adam(1e-3), **given)
    others: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
        "data": (model, (X, Y + np.eye(len(Y))[0] * 1e-3), A.adam(1e-3), {}),
        "prior": (replace(model, prior=lamu.priors.Normal(2.0)), (X, Y), A.adam(1e-3), {}),
        "temperature": (model, (X, Y), A.adam(1e-3), {"temperature": 0.5}),
        "likelihood_power": (model, (X, Y), A.adam(1e-3), {"likelihood_power": 2.0}),
        "settings": (model, (X, Y), A.adam(2e-3), {}),
        "network": (
            lamu.Model(lamu.networks.MLP((3,), "relu"), likelihood, prior).standardised(X, Y),
            (X, Y),
            A.adam(1e-3),
            {},
        ),
        "network ": (
            lamu.Model(lamu.networks.MLP((3,), "tanh"), likelihood, prior).standardised(X + 1, Y),
            (X, Y),
            A.adam(1e-3),
            {},
        ),
    }
    for name, (model_, data, algorithm, more) in others.items():
        with pytest.raises(CheckpointError, match=f"is of a run with {name.strip()}="):
            lamu.fit(model_, data, algorithm, resume=True, **given, **more)
    assert len(lamu.fit(model, (X, Y), A.adam(1e-3), resume=True, **given).history["loss"]) == -(-len(X) // 16)


@pytest.mark.parametrize("rows", ["arrays", "stream"])
def test_a_run_of_fewer_steps_than_its_checkpoint_is_refused(tmp_path: Path, rows: str) -> None:
    """It once returned the longer run, in silence."""
    data = [(X[i : i + 20], Y[i : i + 20]) for i in (0, 20)] if rows == "stream" else (X, Y)
    given: dict[str, Any] = {"checkpoint": tmp_path / "run", "data_size": 40}
    lamu.fit(MODEL, data, A.adam(1e-3), epochs=5, batch_size=20, **given)
    with pytest.raises(CheckpointError, match="of step 10, beyond the 4 steps of this run"):
        lamu.fit(MODEL, data, A.adam(1e-3), epochs=2, batch_size=20, resume=True, **given)


def test_a_run_in_another_precision_is_refused_by_its_precision(tmp_path: Path) -> None:
    given: dict[str, Any] = {"epochs": 1, "batch_size": 20, "checkpoint": tmp_path / "run"}
    lamu.fit(MODEL, (X, Y), A.adam(1e-3), **given)
    with (
        jax.enable_x64(jnp.zeros(()).dtype == np.float32),
        pytest.raises(CheckpointError, match=r"of another precision.* dtype \w+ and not \w+; resume with the jax"),
    ):
        lamu.fit(MODEL, (X, Y), A.adam(1e-3), resume=True, **given)
