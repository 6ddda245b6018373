"""The machine: its processor, what others take of it, and the peaks from which floors are counted."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Load", "commit", "counted", "floor", "machine", "measure_peaks"]

LIBRARIES = ("jax", "optax", "blackjax", "numpyro", "scikit-learn", "numpy")
SIDE, NUMBERS, SECONDS = 1024, 16 * 2**20, 3.0  # each within a slice that a busy machine gives


def machine() -> dict[str, Any]:
    """Returns the processor's name, cores, memory, the versions of libraries, the commit, and the load of a minute."""
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.is_file():
        names = [line.split(":")[1] for line in information.read_text().splitlines() if line.startswith("model name")]
        model = names[0].strip() if names else model
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()}, Python {platform.python_version()}",
        "versions": {name: metadata.version(name) for name in LIBRARIES if _installed(name)},
        "commit": commit(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def commit() -> str:
    """Returns the commit of the code that is measured, "" outside of a repository."""
    line = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(line, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def measure_peaks() -> dict[str, float]:
    """Returns operations a second of a large product of matrices, and bytes a second of a large copy, by JAX."""
    import jax
    import jax.numpy as jnp

    a = jnp.asarray(np.random.default_rng(0).standard_normal((SIDE, SIDE)), jnp.float32)
    long = jnp.zeros(NUMBERS, jnp.float32)
    product, scaled = jax.jit(lambda a: a @ a), jax.jit(lambda x: x * 1.5)

    def best(call: Any) -> float:
        call()
        times, end = [], time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            begun = time.perf_counter()
            call()
            times.append(time.perf_counter() - begun)
        return min(times)

    multiplied = best(lambda: product(a).block_until_ready())
    copied = best(lambda: scaled(long).block_until_ready())
    return {"operations": 2 * SIDE**3 / multiplied, "bytes": 2 * long.nbytes / copied}


def counted(program: tuple[Any, tuple[Any, ...]]) -> dict[str, float]:
    """Returns operations of a jitted function, the bytes of its arguments and results, and its temporary bytes."""
    function, arguments = program
    lowered = function.lower(*arguments)
    costs = lowered.cost_analysis() or {}
    if isinstance(costs, list):
        costs = costs[0]
    use = lowered.compile().memory_analysis()
    touched = use.argument_size_in_bytes + use.output_size_in_bytes
    return {"operations": float(costs.get("flops", 0.0)), "bytes": float(touched), "temporary": use.temp_size_in_bytes}


def floor(counts: dict[str, float], peaks: dict[str, float]) -> tuple[float, str]:
    """Returns the least seconds of a program, and what bounds it.

    All arithmetic at the peak of a product of matrices, or every argument read and every result written once.
    """
    bounds = {name: counts[name] / peaks[name] for name in ("operations", "bytes")}
    name = max(bounds, key=lambda name: bounds[name])
    return bounds[name], name


class Load:
    """Cores that *other* processes used during a block, None where /proc does not tell."""

    def __enter__(self) -> Load:
        self.begun, self.at_start = time.perf_counter(), self._others()
        self.cores: float | None = None
        return self

    def __exit__(self, *_: Any) -> None:
        now = self._others()
        if now is not None and self.at_start is not None:
            self.cores = max(0.0, now - self.at_start) / max(time.perf_counter() - self.begun, 1e-9)

    @staticmethod
    def _others() -> float | None:
        try:
            values = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        except OSError:
            return None
        own = os.times()
        busy = sum(values[index] for index in (0, 1, 2, 5, 6, 7)) / os.sysconf("SC_CLK_TCK")
        return busy - (own.user + own.system + own.children_user + own.children_system)
