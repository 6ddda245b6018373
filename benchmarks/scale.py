"""What a step costs on many accelerators: a small model, fed with what compiled programs are counted to do.

    python -m benchmarks.scale                        the tables of docs/scale_out.md
    python -m benchmarks.scale --check                the model beside what can be measured on this machine
    python -m benchmarks.scale --peak 990e12 --efficiency 0.4 --bandwidth 3.35e12 --link 50e9 --rows 4096

Counted, for one step of each algorithm on an MLP of a million weights, from the program that XLA compiles for one
device and for eight (forced host devices): operations a weight and row, bytes a weight that a device holds from step to
step and beside them, bytes a weight that the axis "data" sums, and bytes a row and unit that the axis "model"
exchanges. From these and from the rates that are given (of one accelerator, and of its link to the others):

    memory   = (weights * (held + beside) + 4 * rows * units of the layers) / devices of "model"
    compute  = operations * weights * rows / (peak * efficiency), or the state's bytes / bandwidth where that is more
    sum      = 2 (D - 1) / D * summed bytes / link            (a ring; not hidden behind the backward pass)

Rows are those of one device, so that the batch grows with the devices of "data". No accelerator measured any of it.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from dataclasses import dataclass
from typing import Any

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

import jax
import numpy as np

import lamu
from lamu.data import Arrays
from lamu.objective import Objective
from lamu.running import compiled_steps
from lamu.running.sharding import Devices

A = lamu.algorithms
ALGORITHMS = {
    "sgd, momentum": A.sgd(0.1, momentum=0.9),
    "adam": A.adam(),
    "sam": A.sam(),
    "ivon": A.ivon(),
    "vogn": A.vogn(),
    "bsam": A.bsam(),
    "slang": A.slang(),
    "noisy_kfac": A.noisy_kfac(),
}
# Those whose steps gather factors or directions over "model": bytes that grow with the weights, which is not modelled.
GATHERED = ("slang", "noisy_kfac")
ROWS, FEW, DEVICES = 16, 8, 8
WIDTH, LAYERS = 704, 2  # of the network that is counted: a million weights in two square layers
SIZES = (1e7, 1e8, 1e9, 1e10)
COUNTS = (1, 8, 64, 512)
DEPTH = 48  # layers of the networks of the tables, which are square
_BYTES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "pred": 1, "u8": 1, "s8": 1}


@dataclass(frozen=True)
class Machine:
    """Rates of one accelerator.

    Attributes:
        peak: operations a second.
        efficiency: the part of them that a step reaches.
        bandwidth: bytes a second of its memory.
        near: bytes a second to the others of a machine, up to eight.
        link: bytes a second to those of other machines.
        memory: bytes.
        rows: rows that it takes in a step.
    """

    peak: float = 990e12
    efficiency: float = 0.4
    bandwidth: float = 3.35e12
    near: float = 450e9
    link: float = 50e9
    memory: float = 80e9
    rows: int = 4096

    def wire(self, devices: int) -> float:
        """Returns bytes a second between so many devices."""
        return self.near if devices <= DEVICES else self.link


@dataclass(frozen=True)
class Counts:
    """What a step of an algorithm is counted to do.

    Attributes:
        operations: a weight and row.
        held: bytes a weight from step to step.
        beside: bytes a weight while a step runs, at most.
        summed: bytes a weight that the axis "data" sums.
        parts: the share of the state that one of eight devices of "model" holds.
        exchanged: bytes a row and unit of a layer that the axis "model" exchanges.
    """

    operations: float
    held: float
    beside: float
    summed: float
    parts: float
    exchanged: float


def square(width: int, layers: int = LAYERS, rows: int = ROWS) -> tuple[Any, np.ndarray, np.ndarray]:
    """Returns a model with square layers, and rows for it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4 * rows, width)).astype(np.float32)
    network = lamu.networks.MLP((width,) * layers)
    return lamu.Model(network, lamu.likelihoods.Gaussian(1.0)), x, x[:, 0]


