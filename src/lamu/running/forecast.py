"""The memory of a run: its state and draws from shapes, and a step from the compiled program that the run uses.

The state with its copies and a sampler's draws are known before anything is computed, and refused at once. What a step
holds beside them the compiler says of the first block's program, which the run then uses: nothing is compiled twice.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax

from lamu import memory
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.stream import Stream
from lamu.objective import Objective
from lamu.protocol import Algorithm, runnable
from lamu.running.compiled_steps import draw_of, handle, start
from lamu.running.schedule import Block
from lamu.running.thinning import count

__all__ = ["Forecast", "foresee", "measured"]

_DRAWS_A_BLOCK, _STEPS_A_BLOCK = 64, 1024


@dataclass(frozen=True)
class Forecast:
    """What a run takes, in bytes.

    Attributes:
        state: the state and its copies.
        draws: a sampler's draws.
        data: the rows, which are there already and not counted.
        step: what a step holds beside them; zero before it is compiled.
        from_file: of the rows those that were read from a mapped file for this run, which are counted.

    Examples:
        >>> from lamu.running.forecast import Forecast
        >>> forecast = Forecast(state=2_000_000, draws=0, data=500, step=1_000_000)
        >>> forecast.total, str(forecast)
        (3000000, 'the state and its copies 2.0 MB, a step 1.0 MB')
    """

    state: int
    draws: int
    data: int
    step: int = 0
    from_file: int = 0

    @property
    def total(self) -> int:
        """What is taken beside data that were in memory already."""
        return self.state + self.step + self.draws + self.from_file

    def __str__(self) -> str:
        """The parts, as people write them."""
        parts = (("the state and its copies", self.state), ("a step", self.step), ("draws", self.draws))
        parts += (("rows from a file", self.from_file),)
        return ", ".join(f"{name} {memory.shown(size)}" for name, size in parts if size)

    def require_room(self) -> None:
        """Raises a ValueError where the run takes more than `lamu.memory.limit()`: the parts, and what makes it less.

        Examples:
            >>> from lamu import memory
            >>> from lamu.running.forecast import Forecast
            >>> with memory.within("1MB"):
            ...     Forecast(state=200_000, draws=0, data=0, step=900_000).require_room()
            Traceback (most recent call last):
                ...
            ValueError: this run (the state and its copies 200.0 kB, a step 900.0 kB) takes 1.1 MB and 1.0 MB may be \
used; lower batch_size, members or chains, take a diagonal precision or a smaller network, or give \
max_memory='1.1 MB' or more
        """
        helps = "lower batch_size, members or chains, take a diagonal precision or a smaller network"
        if self.from_file > max(self.state, self.step, self.draws):
            helps = "give an object that yields batches of rows (with data_size=N)"
        elif self.draws > max(self.state, self.step):
            helps = "give checkpoint=folder, where draws are kept on disk, ask for fewer draws"
        instead = f"{helps}, or give max_memory={memory.at_least(self.total)!r} or more"
        memory.demand(self.total, f"this run ({self})", instead)


def foresee(
    algorithm: Algorithm,
    objective: Objective,
    rows: Arrays | Stream,
    example: Batch,
    batch_size: int,
    keeps_best: bool = False,
    on_disk: bool = False,
    from_file: int = 0,
) -> Forecast:
    """Returns what a run will take but for its steps, and refuses one that cannot fit.

    What comes after the steps the algorithm foresees itself, and is asked first.

    Args:
        algorithm: the algorithm.
        objective: the loss.
        rows: the data, on the device already.
        example: rows for shapes, as `init` sees them.
        batch_size: rows a step, of data that the loop cuts.
        keeps_best: whether the best state is kept beside the last one.
        on_disk: whether draws are written to a folder.
        from_file: bytes of the rows that were read from a mapped file.

    Raises:
        ValueError: where it takes more than `lamu.memory.limit()`.

    Examples:
        >>> import lamu
        >>> from lamu.running.forecast import foresee
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=55.0))
        >>> rows = lamu.data.Arrays.of((x, y))
        >>> objective = lamu.objective.Objective(model, 442)
        >>> forecast = foresee(lamu.algorithms.ivon(), objective, rows, rows.example(4), batch_size=64)
        >>> forecast.state > 3 * 11 * 4  # mean, precision and momentum of eleven weights
        True
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    runnable(algorithm).foresee(objective, jax.eval_shape(objective.model.init, key, example)[0])
    state = jax.eval_shape(start, handle(algorithm), key, objective, example)
    # The loop keeps a copy while it gives the state away.
    held = (3 if keeps_best else 2) * memory.bytes_of(state)
    draws = 0
    traits = algorithm.traits
    if traits.length is not None:
        total, per_epoch = count(traits, traits.length), 1
        if isinstance(rows, Arrays) and traits.batching != "full":
            per_epoch = math.ceil(rows.count / batch_size)
        block = math.ceil(max(_DRAWS_A_BLOCK, min(per_epoch, _STEPS_A_BLOCK)) / traits.thinning)
        # Those of a block are on the device at once. All of them are put together at the end, from the parts.
        kept = min(block, total) + (0 if on_disk else 2 * total)
        draws = kept * memory.bytes_of(draw_of(handle(algorithm), state, objective, example))
    forecast = Forecast(held, draws, memory.bytes_of(rows), from_file=from_file)
    forecast.require_room()
    return forecast


def measured(forecast: Forecast, blocks: Iterator[Block], state: Any, max_memory: Any = None) -> Iterator[Block]:
    """Yields the blocks of a run, after its first program was compiled, and refused where it cannot fit.

    Args:
        forecast: what the run takes but for its steps.
        blocks: the blocks.
        state: the first state.
        max_memory: how much may be held at once, as `lamu.memory.within` takes it.

    Raises:
        ValueError: where the run takes more than may be held; no step was taken then.
    """
    first = next(blocks, None)
    if first is None:
        return
    with memory.within(max_memory):
        whole = replace(forecast, step=first.held(state))
        logging.getLogger("lamu").info(
            "The run takes about %s: %s. The data take %s beside. %s may be used.",
            memory.shown(whole.total), whole, memory.shown(whole.data), memory.shown(memory.limit()),
        )  # fmt: skip
        whole.require_room()
    yield first
    yield from blocks
