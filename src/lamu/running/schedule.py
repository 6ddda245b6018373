"""Schedules of a run: its length, its split into compiled blocks of steps, and the memory that these take."""

from __future__ import annotations

import functools
import itertools
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import jax
import numpy as np

from lamu import memory
from lamu.conjugate_target import MessageTarget
from lamu.convergence import FARTHEST_MEAN, Convergence
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.stream import Stream
from lamu.model import Model
from lamu.networks.multilayer import is_dense
from lamu.objective import Objective
from lamu.protocol import Algorithm, Info, Traits, runnable
from lamu.rate import has_open_rates, over
from lamu.running.checkpoints import CheckpointError
from lamu.running.compiled_steps import (
    draw_of,
    handle,
    one_step,
    order,
    picked_step,
    scan_batches,
    scan_batches_lightly,
    scan_chains,
    scan_whole,
    scan_whole_lightly,
    scan_whole_quickly,
    start,
)
from lamu.running.history import collects, count, keeps, stage_end
from lamu.typing import Array, PyTree, RandomKey, State

__all__ = ["Block", "Forecast", "Length", "Rounds", "Steps", "check_memory", "memory_checked"]


Program: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
"""A compiled function and its arguments."""


# Round c has \(2^c n\) steps; annealed rates restart with every round (`lamu.rate.WarmRestarts`). At the end of a round
# the posterior's distance from its fixed point is measured, and the run stops where that is within its limits (at the
# end of the first two rounds only where the mean is within a tenth of a standard deviation). So at least half of all
# steps are in the last round, whose rates have fallen to zero.


# The default length of a run: rounds, each twice as long as the one before, so that the last one is at least half of
# all work. Not tuned; `Fit.convergence` determines the last round.
_FIRST, _FIRST_FULL = 1024, 32  # steps of the first round, with minibatches and with all rows
_FEWEST_EPOCHS = 4  # of a first round with minibatches
_MOST, _MOST_EPOCHS = 32_768, 64  # steps and epochs, whichever is more
_UNMEASURED = 50  # epochs without a measurable fixed point, at least three rounds; and passes over a stream
_NEAR, _SHORT_ROUND = 0.1, 3  # standard deviations, in the first two rounds


@dataclass(frozen=True)
class Rounds:
    """The rounds of a run over arrays."""

    first: int  # the steps of the first round, whole epochs
    count: int  # the largest number of rounds
    per_epoch: int  # the steps of an epoch

    @classmethod
    def of(cls, traits: Traits, rows: int, batch_size: int) -> Rounds:
        """Returns the rounds for a number of rows."""
        full = traits.batching == "full"
        per_epoch = 1 if full else math.ceil(rows / batch_size)
        fewest = max((_FIRST_FULL if full else _FIRST) / per_epoch, 1 if full else _FEWEST_EPOCHS)
        epochs = 2 ** math.ceil(math.log2(fewest))
        most = max(_MOST, _MOST_EPOCHS * per_epoch) / (epochs * per_epoch)
        return cls(epochs * per_epoch, max(round(math.log2(most + 1)), 1), per_epoch)

    @property
    def limit(self) -> int:
        """The steps of all rounds."""
        return self.first * (2**self.count - 1)

    def ends_at(self, step: int) -> bool:
        """Whether a round ends after a number of steps."""
        rounds = step / self.first + 1
        return step > 0 and rounds == 2 ** round(math.log2(rounds))

    def enough(self, step: int, convergence: Convergence | None) -> bool:
        """Whether a run may stop at the end of a round."""
        if convergence is None:
            return step >= max(_UNMEASURED * self.per_epoch, 7 * self.first)
        if convergence.settled:
            return True
        # An uncertain offset is no reason for a warning, nor to stop. Along correlated weights the error of a mean is
        # larger than in marginal deviations, and short runs can afford to be more accurate.
        limit = _NEAR if step <= _SHORT_ROUND * self.first else FARTHEST_MEAN
        return convergence.at_fixed_point and (convergence.offset is None or convergence.offset <= limit)