def compiled(algorithm: Any, width: int = WIDTH, rows: int = ROWS, **axes: int) -> tuple[Any, int]:
    """Returns one compiled step over a mesh, and the number of weights."""
    model, x, y = square(width, rows=rows)
    axes = axes or {"data": 1}
    devices = Devices.of(jax.make_mesh(tuple(axes.values()), tuple(axes)), algorithm)
    objective, data = devices.replicate((Objective(model, float(len(x))), Arrays.of((x, y))))
    key, spread, batch = jax.random.key(0), devices.distribute(algorithm), devices.place_batch(data.example(rows))
    shapes = jax.eval_shape(lambda: model.init(key, batch)[0])
    weights = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))
    state = compiled_steps.start(spread, key, objective, batch)
    return compiled_steps.one_step.lower(spread, state, objective, batch, key).compile(), weights


def exchanged(program: Any) -> float:
    """Returns the bytes of the results of a program's collectives."""
    found = re.findall(r"= (.*) (?:all-[a-z]+|reduce-scatter|collective-[a-z]+)(?:-start)?\(", program.as_text())
    arrays = [shape for line in found for shape in re.findall(r"([a-z]+\d*)\[([\d,]*)\]", line)]
    return float(sum(_BYTES.get(kind, 4) * np.prod([int(n) for n in sizes.split(",") if n]) for kind, sizes in arrays))


def counts(name: str) -> Counts:
    """Returns what a step does, by the programs for one and for eight devices."""
    algorithm = ALGORITHMS[name]
    one, weights = compiled(algorithm)
    fewer, _ = compiled(algorithm, rows=FEW)
    memory, cost = one.memory_analysis(), one.cost_analysis()
    # What does not grow with the rows (an update, a decomposition) is no pass of a network.
    operations = (cost["flops"] - fewer.cost_analysis()["flops"]) / (ROWS - FEW) / weights
    summed = exchanged(compiled(algorithm, data=DEVICES)[0]) / weights
    if name in GATHERED:
        parts = across = float("nan")
    else:
        apart, _ = compiled(algorithm, model=DEVICES)
        parts = apart.memory_analysis().argument_size_in_bytes / memory.argument_size_in_bytes
        across = exchanged(apart) / (ROWS * WIDTH * LAYERS)
    held = memory.argument_size_in_bytes / weights
    return Counts(operations, held, memory.temp_size_in_bytes / weights, summed, parts, across)


def seconds(found: Counts, weights: float, devices: int, machine: Machine) -> tuple[float, float]:
    """Returns the seconds of computing and of summing in a step whose rows are spread over devices."""
    passes = found.operations * weights * machine.rows / (machine.peak * machine.efficiency)
    moved = (2 * found.held + found.beside) * weights / machine.bandwidth
    ring = 2 * (devices - 1) / devices * found.summed * weights / machine.wire(devices)
    return max(passes, moved), ring


def apart(found: Counts, weights: float, devices: int, machine: Machine) -> tuple[float, float, float]:
    """Returns bytes a device, and the seconds of computing and of exchanging, with the state spread over "model"."""
    passes = found.operations * weights * machine.rows / (machine.peak * machine.efficiency * devices)
    moved = (2 * found.held + found.beside) * weights / machine.bandwidth / devices
    sent = found.exchanged * machine.rows * units(weights) * (devices - 1) / devices / machine.wire(devices)
    return room(found, weights, machine) / devices, max(passes, moved), sent


def units(weights: float) -> float:
    """Returns the units of all layers of a network of `DEPTH` square layers."""
    return (weights / DEPTH) ** 0.5 * DEPTH


def room(found: Counts, weights: float, machine: Machine) -> float:
    """Returns bytes of the state, of what a step holds beside it, and of the activations of a device's rows."""
    return (found.held + found.beside) * weights + 4 * machine.rows * units(weights)


