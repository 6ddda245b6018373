"""A run over the devices of two processes, on the loopback address: the same run, and an error of one ends both."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest


def data() -> tuple[np.ndarray, np.ndarray]:
    """Rows of which no share is like another."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(48, 4))
    return x, x @ np.array([1.0, -1.0, 0.5, 0.2]) + 0.3 * rng.normal(size=48)


def options(folder: str, steps: int = 40) -> dict[str, Any]:
    """Those that all runs have in common; an epoch has four steps."""
    import lamu

    keep = lamu.Checkpoints(folder, every=0.0)
    return {"steps": steps, "batch_size": 10, "validation": 0.2, "checkpoint": keep, "resume": True}


def parts() -> tuple[Any, Any]:
    """The model, and the algorithm."""
    import lamu

    return lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Gaussian(0.5)), lamu.algorithms.ivon(0.1)


def numbers(fit: Any) -> list[float]:
    """What is compared."""
    import jax

    leaves = jax.tree.leaves(fit.posterior.belief)
    return np.concatenate(
        [np.ravel(leaf) for leaf in leaves] + [fit.history["validation_nll"], fit.history["loss"]]
    ).tolist()


def child(number: int, port: int, what: str, folder: str) -> None:
    """What each of the two processes does."""
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=number, heartbeat_timeout_seconds=10)
    import lamu

    (x, y), (model, algorithm) = data(), parts()
    axes = (4, 1) if what == "data" else (2, 2)
    mesh = jax.make_mesh(axes, ("data", "model"))
    if what == "fails":

        def fail(done: int, last: Any) -> None:
            if number == 1:
                raise ValueError("the disk of process one is full")

        lamu.fit(model, (x, y), algorithm, steps=80, mesh=mesh, callbacks=[fail])
    elif what == "stream":
        own = [
            (x[start + 6 * number : start + 6 * number + 6], y[start + 6 * number : start + 6 * number + 6])
            for start in range(0, 48, 12)
        ]
        fit = lamu.fit(
            model,
            own,
            lamu.algorithms.ivon(0.1, hess_init=1.0),
            steps=20,
            data_size=48,
            mesh=jax.make_mesh((4,), ("data",)),
        )
        print(json.dumps(np.asarray(fit.history["loss"]).tolist()))
    else:
        share = slice(None) if what != "share" else (slice(0, 20) if number == 0 else slice(20, None))
        fit = lamu.fit(model, (x[share], y[share]), algorithm, mesh=mesh, **options(folder))
        print(json.dumps(numbers(fit)))


def both(what: str, folder: str, kill: float | None = None) -> list[tuple[str, str, int]]:
    """Output, errors and exit code of the two processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
    commands = [[sys.executable, "-m", "tests.test_processes", str(i), str(port), what, folder] for i in range(2)]
    pipe: dict[str, Any] = {"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, **pipe) for command in commands]
    try:
        if kill is not None:
            time.sleep(kill)
            started[1].kill()
        return [(*process.communicate(timeout=240), process.returncode) for process in started]
    finally:
        for process in started:
            process.kill()


def alone(folder: str, **more: Any) -> Any:
    """The same run in this process."""
    import jax

    import lamu

    with jax.enable_x64(True):
        model, algorithm = parts()
        return lamu.fit(model, data(), algorithm, **{**options(folder), **more})


@pytest.fixture(scope="module")
def of_one() -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        return numbers(alone(folder))


@pytest.mark.parametrize("what", ["share", pytest.param("data", marks=pytest.mark.stress)])
def test_two_processes_are_one_run(what: str, of_one: list[float], tmp_path: Path) -> None:
    """Whether both were given all rows or each a share; the checkpoint, of both's shards, goes on in one process."""
    found = both(what, str(tmp_path))
    assert bool(list(tmp_path.rglob("zarr.json"))) == (what == "share")
    for out, errors, code in found:
        assert code == 0, errors[-2000:]
        np.testing.assert_allclose(json.loads(out.splitlines()[-1]), of_one, rtol=1e-5, atol=1e-7)
    longer = alone(str(tmp_path), steps=60)
    assert len(longer.history["loss"]) == 60
    np.testing.assert_allclose(longer.history["loss"][:40], of_one[-40:], rtol=1e-5)


@pytest.mark.stress
def test_each_process_reads_a_stream_of_its_own(tmp_path: Path) -> None:
    """Two processes with six rows a step each are one with twelve; h0 is given, because it is measured on a batch."""
    import jax

    import lamu

    found = both("stream", str(tmp_path))
    assert [code for *_, code in found] == [0, 0], found[0][1][-2000:]
    (x, y), (model, _) = data(), parts()
    with jax.enable_x64(True):
        whole = [(x[start : start + 12], y[start : start + 12]) for start in range(0, 48, 12)]
        fit = lamu.fit(model, whole, lamu.algorithms.ivon(0.1, hess_init=1.0), steps=20, data_size=48)
    for out, *_ in found:
        np.testing.assert_allclose(json.loads(out.splitlines()[-1]), fit.history["loss"], rtol=1e-5)


@pytest.mark.stress
@pytest.mark.parametrize("kill", [8.0, 11.0, 14.0])
def test_a_killed_process_leaves_a_run_that_goes_on(kill: float, of_one: list[float], tmp_path: Path) -> None:
    """The other process ends too, by the watch that JAX keeps; started again, both end as if nothing had been."""
    both("share", str(tmp_path), kill)  # which both end, or this would run out of time
    for out, errors, code in both("share", str(tmp_path)):
        assert code == 0, errors[-2000:]
        np.testing.assert_allclose(json.loads(out.splitlines()[-1]), of_one, rtol=1e-5, atol=1e-7)


def test_an_error_of_one_process_ends_both_with_its_sentence(tmp_path: Path) -> None:
    (_, of_first, first), (_, of_second, second) = both("fails", str(tmp_path))
    assert first
    assert second
    assert "process 1 failed: ValueError: the disk of process one is full" in of_first
    assert "ValueError: the disk of process one is full" in of_second


if __name__ == "__main__":
    child(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
