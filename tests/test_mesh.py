"""Runs over several devices: the same run, really spread, with the checkpoints and errors that belong to it.

A process of its own has four devices, which XLA makes of one processor, and runs all of `CHECKS`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Any, ClassVar

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

import lamu
from lamu.data import Arrays, Batch
from lamu.objective import Objective
from lamu.protocol import Choices, Traits
from lamu.record import record
from lamu.running import compiled_steps
from lamu.running.compiled_steps import OneDevice
from lamu.running.sharding import Devices, DistributedAlgorithm

rng = np.random.default_rng(0)
X = rng.normal(size=(46, 3))
Y = X @ np.array([1.0, -1.0, 0.5]) + 0.3 * rng.normal(size=46)
MODEL = lamu.Model(lamu.networks.MLP((5,)), lamu.likelihoods.Gaussian())
LINE = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5))
A = lamu.algorithms
MEMBERS = A.deep_ensemble(A.adam(1e-2), members=4)
CHAINS = lamu.mcmc.hmc(chains=4, warmup=6, draws=4)


def mesh(**axes: int) -> Mesh:
    """A mesh of the first devices, by the sizes of its axes."""
    return jax.make_mesh(tuple(axes.values()), tuple(axes))


def assert_near(one: Any, other: Any, tolerance: float = 1e-9) -> None:
    """Rounding: the checks run in float64."""
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def assert_apart(state: Any, parts: int, shared: tuple[str, ...] = ()) -> None:
    """Each of the four devices holds its own runs and no others, and all of what is shared."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        whole = jax.tree_util.keystr(path[:1], simple=True) in shared
        own = leaf.shape if whole else (leaf.shape[0] // parts, *leaf.shape[1:])
        assert len(leaf.sharding.device_set) == 4, (path, leaf.sharding)
        assert {shard.data.shape for shard in leaf.addressable_shards} == {own}, (path, leaf.sharding)


def members() -> None:
    """The members are the same, each on its device, in validation too; the posterior is on one."""
    options: dict[str, Any] = {"epochs": 3, "batch_size": 10, "validation": 0.2}
    alone = lamu.fit(MODEL, (X, Y), MEMBERS, **options)
    for devices, parts in ((mesh(runs=4), 4), (mesh(runs=2, data=2), 2)):
        spread = lamu.fit(MODEL, (X, Y), MEMBERS, mesh=devices, **options)
        assert_near(spread.posterior.belief, alone.posterior.belief)
        assert_near(spread.history, alone.history)
        assert_apart(spread.state, parts)
        assert {len(leaf.devices()) for leaf in jax.tree.leaves(spread.posterior.belief)} == {1}


def chains() -> None:
    """The chains are the same, each on its device, with what each has learned; the draws come to the host."""
    alone, spread = (lamu.fit(LINE, (X, Y), CHAINS, mesh=devices) for devices in (None, mesh(runs=4)))
    assert_near(spread.posterior.samples, alone.posterior.samples, 1e-6)
    assert_apart(spread.state, 4, CHAINS.traits.shared)


def one_after_the_other() -> None:
    """Where members do not step under one vmap, the compiler would leave them all on every device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lamu.Model, "scan_friendly", lambda *_: False)
        alone, spread = (
            lamu.fit(LINE, (X, Y), MEMBERS, epochs=1, batch_size=10, mesh=devices)
            for devices in (None, mesh(runs=2, data=2))
        )
    assert_near(spread.posterior.belief, alone.posterior.belief)
    assert_apart(spread.state, 2)


def exchanged() -> None:
    """Members that are apart exchange numbers, and no weights: the mean of their losses, the largest residual."""
    devices = Devices.of(mesh(runs=4), MEMBERS)
    objective, rows = devices.replicate((Objective(MODEL, 46.0), Arrays.of((X, Y))))
    spread, keys = devices.distribute(MEMBERS), devices.replicate((jax.random.key(1), jax.random.key(2)))
    state = compiled_steps.start(spread, jax.random.key(0), objective, rows.full())
    lowered = compiled_steps.scan_batches.lower(spread, state, objective, rows, 0, 5, *keys, 5, 10, True, 1)
    program = lowered.compile().as_text()
    moved = re.findall(r"= (\S+) (?:all-\w+|collective-\w+|reduce-scatter)\(", program)
    assert set(moved) == {"f64[]"}, moved


@record
class Watched:
    """An algorithm, and how the rows that it is shown lie."""

    of: Any
    traits = Traits()
    choices = Choices("point", "Delta", "none")
    seen: ClassVar[list[Any]] = []

    def init(self, key: Any, objective: Any, batch: Any) -> Any:
        return self.of.init(key, objective, batch)

    def step(self, key: Any, state: Any, batch: Any, objective: Any) -> Any:
        jax.debug.inspect_array_sharding(batch.x, callback=self.seen.append)
        return self.of.step(key, state, batch, objective)

    def posterior(self, key: Any, state: Any, objective: Any, data: Any, trace: Any) -> Any:
        return self.of.posterior(key, state, objective, data, trace)


def rows() -> None:
    """The rows of a batch lie apart, also those that four does not divide; sums over them are the same."""
    batches = [(X[:20], Y[:20]), (X[20:], Y[20:])]
    for data, options, looked in (((X, Y), {"batch_size": 10}, 1), ((X, Y), {}, 1), (batches, {"data_size": 46}, 2)):
        Watched.seen.clear()
        alone = lamu.fit(MODEL, data, A.adam(0.1), epochs=3, **options)
        spread = lamu.fit(MODEL, data, Watched(A.adam(0.1)), epochs=3, mesh=mesh(data=4), **options)
        assert_near(spread.posterior.belief, alone.posterior.belief)
        assert_near(spread.history, alone.history)
        assert_apart({"state": spread.state}, 1, ("state",))
        assert [found.spec for found in Watched.seen] == looked * [PartitionSpec("data")], (options, Watched.seen)


def resumed() -> None:
    """A run that was cut short goes on from its last checkpoint with the same bits, and on other devices too."""
    for algorithm, model, options in ((MEMBERS, MODEL, {"steps": 128}), (CHAINS, LINE, {})):
        whole = lamu.fit(model, (X, Y), algorithm, mesh=mesh(runs=4), **options)
        ends = []
        for devices in (mesh(runs=4), None):
            with tempfile.TemporaryDirectory() as folder:
                keep = lamu.Checkpoints(folder, every=0.0)
                with contextlib.suppress(Cut):
                    lamu.fit(model, (X, Y), algorithm, mesh=mesh(runs=4), checkpoint=keep, callbacks=[cut], **options)
                resume: dict[str, Any] = {"checkpoint": keep, "resume": True, **options}
                ends.append(lamu.fit(model, (X, Y), algorithm, mesh=devices, **resume))
                done = lamu.fit(model, (X, Y), algorithm, mesh=mesh(runs=4), **resume)
                assert_apart(done.state, 4, algorithm.traits.shared)  # though no step was left to make
        for a, b in zip(
            jax.tree.leaves(whole.posterior.belief), jax.tree.leaves(ends[0].posterior.belief), strict=True
        ):
            np.testing.assert_array_equal(a, b)
        assert_apart(ends[0].state, 4, algorithm.traits.shared)
        assert_near(ends[1].posterior.belief, whole.posterior.belief, 1e-6)


class Cut(Exception):
    """What ends a run from outside."""


def cut(done: int, last: Any) -> None:
    raise Cut


def mistakes() -> None:
    """One sentence each, before anything is computed."""
    adam = A.adam()
    for devices, algorithm, words in (
        (
            mesh(runs=4),
            A.deep_ensemble(adam, members=6),
            "6 runs side by side cannot be shared evenly by the 4 devices",
        ),
        (mesh(runs=4), lamu.mcmc.hmc(chains=2), "2 runs side by side .* ask for a multiple of 4 chains or members"),
        (mesh(runs=2, data=2), adam, 'one run, and the axis "runs" has 2 devices .* name that axis "data"'),
        (mesh(batch=4), adam, r"axes of the mesh are \('batch',\); name them \"runs\""),
        (AbstractMesh((4,), ("runs",)), adam, "is not a mesh of devices; give for instance"),
        ((4,), adam, r"mesh=\(4,\) is not a mesh of devices"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            lamu.fit(LINE, (X, Y), algorithm, mesh=devices)
    with jax.set_mesh(mesh(data=4)), pytest.raises(ValueError, match="with the explicit axes"):
        lamu.fit(LINE, (X, Y), adam, mesh=mesh(data=4))


CHECKS = (members, chains, one_after_the_other, exchanged, rows, resumed, mistakes)


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """What went wrong, by check; empty where nothing did."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
    command = [sys.executable, "-m", "tests.test_mesh"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_over_four_devices(check: str, found: dict[str, str]) -> None:
    assert not found[check], found[check]


ROWS = {**lamu.algorithms.registry(), **lamu.mcmc.registry()}
APART = {name: row.factory() for name, row in ROWS.items() if row.factory().traits.runs > 1}


@pytest.mark.parametrize("name", APART)
def test_the_leading_axis_of_a_state_is_that_of_its_runs(name: str) -> None:
    """What an algorithm says is shared is there, and has no axis of runs; all else has."""
    traits, batch = APART[name].traits, Batch.of(X, Y)
    state = jax.eval_shape(lambda key: APART[name].init(key, Objective(LINE, 46.0), batch), jax.random.key(0))
    assert all(hasattr(state, part) for part in traits.shared)
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        shared = jax.tree_util.keystr(path[:1], simple=True) in traits.shared
        assert shared or leaf.shape[:1] == (traits.runs,), (path, leaf.shape)


def test_one_device_is_a_mesh_too() -> None:
    devices = Devices.of(mesh(runs=1), CHAINS)
    assert isinstance(devices.distribute(CHAINS), DistributedAlgorithm)
    assert OneDevice().distribute(CHAINS) is CHAINS
    alone, one = (lamu.fit(LINE, (X, Y), MEMBERS, epochs=1, mesh=where) for where in (None, mesh(runs=1, data=1)))
    assert_near(one.posterior.belief, alone.posterior.belief)


def main() -> None:
    """Runs all checks, and prints what went wrong."""
    found = {}
    for check in CHECKS:
        start = time.process_time()
        try:
            with pytest.MonkeyPatch.context() as patch:
                if check is not members:  # one measures it after runs over several devices, on one in any case
                    patch.setattr("lamu.running.fixed_point.convergence_of", lambda *arguments: None)
                check()
            found[check.__name__] = ""
        except Exception:
            found[check.__name__] = traceback.format_exc()[-2000:]
        print(check.__name__, round(time.process_time() - start, 1), file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