def tables(machine: Machine) -> None:
    """Prints what is counted, and what follows for large networks."""
    found = {name: counts(name) for name in ALGORITHMS}
    print("| algorithm | operations a weight and row | bytes a weight: held | beside | summed |", end="")
    print(" of 8, held by one | exchanged a row and unit |\n|---|---|---|---|---|---|---|")
    for name, each in found.items():
        row = (each.operations, each.held, each.beside, each.summed)
        last = "– | –" if np.isnan(each.parts) else f"{each.parts:.2f} | {each.exchanged:.0f}"
        print(f"| `{name}` | " + " | ".join(f"{value:.1f}" for value in row) + f" | {last} |")
    for weights in SIZES:
        print(f"\n{weights:.0e} weights: milliseconds a step, computing + exchanging; in brackets GB a device\n")
        print('| algorithm | one | "data": 8 | 64 | 512 | "model": 8 | 64 | 512 |')
        print("|---" * (len(COUNTS) + 4) + "|")
        for name, each in found.items():
            print(f"| `{name}` | " + " | ".join(_cells(each, weights, machine)) + " |")


def _cells(each: Counts, weights: float, machine: Machine) -> list[str]:
    """The cells of a row: by "data", and by "model" from eight devices on."""
    alone = room(each, weights, machine)
    cells = []
    for devices in COUNTS:
        compute, ring = seconds(each, weights, devices, machine)
        cells.append(_cell(alone, compute, ring, machine))
    for devices in COUNTS[1:]:
        cells.append(_cell(*apart(each, weights, devices, machine), machine))
    return cells


def _cell(size: float, compute: float, exchange: float, machine: Machine) -> str:
    if not np.isfinite(size + exchange):
        return "–"
    if size > machine.memory:
        return f"too large ({size / 1e9:,.0f})"
    return f"{_short(1e3 * compute)} + {_short(1e3 * exchange)} ({_short(size / 1e9)})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1g}"


def check() -> None:
    """Prints what the model says of another size beside what the compiler and the clock say."""
    print("| algorithm | bytes held, model / compiler | of one in eight | seconds / sgd's: operations | clock |")
    print("|---|---|---|---|---|")
    first: tuple[float, float] | None = None
    for name, algorithm in ALGORITHMS.items():
        found, (large, weights) = counts(name), compiled(algorithm, 2 * WIDTH)
        held = large.memory_analysis().argument_size_in_bytes
        eighth = float("nan")
        if name not in GATHERED:
            eighth = compiled(algorithm, 2 * WIDTH, model=DEVICES)[0].memory_analysis().argument_size_in_bytes
        clock = measured(algorithm)
        first = first or (found.operations, clock)
        print(
            f"| `{name}` | {found.held * weights / held:.2f} | {found.parts * found.held * weights / eighth:.2f} | "
            f"{found.operations / first[0]:.2f} | {clock / first[1]:.2f} |",
            flush=True,
        )


def measured(algorithm: Any, rows: int = 512, steps: int = 10) -> float:
    """Returns the processor's seconds of a step, the least of three runs of some."""
    model, x, y = square(WIDTH, rows=rows)
    batch, objective = Arrays.of((x, y)).example(rows), Objective(model, float(len(x)))
    key = jax.random.key(0)
    state = compiled_steps.start(algorithm, key, objective, batch)
    program = compiled_steps.one_step.lower(algorithm, state, objective, batch, key).compile()
    found = []
    for _ in range(3):
        begun = time.process_time()
        for _ in range(steps):  # which give their state away
            state = jax.block_until_ready(program(algorithm, state, objective, batch, key))[0]
        found.append((time.process_time() - begun) / steps)
    return min(found)


def main() -> None:
    """Reads the command line, and prints the tables or the check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="the model beside what can be measured here")
    for name, value in vars(Machine()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    given = vars(parser.parse_args())
    if given.pop("check"):
        check()
    else:
        tables(Machine(**given))


if __name__ == "__main__":
    main()
