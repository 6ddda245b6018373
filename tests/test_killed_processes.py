"""A run of two processes of which one is killed (SIGKILL) ends, started again, as if nothing had been."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from lamu.running.checkpoints import CheckpointError, Checkpoints, Snapshot

AXES = {"adam": "model", "ivon": "model", "laplace": "data", "sghmc": "runs", "deep_ensemble": "runs"}


def parts(name: str) -> tuple[Any, Any, dict[str, Any]]:
    """Model and data, algorithm, and options."""
    import lamu

    rng = np.random.default_rng(0)
    x = rng.normal(size=(48, 4))
    data = x, x @ np.array([1.0, -1.0, 0.5, 0.2]) + 0.3 * rng.normal(size=48)
    model, a = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Gaussian(0.5)), lamu.algorithms
    if name == "sghmc":
        sampler = lamu.mcmc.sghmc(chains=4, warmup=64, draws=1600, thinning=2)
        return (model, data), sampler, {"batch_size": 12}
    algorithm = {
        "adam": a.adam,
        "ivon": lambda: a.ivon(0.1),
        "laplace": a.laplace,
        "deep_ensemble": lambda: a.deep_ensemble(a.adam(), members=4),
    }[name]()
    return (model, data), algorithm, {"batch_size": 10, "steps": 4000, "validation": 0.2}


def child(number: int, processes: int, port: int, name: str, folder: str, moment: float, what: str) -> None:
    """What a process does; `moment` in blocks of steps, or the number of a write, when it is killed."""
    if processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        at = {"num_processes": processes, "process_id": number, "heartbeat_timeout_seconds": 10}
        jax.distributed.initialize(f"127.0.0.1:{port}", **at)
    import lamu

    die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    if what == "write" and moment:
        from lamu import store
        from lamu.running.sharding import Shards

        left = [int(moment)]

        def cut(write: Any) -> Any:
            def then_die(*arguments: Any) -> None:
                left[0] -= 1
                if not left[0]:  # files are there, and the others not yet
                    write(*arguments)
                    die()
                write(*arguments)

            return then_die

        Shards.write = staticmethod(cut(Shards.write))
        store.write_into = cut(store.write_into)
    started: list[int] = []

    def seen(*_: Any) -> None:
        started.append(1)
        if what == "moment" and len(started) == int(moment):
            timer = threading.Timer(moment % 1 / 5, die)
            timer.daemon = True
            timer.start()

    (model, data), algorithm, options = parts(name)
    axis, devices = AXES[name], jax.device_count()
    shape, names = ((2, devices // 2), ("data", "model")) if axis == "model" else ((devices,), (axis,))
    mesh = jax.make_mesh(shape, names)
    keep = lamu.Checkpoints(folder, every=0.0)
    fit = lamu.fit(model, data, algorithm, mesh=mesh, checkpoint=keep, resume=True, callbacks=[seen], **options)
    belief = jax.tree.leaves(fit.posterior.belief)
    leaves = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in belief]
    np.savez(f"{folder}/end-{number}.npz", *map(np.asarray, leaves), fit.history["loss"])


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(jax.numpy.result_type(leaf), jax.dtypes.prng_key)


def run(name: str, folder: Path, kills: tuple[float, float] = (0, 0), what: str = "", processes: int = 2) -> list[int]:
    """Runs the processes to their end, and returns their exit codes."""
    folder.mkdir(exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={4 // processes}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
    started = []
    try:
        for number in range(processes):
            words = [number, processes, port, name, folder, kills[number], what]
            command = [sys.executable, "-m", "tests.test_killed_processes", *map(str, words)]
            with open(folder / f"log-{number}", "w") as log:
                started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        return [process.wait(400) for process in started]
    finally:
        for process in started:
            process.kill()


def end(folder: Path, number: int = 0) -> list[np.ndarray]:
    with np.load(folder / f"end-{number}.npz") as arrays:
        return [arrays[name] for name in arrays.files]


def logs(folder: Path) -> str:
    return "\n".join((folder / f"log-{number}").read_text()[-2000:] for number in range(2))


@pytest.mark.stress
@pytest.mark.parametrize("name", AXES)
def test_killed_at_ten_moments_either_process_resumes_to_the_same_bits(name: str, tmp_path: Path) -> None:
    """Eight within some blocks of steps, two while a checkpoint is written; then with other processes to 1e-6."""
    assert run(name, tmp_path / "whole") == [0, 0], logs(tmp_path / "whole")
    whole, cut = end(tmp_path / "whole"), tmp_path / "cut"
    draw = np.random.default_rng(sum(map(ord, name)))
    kills = [("moment", float(draw.uniform(1, 4))) for _ in range(8)] + [("write", 2.0), ("write", 3.0)]
    for number, (what, moment) in enumerate(draw.permutation(np.array(kills, object))):
        who = number % 2
        codes = run(name, cut, (moment, 0.0) if who == 0 else (0.0, moment), what)
        assert codes[who] == -signal.SIGKILL, logs(cut)
        assert codes[1 - who] != 0, logs(cut)
        if number == 3:  # a copy of what is there by now goes on in one process with four devices
            subprocess.run(["cp", "-r", cut, tmp_path / "other"], check=True)
    assert run(name, cut) == [0, 0], logs(cut)
    for process in range(2):
        for one, other in zip(whole, end(cut, process), strict=True):
            np.testing.assert_array_equal(one, other)
    assert run(name, tmp_path / "other", processes=1) == [0]
    for one, other in zip(whole, end(tmp_path / "other"), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)


def sharded() -> tuple[jax.Array, Any]:
    """An array on all devices, and a function that reads it back laid out in another way."""
    mesh = jax.make_mesh((jax.device_count(),), ("model",))
    at = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("model"))
    return jax.device_put(np.arange(8.0 * jax.device_count()).reshape(-1, 4), at), at


def test_shards_are_read_whole_and_what_is_missing_or_altered_is_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    array, _ = sharded()
    keys = jax.random.split(jax.random.key(3), 2)
    content = {"w": array, "keys": keys, "n": 3}
    monkeypatch.setattr("lamu.running.checkpoints.is_sharded", lambda leaf: isinstance(leaf, jax.Array))
    keeper = Checkpoints(tmp_path)
    snapshot = Snapshot.of(7, content, copy=True)
    snapshot.write(keeper.new_draft(7), whole=True)
    assert keeper.latest() is None  # until all have written
    assert keeper.publish(7, None)
    like = {"w": jax.ShapeDtypeStruct(array.shape, array.dtype), "keys": keys, "n": 0}
    found, _, _ = keeper.restore(7, like)
    np.testing.assert_array_equal(found["w"], array)
    np.testing.assert_array_equal(jax.random.key_data(found["keys"]), jax.random.key_data(keys))
    assert found["n"] == 3
    (chunk,) = (path for path in (tmp_path / "step-000000000007").rglob("c/0/0") if path.stat().st_size > 60)
    bits = bytearray(chunk.read_bytes())
    bits[5] ^= 1
    chunk.write_bytes(bits)
    with pytest.raises(CheckpointError, match="altered after it was saved"):
        keeper.restore(7, like)
    chunk.unlink()
    with pytest.raises(CheckpointError, match="altered after it was saved"):
        keeper.restore(7, like)


if __name__ == "__main__":
    child(*map(int, sys.argv[1:4]), *sys.argv[4:6], float(sys.argv[6]), sys.argv[7])