@dataclass(frozen=True)
class Length:
    """The length of a run."""

    total: int | None  # the largest number of steps; None for a stream whose batches need not be counted
    rounds: Rounds | None = None  # the rounds of a run over arrays without a given length, else None
    is_pretrained: bool = False  # whether no step is taken, because the weights are pretrained
    passes: int | None = None  # over a stream; None where the number of steps is given

    @classmethod
    def of(
        cls, algorithm: Algorithm, rows: Arrays | Stream, batch_size: int, epochs: int | None, steps: int | None
    ) -> Length:
        """Returns the length of a run."""
        traits = algorithm.traits
        if epochs is not None and steps is not None:
            raise ValueError(f"epochs={epochs!r} and steps={steps!r} contradict each other; give one of them")
        if epochs == 0 and traits.length is None:
            return cls(0, is_pretrained=True)
        its_own, given = traits.length is not None or traits.batching == "once", (epochs, steps) != (None, None)
        if traits.batching == "full" and not isinstance(rows, Arrays):
            raise ValueError("this algorithm needs all the data at every step; give it as (x, y), not in batches")
        if its_own and given:
            raise ValueError("this algorithm has a length of its own; leave epochs and steps out")
        for name, value in (("epochs", epochs), ("steps", steps)):
            if value is not None and not 1 <= value < math.inf:  # NaN is neither
                raise ValueError(f"{name}={value!r} must be at least 1")
        if not isinstance(rows, Arrays):
            if steps is not None or traits.length is not None:
                return cls(traits.length if steps is None else steps)
            passes = 1 if its_own else _UNMEASURED if epochs is None else epochs
            # A pass that only counts is as slow as reading: made where rates that fall over the run need it.
            batches = rows.pass_length(counted=has_open_rates(algorithm))
            return cls(batches and passes * batches, passes=passes)
        if not (its_own or given):
            rounds = Rounds.of(traits, rows.count, batch_size)
            return cls(rounds.limit, rounds)
        per_epoch = 1 if traits.batching == "full" else math.ceil(rows.count / batch_size)
        if its_own:
            return cls(per_epoch if traits.length is None else traits.length)
        return cls(per_epoch * epochs if epochs is not None else steps)

    def given_to(self, algorithm: Algorithm) -> Algorithm:
        """Returns the algorithm with rates that fall over this length, or over each of its rounds."""
        if self.rounds is not None:
            return over(self.rounds.first, algorithm, restarts=True)
        return over(self.total, algorithm) if self.total else algorithm


# Measured: one scan an epoch is the fastest for data in memory; the gradient of a convolution inside a loop is slow on
# a CPU (8 to 25 times), so that networks with convolutions run step by step there; and a block should be long enough to
# hide its dispatch, yet short enough for an interactive user.


_SHORT, _LONG = 64, 1024
_FEW_BYTES = 64 * 2**20
_FEW = 2**17  # bytes of a state times rows: 1,000 rows of a mixture of three components in two columns
_SMALL = 2**24  # bytes of a state times rows of a batch: 8,000 weights of `ivon` in batches of 128


@dataclass(frozen=True)
class Block:
    """A block of steps."""

    # A function of the state, which it donates, that returns the next state and the diagnostics of each step.
    run: Callable[[State], tuple[State, Info]]
    end: int  # the number of steps of the run done after it
    passes: float  # the number of passes over the data after it, whole at the end of an epoch
    program: Callable[[State], Program]  # a function of the state that returns the program: the block, or one step

    def held(self, state: State) -> int:
        """Returns the bytes of its program beyond the state and the rows; compiles it, but does not run it."""
        function, arguments = self.program(state)
        return memory.held_by(function, *arguments)

    @property
    def ends_an_epoch(self) -> bool:
        """Whether a pass over the data is complete after it."""
        return self.passes == int(self.passes)


