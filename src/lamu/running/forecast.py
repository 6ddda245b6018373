"""Memory estimate of a run: its state and draws from shapes, and a step from its compiled program."""

# The sizes of the state with its copies and of a sampler's draws are known before anything is computed, and checked at
# once. The compiler reports the memory of a step for the first block's program, which the run then uses: nothing is
# compiled twice.

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import jax

from lamu import memory
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.stream import Stream
from lamu.objective import Objective
from lamu.protocol import Algorithm, runnable
from lamu.running.compiled_steps import draw_of, handle, start
from lamu.running.history import count
from lamu.running.schedule import Block
from lamu.typing import State

__all__ = ["Forecast", "check_memory", "memory_checked"]

_DRAWS_A_BLOCK, _STEPS_A_BLOCK = 64, 1024


@dataclass(frozen=True)
class Forecast:
    """The memory of a run, in bytes."""

    state: int  # the state and its copies
    draws: int  # a sampler's draws
    data: int  # the rows, which are already in memory and not counted
    step: int = 0  # the memory of a step beyond these; zero before it is compiled
    from_file: int = 0  # the part of the rows read from a mapped file for this run, which is counted

    @property
    def total(self) -> int:
        """The total memory beyond data that were already in memory."""
        return self.state + self.step + self.draws + self.from_file

    def __str__(self) -> str:
        """The parts, with units."""
        parts = (("the state and its copies", self.state), ("a step", self.step), ("draws", self.draws))
        parts += (("rows from a file", self.from_file),)
        return ", ".join(f"{name} {memory.shown(size)}" for name, size in parts if size)

    def require_room(self) -> None:
        """Raises a ValueError, with the parts and a remedy, if the run needs more than `lamu.memory.limit()`."""
        helps = "lower batch_size, members or chains, take a diagonal precision or a smaller network"
        if self.from_file > max(self.state, self.step, self.draws):
            helps = "give an object that yields batches of rows (with data_size=N)"
        elif self.draws > max(self.state, self.step):
            helps = "give checkpoint=folder, where draws are kept on disk, ask for fewer draws"
        elif self.step > self.state:
            wrappers = "MixedPrecision" if jax.default_backend() == "cpu" else "MixedPrecision or Rematerialised"
            helps = (
                f"give microbatch_size, wrap the network in lamu.networks.{wrappers}, lower batch_size, members or "
                "chains, take a smaller network"
            )
        instead = f"{helps}, or give max_memory={memory.at_least(self.total)!r} or more"
        memory.demand(self.total, f"this run ({self})", instead)


def check_memory(
    algorithm: Algorithm,
    objective: Objective,
    rows: Arrays | Stream,
    example: Batch,
    batch_size: int,
    keeps_best: bool = False,
    on_disk: bool = False,
    from_file: int = 0,
) -> Forecast:
    """Returns the memory of a run without its steps, and refuses one that cannot fit."""
    # The algorithm checks the memory of its work after the steps itself.
    key = jax.eval_shape(lambda: jax.random.key(0))
    runnable(algorithm).check_memory(objective, lambda: jax.eval_shape(objective.model.init, key, example)[0])
    state = start.eval_shape(handle(algorithm), key, objective, example)
    # The loop keeps a copy while it donates the state.
    state_bytes = (3 if keeps_best else 2) * memory.bytes_of(state)
    draws = 0
    traits = algorithm.traits
    if traits.length is not None:
        total, per_epoch = count(traits, traits.length), 1
        if isinstance(rows, Arrays) and traits.batching != "full":
            per_epoch = math.ceil(rows.count / batch_size)
        block = math.ceil(max(_DRAWS_A_BLOCK, min(per_epoch, _STEPS_A_BLOCK)) / traits.thinning)
        # The draws of a block are on the device at once. All draws are concatenated at the end.
        kept = min(block, total) + (0 if on_disk else 2 * total)
        draws = kept * memory.bytes_of(draw_of(handle(algorithm), state, objective, example))
    forecast = Forecast(state_bytes, draws, memory.bytes_of(rows), from_file=from_file)
    forecast.require_room()
    return forecast


def memory_checked(
    forecast: Forecast, blocks: Iterator[Block], state: State, max_memory: object = None
) -> Iterator[Block]:
    """Yields the blocks of a run, after compiling its first program and checking its memory."""
    first = next(blocks, None)
    if first is None:
        return
    with memory.within(max_memory):
        corrected = replace(forecast, step=first.held(state))
        logging.getLogger("lamu").info(
            "The run takes about %s: %s. The data take %s beside. %s may be used.",
            memory.shown(corrected.total), corrected, memory.shown(corrected.data), memory.shown(memory.limit()),
        )  # fmt: skip
        corrected.require_room()
    yield first
    yield from blocks
