"""Trains all candidates of one architecture over all folds in one compiled program."""

from __future__ import annotations

import os
import pathlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lamu.base.compile_once import compiled_lightly, lenient
from lamu.data.batch import Batch
from lamu.model import Model
from lamu.objective import Objective
from lamu.record import record, static
from lamu.running.checkpoints import CheckpointError, Checkpoints
from lamu.running.progress import Progress
from lamu.typing import Array, Params, State

__all__ = [
    "TRACING",
    "FoldRows",
    "Members",
    "Path",
    "Stretches",
    "Trainings",
    "row_order",
    "rows_padded",
    "stretches_kept",
    "train",
    "trainings",
]


class Stretches:
    """The checkpoints of one architecture, between stretches; none without a folder."""

    def __init__(self, keeper: Checkpoints | None, run: Mapping[str, str]) -> None:
        self._keeper = keeper
        self._run = dict(run)
        self._at = time.monotonic()
        self._step: int | None = None
        self._written = True

    @property
    def exist(self) -> bool:
        """Whether there is a checkpoint."""
        return self._keeper is not None and self._keeper.latest() is not None

    def keep(self, steps: int, carry: object, path: Sequence[object], now: bool = False) -> None:
        """Writes a checkpoint if the last one is older than the checkpoints' period; warns if writing fails."""
        if self._keeper is None or steps == self._step:
            return
        if now or time.monotonic() - self._at >= self._keeper.every:
            stacked = [np.stack(leaves) for leaves in zip(*map(jax.tree.leaves, path), strict=True)]
            extra = {str(number): leaf for number, leaf in enumerate(stacked)}
            facts = {"run": self._run}
            self._written = self._keeper.try_to_save(steps, carry, facts=facts, extra=extra, quietly=not self._written)
            self._at, self._step = time.monotonic(), steps

    def restore(self, carry: State) -> tuple[int, State, list[Any]]:
        """Returns the steps, carry and path of the last checkpoint; the start if there is none."""
        step = None if self._keeper is None else self._keeper.latest()
        if self._keeper is None or step is None:
            return 0, carry, []
        carry, facts, extra = self._keeper.restore(step, carry)
        for name, value in self._run.items():
            if facts["run"].get(name) != value:
                raise CheckpointError(
                    f"the checkpoint in {str(pathlib.Path(self._keeper.folder))!r} is of a fit with "
                    f"{name}={facts['run'].get(name)!r}, and this one has {value!r}; give the same, or another folder"
                )
        self._step = step
        structure = jax.tree.structure((carry[0], 0))
        leaves = [extra[str(number)] for number in range(structure.num_leaves)]
        return step, carry, [structure.unflatten(each) for each in zip(*leaves, strict=True)]


# Member (c, k) minimises candidate c's mean loss on the rows outside fold k,
#
# \[ -\frac1{N_k} \log p_c(\theta) - \frac1{N_k} \sum_{i \notin k} \log p(y_i \mid x_i, \theta), \]
#
# by Adam with a learning rate that rises and falls. With row-dependent noise, the gradient of an outlier with small
# noise can be a thousand times as large as others. With Adam's default memory of 1,000 squares it moves the weights by
# 30 learning rates, with a memory of 20 by 6. The run is divided into stretches. The estimate after each is the average
# of the weights along the stretch, scored by the rows of fold k: averages of a noisy path predict better than its last
# point, and the candidate stops at the best stretch. The compiled program is that of one stretch. Candidates differ
# only in arrays (the gates that fix some weights at zero, and the scales of the prior), so that one program serves all.
# Minibatches are chosen beforehand. Those of a fold are the same for all candidates, so that their rows are gathered
# and encoded once.


_WARMUP = 0.05  # the share of the steps
_SQUARES = 0.95  # b2 of Adam
TRACING = threading.Lock()  # JAX's cache of a trace must not be filled by two threads at a time


@record
class Members:
    """The settings of members, with a leading axis of members: all folds of one candidate, then of the next."""

    params: Params  # the initial parameters
    gates: Params  # one for free weights of the network, zero for weights fixed at zero
    prior: Any


@record
class FoldRows:
    """The rows of each fold, shared by its members."""

    order: Any  # the numbers of the rows of every step, `[folds, steps, batch]`
    held: Any  # the numbers of the held-out rows, `[folds, held]`
    data_size: Any  # the number of training rows of each fold, `[folds]`