@dataclass(frozen=True)
class Steps:
    """The steps of a run: the algorithm, its rows and its keys. A step depends on its number alone."""

    algorithm: PyTree  # the handle, spread over the devices of a mesh, if any
    traits: Traits
    objective: Objective
    rows: Arrays | Stream  # on those devices
    batch_size: int
    step_key: RandomKey
    order_key: RandomKey

    def blocks(self, length: Length, done: int) -> Iterator[Block]:
        """Yields the blocks of a run after the first `done` steps."""
        if isinstance(self.rows, Arrays):
            return self._of_arrays(self.rows, length, done)
        return self._of_stream(self.rows, length, done)

    def _of_arrays(self, rows: Arrays, length: Length, done: int) -> Iterator[Block]:
        """Yields blocks of whole epochs, or parts of a long epoch."""
        traits, full_batch = self.traits, self.traits.batching == "full" or self.batch_size >= rows.count
        per_epoch = 1 if full_batch else math.ceil(rows.count / self.batch_size)
        in_scans = self.objective.model.scan_friendly(rows.example(1))
        in_stages = traits.length is not None and bool(traits.warmup or traits.thinning > 1 or traits.cycle)
        # A density has no rows, and for its fast steps the two milliseconds of a block are a twentieth.
        short = _SHORT if rows.count > 1 else 2 * _SHORT
        step = partial(self._on_batch, rows.full()) if full_batch else self._picking(rows, per_epoch)
        total, start = length.total, done
        assert total is not None  # arrays have a length
        unit = total if length.rounds is None else length.rounds.first
        before = 0  # the length of the previous block
        while start < total:
            size, every = (
                _cut_in_stages(traits, short, per_epoch, start, total)
                if in_stages
                else _cut(per_epoch, start, total, unit)
            )
            # The largest number of epochs in a block, so that one program serves all blocks of its length.
            first = per_epoch - 1 if in_stages else start % per_epoch
            # The rest of a run uses a part of the previous block's program.
            capacity = before if size < before and first == 0 and not in_stages else size
            epochs = None if full_batch else (first + capacity - 1) // per_epoch + 1
            scan = partial(self._scan, rows, start, size, capacity, every, epochs)
            run = (
                partial(_run_scan, scan, size, capacity, every > 0)
                if in_scans
                else partial(self._one_by_one, step, start, size)
            )
            program = scan if in_scans else partial(step, start)
            start, before = start + size, size
            yield Block(run, start, start / per_epoch, program)

    def _of_stream(self, rows: Stream, length: Length, done: int) -> Iterator[Block]:
        """Yields single steps over batches in their own order, after skipping those done before."""
        end, last = 0, length.total if length.passes is None else None  # passes may differ in their batches
        for number in itertools.count() if length.passes is None else range(length.passes):
            batches = iter(rows)
            batch = next(batches, None)
            while batch is not None:
                if end == last:
                    return
                following = next(batches, None)
                step, t = partial(self._on_batch, batch), end
                end += 1
                if end > done:
                    run, passes = partial(self._one_by_one, step, t, 1), number + (1.0 if following is None else 0.5)
                    yield Block(run, end, passes, partial(step, t))
                batch = following
        if end < done:
            raise CheckpointError(
                f"the checkpoint is of step {done}, beyond the {end} steps of this run; give at least as many epochs "
                "as before, or choose another folder"
            )

    def _scan(
        self, rows: Arrays, start: int, size: int, capacity: int, every: int, epochs: int | None, state: State
    ) -> Program:
        """Returns the scan over a block's steps in `epochs` epochs, None where each step uses all rows."""
        if epochs is None:
            if not every and self.traits.thinning == 1 and capacity * memory.bytes_of(state) <= _FEW_BYTES:
                every = 1  # shares the program of the draws' stage, since another would take seconds to compile
            arguments = (
                self.algorithm,
                state,
                self.objective,
                rows.full(),
                start,
                size,
                self.step_key,
                capacity,
                every,
            )
            if self.traits.length is not None:
                return scan_chains, arguments
            if self.are_few_messages(state):
                return scan_whole_quickly, arguments
            lightly = self._sweeps_of_messages(arguments[3]) or self._is_small(state, rows.count)
            return scan_whole_lightly if lightly else scan_whole, arguments
        how = (capacity, self.batch_size, self.traits.batching != "once", epochs, every)
        keys = (self.step_key, self.order_key)
        program = scan_batches_lightly if self._is_small(state, self.batch_size) else scan_batches
        return program, (self.algorithm, state, self.objective, rows, start, size, *keys, *how)

    def are_few_messages(self, state: State) -> bool:
        """Whether the steps are sweeps of messages over so few rows that they take less time than their compilation."""
        if not isinstance(self.rows, Arrays) or memory.bytes_of(state) * self.rows.count > _FEW:
            return False
        return self._sweeps_of_messages(self.rows.example(1))

    def _is_small(self, state: State, rows: int) -> bool:
        """Whether compiling the steps takes longer than most runs: for small dense networks, but not for chains."""
        model = self.objective.model
        once = not isinstance(model, Model) or is_dense(model.network)  # whether a row uses each weight once
        return once and self.traits.length is None and memory.bytes_of(state) * rows <= _SMALL

    def _sweeps_of_messages(self, rows: Batch) -> bool:
        """Whether the steps are sweeps of messages, except over documents, which run a third slower unoptimised."""
        model, sweeps = self.objective.model, self.traits.batching == "full" and self.traits.length is None
        return sweeps and isinstance(model, MessageTarget) and not model.has_alike_members(rows)

    def _on_batch(self, batch: Batch, t: int, state: State) -> Program:
        return one_step, (self.algorithm, state, self.objective, batch, jax.random.fold_in(self.step_key, t))

    def _picking(self, rows: Arrays, per_epoch: int) -> Callable[[int, State], Program]:
        """Returns a function of a step's number and a state that returns a step on rows gathered inside."""

        @functools.lru_cache(maxsize=1)
        def plan(epoch: int) -> tuple[Array, Array]:
            shuffled = self.traits.batching != "once"
            return order(rows.count, self.batch_size, self.traits.streams, epoch, self.order_key, shuffled)

        def step(t: int, state: State) -> Program:
            chosen, real = (leaf[t % per_epoch] for leaf in plan(t // per_epoch))
            return picked_step, (self.algorithm, state, self.objective, rows, chosen, real, t, self.step_key)

        return step

    def _one_by_one(
        self, step: Callable[[int, State], Program], start: int, size: int, state: State
    ) -> tuple[State, Info]:
        """Returns the result of a scan by single compiled steps."""
        infos, draws = [], []
        for t in range(start, start + size):
            function, arguments = step(t, state)
            state, info = function(*arguments)
            infos.append(replace(info, draw=None))
            if info.draw is not None and keeps(self.traits, t):
                draws.append(jax.tree.map(np.asarray, info.draw))
        stage_info, drawn = (
            jax.tree.map(lambda *leaves: np.stack(leaves), *many) if many else None for many in (infos, draws)
        )
        assert stage_info is not None  # a block has a step
        return state, replace(stage_info, draw=drawn)


def _run_scan(
    scan: Callable[[State], Program], size: int, capacity: int, keeps_draws: bool, state: State
) -> tuple[State, Info]:
    function, arguments = scan(state)
    state, info = function(*arguments)
    if size < capacity:  # on the host, where slicing compiles nothing
        info = jax.tree.map(lambda leaf: np.asarray(leaf)[:size], info)
    return state, info if keeps_draws else replace(info, draw=None)


def _cut(per_epoch: int, start: int, total: int, unit: int) -> tuple[int, int]:
    """Returns the length of the block that begins at a step, and the number of its steps for each kept draw."""
    if per_epoch <= _LONG:
        at_once = per_epoch * _epochs_at_once(max(unit // per_epoch, 1), max(_SHORT // per_epoch, 1))
    else:
        at_once = math.ceil(per_epoch / math.ceil(per_epoch / _LONG))
    within = start % max(at_once, per_epoch)
    return min(at_once - within % at_once, max(at_once, per_epoch) - within, total - start), 1


def _epochs_at_once(epochs: int, most: int) -> int:
    """Returns the number of epochs of a block."""
    # Rounds are powers of two, which divide evenly. A run of 101 steps on all rows has no divisors: two long blocks are
    # better, of which the shorter one uses the program of the other.
    divisor = _largest_divisor(epochs, most)
    return divisor if 2 * divisor > min(epochs, most) else _even(epochs, most)


def _cut_in_stages(traits: Traits, short: int, per_epoch: int, start: int, total: int) -> tuple[int, int]:
    """Returns the same for a sampler, whose blocks are within a stage and contain whole numbers of kept draws."""
    left = stage_end(traits, start, total) - start
    most = max(short, min(per_epoch, _LONG))
    if traits.thinning == 1 and not traits.cycle:
        # One length for the warm-up and the draws, so that one program serves both.
        common = _largest_divisor(math.gcd(traits.warmup, total - traits.warmup), most)
        if common >= short // 4 and left % common == 0:
            return common, int(collects(traits, start))
    if not collects(traits, start):
        return _even(left, most), 0
    to_draw = next((k + 1 for k in range(min(left, traits.thinning)) if keeps(traits, start + k)), None)
    if to_draw is None:  # no further draw in this stage
        return _even(left, most), 0
    if to_draw > most:
        return _even(to_draw - 1, most), 0
    if to_draw < traits.thinning:
        return to_draw, to_draw
    return traits.thinning * _even(left // traits.thinning, max(most // traits.thinning, 1)), traits.thinning


def _even(n: int, most: int) -> int:
    """Returns a length up to `most` that splits n evenly, except for a shorter rest: at most two lengths compile."""
    return math.ceil(n / math.ceil(n / most))


def _largest_divisor(n: int, most: int) -> int:
    """Returns the largest divisor of n up to `most`: blocks of one length compile once."""
    return next((d for d in range(min(n, max(most, 1)), 0, -1) if n % d == 0), 1)


# The sizes of the state with its copies and of a sampler's draws are known before anything is computed, and checked at
# once. The compiler reports the memory of a step for the first block's program, which the run then uses: nothing is
# compiled twice.


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
