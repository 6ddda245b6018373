"""Networks that hold a convolution run otherwise on a CPU, step by step and member by member: with the same results."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.algorithms import adam, deep_ensemble
from lamu.data import Batch
from lamu.objective import Objective
from lamu.record import record
from lamu.running import schedule

rng = np.random.default_rng(0)
X = rng.normal(size=(10, 4, 4, 1))
Y = (np.arange(10) % 2).astype(np.int32)
ENSEMBLE = deep_ensemble(adam(0.05), members=2)
LONG = pytest.mark.stress


@record
class Convolving(lamu.networks.Network):
    """A network of one's own, by the compiler's own convolution."""

    linear = False
    head = "dense"

    def init(self, key: Any, x: Any, outputs: int) -> Any:
        one, other = jax.random.split(key)
        kernel = jax.random.normal(one, (3, 3, x.shape[-1], 2), x.dtype)
        return {"kernel": kernel, "dense": jax.random.normal(other, (2, outputs), x.dtype)}, {}

    def apply(self, params: Any, state: Any, x: Any, key: Any, train: bool) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        hidden = jax.lax.conv_general_dilated(x, params["kernel"], (1, 1), "SAME", dimension_numbers=layout)
        return jnp.mean(jnp.tanh(hidden), axis=(1, 2)) @ params["dense"], state


MODEL = lamu.Model(Convolving(), lamu.likelihoods.Bernoulli())


def looping(monkeypatch: pytest.MonkeyPatch, well: bool) -> None:
    """As on another platform."""
    monkeypatch.setattr(lamu.Model, "scan_friendly", lambda *_: well)


def assert_close(one: Any, other: Any, tolerance: float) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "apart", [pytest.param(False, id="the same rows", marks=LONG), pytest.param(True, id="rows of their own")]
)
def test_members_one_after_the_other_are_members_at_once(apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And each is the algorithm alone, under its own key."""
    objective, key = Objective(MODEL, 10), jax.random.key(1)
    batch = Batch.of(jnp.asarray(X[:6]), jnp.asarray(Y[:6]))
    state = jax.jit(ENSEMBLE.init)(jax.random.key(0), objective, batch)
    if apart:
        batch = jax.tree.map(lambda leaf: jnp.stack([jnp.roll(leaf, k, axis=0)[:4] for k in range(2)]), batch)

    def stepped() -> tuple[Any, int]:
        step = jax.jit(lambda *arguments: ENSEMBLE.step(*arguments)).trace(
            jax.random.clone(key), state, batch, objective
        )
        return step.lower().compile()(jax.random.clone(key), state, batch, objective), str(step.jaxpr).count("conv_gen")

    (unrolled, info), convolutions = stepped()
    looping(monkeypatch, True)
    (mapped, other), at_once = stepped()
    assert convolutions == 2 * at_once, "one convolution for all members at once, one for each where they are apart"
    assert_close(unrolled, mapped, 1e-5)
    assert_close(info, other, 1e-5)
    alone = jax.jit(ENSEMBLE.base.step)
    for k, own in enumerate(jax.random.split(jax.random.clone(key))):
        here = lambda leaf: leaf[k]  # noqa: B023  (used at once)
        member, _ = alone(own, jax.tree.map(here, state), jax.tree.map(here, batch) if apart else batch, objective)
        assert_close(jax.tree.map(here, unrolled), member, 1e-5)


@pytest.mark.parametrize(
    ("algorithm", "batch_size"),
    [
        pytest.param(adam(0.05), 10, id="whole", marks=LONG),
        pytest.param(adam(0.05), 4, id="batches"),
        pytest.param(ENSEMBLE, 4, id="members", marks=LONG),
    ],
)
def test_a_run_step_by_step_is_the_run_in_scans(
    algorithm: Any, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two epochs and a part of a third, the last batch of each half padding, orders and keys the same."""
    scans = []

    class Counted:
        def __init__(self, scan: Any) -> None:
            self.scan, self.lower = scan, scan.lower

        def __call__(self, *arguments: Any) -> Any:
            scans.append(1)
            return self.scan(*arguments)

    for name in ("scan_whole", "scan_batches", "scan_whole_lightly", "scan_batches_lightly", "scan_chains"):
        monkeypatch.setattr(schedule, name, Counted(getattr(schedule, name)))

    def fitted() -> Any:
        return lamu.fit(MODEL, (X, Y), algorithm, steps=7, batch_size=batch_size)

    by_steps = fitted()
    assert not scans
    looping(monkeypatch, True)
    in_scans = fitted()
    assert scans
    assert_close(by_steps.posterior.belief, in_scans.posterior.belief, 1e-6)
    for name in ("loss", "residual"):
        np.testing.assert_allclose(by_steps.history[name], in_scans.history[name], rtol=1e-6, atol=1e-9)


POOLED = """
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
import lamu
from lamu.algorithms.descent import LocalReparameterisation
from lamu.data import Batch
from lamu.families.location_scale import LocationScale
from lamu.objective import BatchLoss, Objective, NetworkParameters
rng = np.random.default_rng(0)
model = lamu.Model(lamu.networks.ConvNet((3,), (5,), kernel=3), lamu.likelihoods.Categorical(3))
batch = Batch(jnp.asarray(rng.normal(size=(4, 6, 6))), jnp.asarray([0, 2, 1, 1]), jnp.ones(4), jnp.ones(4))
params, _ = model.init(jax.random.key(0), batch)
loss = BatchLoss(Objective(model, 10.0), batch, {}, NetworkParameters(), params["likelihood"], conjugate=True)
scale = jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.1), params["network"])
value = lambda m, key: LocalReparameterisation().value(key, LocationScale(m, scale), loss)[0]
slope = lambda key: jax.grad(value)(params["network"], key)
keys = jax.random.split(jax.random.key(1), 6)
looped, each = jax.jit(lambda keys: jax.lax.map(slope, keys))(keys), [jax.jit(slope)(key) for key in keys]
for one, *others in zip(jax.tree.leaves(looped), *map(jax.tree.leaves, each)):
    np.testing.assert_allclose(one, np.stack(others), rtol=1e-9, atol=1e-12)
"""


@pytest.mark.stress
def test_pooling_has_one_gradient_however_it_is_compiled() -> None:
    """With the compiler's shipped settings, under which `jnp.max` over the window lost the gradient of some kernels."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    subprocess.run([sys.executable, "-c", POOLED], check=True, env=environment)