@dataclass(frozen=True)
class Path:
    """Result of a training."""

    params: Params  # the averaged weights after every stretch, leaves `[members, stretches, ...]`
    log_density: np.ndarray  # of the held-out rows, `[members, stretches, held]`, in nats

    def split(self, parts: int) -> list[Path]:
        """Returns the path in parts with equally many members."""
        size = len(self.log_density) // parts
        of = lambda tree, number: jax.tree.map(lambda leaf: leaf[number * size : (number + 1) * size], tree)
        return [Path(of(self.params, number), of(self.log_density, number)) for number in range(parts)]

    @classmethod
    def joined(cls, paths: Sequence[Path]) -> Path:
        """Returns the concatenation of paths over members."""
        params, log_density = zip(*((path.params, path.log_density) for path in paths), strict=True)
        return cls(jax.tree.map(lambda *leaves: np.concatenate(leaves), *params), np.concatenate(log_density))


@record
class _Length:
    steps: int = static()
    stretches: int = static()
    rate: float = static()


def train(
    model: Model,
    members: Members,
    rows: FoldRows,
    batch: Batch,
    stretches: int,
    rate: float,
    callback: Callable[[int], object] = lambda steps: None,
    kept: Stretches | None = None,
) -> Path:
    """Returns the path of every member."""
    kept = Stretches(None, {}) if kept is None else kept
    steps = rows.order.shape[1]
    length, each = _Length(steps, stretches, rate), steps // stretches
    order = np.asarray(rows.order)  # sliced in NumPy, without compilation
    stretch = lambda done: replace(rows, order=order[:, done - each : done])
    program = _lightly if steps <= _FEW_STEPS else _whole
    with TRACING:
        before, carry, path = kept.restore(_start(length, members))
        # JAX caches the trace, so that the first call only compiles.
        program.lower(length, model, members, stretch(each), batch, carry)
    for done in range(before + each, steps + 1, each):
        stretch_of_steps = stretch(done)
        carry, of_stretch = jax.block_until_ready(program(length, model, members, stretch_of_steps, batch, carry))
        path.append(jax.tree.map(np.asarray, of_stretch))
        try:
            callback(done)
        except BaseException:
            kept.keep(done, carry, path, now=True)
            raise
        kept.keep(done, carry, path)
    params, log_density = jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *path)
    return Path(params, log_density.astype(float))


def _optimiser(length: _Length) -> optax.GradientTransformation:
    return optax.adam(optax.cosine_onecycle_schedule(length.steps, length.rate, pct_start=_WARMUP), b2=_SQUARES)


def _gated(params: Params, gates: Params) -> Params:
    return {**params, "network": jax.tree.map(jnp.multiply, params["network"], gates)}


def _start(length: _Length, members: Members) -> State:
    """Returns the initial state of all members; Adam's moments and count are zeros, which need no compilation."""
    start = {**members.params, "network": jax.tree.map(np.multiply, members.params["network"], members.gates)}
    state = jax.eval_shape(_optimiser(length).init, start)
    return start, jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), state)


def _stretch(length: _Length, model: Model, members: Members, rows: FoldRows, batch: Batch, carry: State) -> State:
    optimiser = _optimiser(length)
    each = length.steps // length.stretches
    folds = rows.data_size.shape[0]
    by_candidate = lambda tree: jax.tree.map(
        lambda leaf: leaf.reshape(len(leaf) // folds, folds, *leaf.shape[1:]), tree
    )

    def over_members(function: Callable[..., object], *of_folds: object) -> Callable[[Params], Any]:
        """Returns a function of all members' parameters, from one of a member's parameters, settings and fold."""
        each_fold = jax.vmap(function)
        each_candidate = jax.vmap(lambda params, own: each_fold(params, own, *of_folds))
        return lambda params: each_candidate(by_candidate(params), by_candidate(members))

    def loss(params: Params, own: Members, data_size: Array, rows: Array) -> Array:
        objective = Objective(replace(model, prior=own.prior), data_size)
        return objective.mean_loss(_gated(params, own.gates), _taken(batch, rows), {}, train=True)[0]

    def step(carry: State, order: Array) -> State:
        params, state, total = carry
        # Members are independent, so that the gradient of their sum contains each member's gradient.
        gradient = jax.grad(lambda params: over_members(loss, rows.data_size, order)(params).sum())(params)
        with lenient():  # optax counts steps in integers
            updates, state = optimiser.update(gradient, state)
        params = jax.tree.map(jnp.add, params, updates)
        return (params, state, jax.tree.map(jnp.add, total, params)), None

    params, state = carry
    zero = jax.tree.map(jnp.zeros_like, params)
    (params, state, total), _ = jax.lax.scan(step, (params, state, zero), jnp.swapaxes(rows.order, 0, 1))
    average = _gated(jax.tree.map(lambda leaf: leaf / each, total), members.gates)
    judged = lambda params, own, held_rows: model.log_likelihood(params, {}, _taken(batch, held_rows))[0]
    log_density = over_members(judged, rows.held)(average)
    return (params, state), (average, log_density.reshape(-1, log_density.shape[-1]))


# For small tables compilation takes longer than the steps, which are a tenth to a quarter slower at a lower
# optimisation level: processor seconds of a first and a second fit of iris 6.6 and 1.6 instead of 10.7 and 1.4, of
# diabetes 7.6 and 2.9 instead of 10.2 and 2.3.
_FEW_STEPS = 1500
_whole, _lightly = jax.jit(_stretch, static_argnums=0), compiled_lightly(static_argnums=0)(_stretch)


def row_order(rows: np.ndarray, steps: int, batch: int, seed: int) -> np.ndarray:
    """Returns the rows of every step, `[steps, batch]`: permutations of the rows, one after the other."""
    random = np.random.default_rng(seed)
    passes = -(-steps * batch // len(rows))
    order = np.concatenate([random.permutation(rows) for _ in range(passes)])
    return order[: steps * batch].reshape(steps, batch).astype(np.int32)


def rows_padded(rows: int) -> int:
    """Returns the padded number of rows, so that tables of similar sizes share a program."""
    step = max(8, 2 ** (max(rows, 1).bit_length() - 3))
    return -(-rows // step) * step


def _taken(batch: Batch, rows: Array) -> Batch:
    return jax.tree.map(lambda leaf: leaf[rows], batch)


_FEWEST = 3  # threads, so that no architecture waits for another's compilation


class Trainings:
    """Starts trainings by the names of their parts."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        learn: Callable[[Any, Callable[[int], None], Stretches], Path],
        kept: Mapping[str, Stretches],
        fits: Mapping[str, int],
        steps: int,
        bar: Progress,
    ) -> None:
        self.stopped = threading.Event()
        self._pool, self._learn, self._kept, self._bar = pool, learn, kept, bar
        self._fits, self._steps, self._done = fits, steps, dict.fromkeys(fits, 0)
        self._wide = jax.dtypes.canonicalize_dtype(float) == np.float64
        self._device = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]

    def start(self, plans: Mapping[str, Any]) -> Future[list[Path]]:
        """Trains plans sequentially in a thread."""
        return self._pool.submit(self._run, plans)

    def leave_out(self, parts: Iterable[str]) -> None:
        """Counts parts that are not trained as done."""
        self._done.update(dict.fromkeys(parts, self._steps))

    def _run(self, plans: Mapping[str, Any]) -> list[Path]:
        # Threads do not inherit the precision and the device of their parent's context.
        try:
            with jax.enable_x64(self._wide), jax.default_device(self._device):
                return [self._learn(plan, self._counter(part), self._kept[part]) for part, plan in plans.items()]
        except BaseException:
            self.stopped.set()
            raise

    def _counter(self, part: str) -> Callable[[int], None]:
        def count(steps: int) -> None:
            if self.stopped.is_set():
                raise KeyboardInterrupt
            self._done[part] = steps
            done = sum(fits * self._done[each] for each, fits in self._fits.items())
            self._bar.update(done // sum(self._fits.values()))

        return count


@contextmanager
def trainings(
    learn: Callable[[Any, Callable[[int], None], Stretches], Path],
    kept: Mapping[str, Stretches],
    fits: Mapping[str, int],
    steps: int,
    bar: Progress,
) -> Iterator[Trainings]:
    """Context manager that starts trainings in threads; `fits` are the numbers of members of each part."""
    # An error in the block or in a training, or an interruption, ends every training after its current stretch.
    with ThreadPoolExecutor(max(_FEWEST, os.cpu_count() or 1)) as pool:
        started = Trainings(pool, learn, kept, fits, steps, bar)
        try:
            yield started
        except BaseException:
            started.stopped.set()  # the pool waits for its threads
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def stretches_kept(checkpoint: Any, run: Mapping[str, str], resume: bool) -> Stretches:
    """Returns the checkpoints of a part; raises an error if there are some without `resume`."""
    keeper = checkpoint if checkpoint is None or isinstance(checkpoint, Checkpoints) else Checkpoints(checkpoint)
    stretches = Stretches(keeper, run)
    if stretches.exist and not resume and keeper is not None:
        raise ValueError(
            f"there are checkpoints in {str(keeper.folder)!r} already, which would be overwritten; go on from them "
            "with resume=True, or choose another folder"
        )
    return stretches
