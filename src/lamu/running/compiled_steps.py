"""The compiled functions of a run: the first state, one step, and scans over steps."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lamu.base.compile_once import compiled_lightly, compiled_once, once_a_shape, subkey
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.objective import Objective
from lamu.protocol import Info
from lamu.record import record, static
from lamu.target import Target
from lamu.typing import Array, PyTree, RandomKey, State

__all__ = [
    "Keys",
    "OneDevice",
    "algorithm_of",
    "draw_of",
    "handle",
    "keys_of",
    "one_step",
    "order",
    "picked_step",
    "scan_batches",
    "scan_batches_lightly",
    "scan_chains",
    "scan_whole",
    "scan_whole_lightly",
    "scan_whole_quickly",
    "start",
    "start_quickly",
    "whole_seed",
]


_LIMIT = 2**32  # without 64 bits JAX drops the higher bits, so that two seeds would be the same


def whole_seed(seed: Any) -> int:
    """Checks a seed and returns it as an integer that JAX does not truncate."""
    try:
        number = operator.index(seed)
    except TypeError as error:
        raise TypeError(f"seed={seed!r} is not an integer; give one from 0 to {_LIMIT - 1}, for instance 0") from error
    if not 0 <= number < _LIMIT:
        raise ValueError(f"seed={number} is outside 0 to {_LIMIT - 1}; give a number in this range")
    return number


class Keys(NamedTuple):
    """The random keys of a run: for its first state, its steps, the order of its rows, and its posterior."""

    init: RandomKey
    step: RandomKey
    order: RandomKey
    final: RandomKey


def keys_of(seed: int) -> Keys:
    """Returns the keys of a run by its seed."""
    # They are `jax.random.fold_in(jax.random.key(seed), i)`.
    key = _key(np.uint32(seed))
    return Keys(*(subkey(key, i) for i in range(4)))


@compiled_once()
def _key(seed: Any) -> RandomKey:
    return jax.random.key(seed)


@record
class _Opaque:
    """Wraps a custom algorithm that is not a pytree as a static argument of the compiled step."""

    algorithm: Any = static()


def handle(algorithm: Any) -> PyTree:
    """Returns the algorithm as an argument of a compiled function: itself, or a static wrapper of a custom class."""
    return algorithm if not jax.tree_util.all_leaves([algorithm]) else _Opaque(algorithm)


def algorithm_of(algorithm: PyTree) -> Any:
    """Returns the algorithm of a handle."""
    return algorithm.algorithm if isinstance(algorithm, _Opaque) else algorithm


class OneDevice:
    """Runs on the default device; see `lamu.running.sharding.Devices` for a mesh."""

    def shard(self, value: PyTree) -> PyTree:
        """Returns a state in the layout of the steps."""
        return value

    distribute = replicate = place_stream = gather = rows = example = shard

    def for_network(self, target: Target, example: Batch) -> OneDevice:
        """Returns the devices with a network's own layout of its parameters."""
        del target, example
        return self

    spans_processes = False
    writes = True  # whether this process writes files and warns

    def agree(self, value: float | int, error: BaseException | None = None) -> float | int:
        """Returns the value on which all processes of a run agree."""
        del error
        return value

    def guarded(self) -> AbstractContextManager[None]:
        """Returns a context in which an error of one process ends all processes."""
        return nullcontext()


def _start(algorithm: PyTree, key: RandomKey, objective: Objective, batch: Batch) -> State:
    """Returns the algorithm's first state, in one compiled call."""
    return jax.tree.map(_typed, algorithm_of(algorithm).init(key, objective, batch))


def _typed(leaf: Array) -> Array:
    """Returns an array without a weak type, which would change after a step and cause a recompilation."""
    return jax.lax.convert_element_type(leaf, leaf.dtype) if getattr(leaf, "weak_type", False) else leaf


start, start_quickly = compiled_lightly()(_start), compiled_once()(_start)


@once_a_shape
def draw_of(algorithm: PyTree, state: State, objective: Objective, batch: Batch) -> PyTree:
    """Returns the shapes of a step's draw (`jax.ShapeDtypeStruct`), or None; nothing is computed."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.eval_shape(one_step, algorithm, state, objective, batch, key)[1].draw


@jax.jit
def _step(algorithm: PyTree, state: State, objective: Objective, batch: Batch, key: RandomKey) -> tuple[State, Info]:
    """Returns the algorithm's step, traced once for all compiled functions (for a sampler it takes half a second)."""
    return algorithm_of(algorithm).step(key, state, batch, objective)


@partial(jax.jit, donate_argnums=1)
def one_step(algorithm: PyTree, state: State, objective: Objective, batch: Batch, key: RandomKey) -> tuple[State, Info]:
    """Returns the state after a step on a batch; the old state is donated."""
    return _step(algorithm, state, objective, batch, key)


@partial(jax.jit, donate_argnums=1)
def picked_step(
    algorithm: PyTree,
    state: State,
    objective: Objective,
    rows: Arrays,
    chosen: Array,
    real: Array,
    t: Array | int,
    step_key: RandomKey,
) -> tuple[State, Info]:
    """Returns the state after step t on chosen rows, gathered inside of the program; the old state is donated."""
    batch = _picked(rows, chosen, real)
    return _step(algorithm, state, objective, batch, jax.random.fold_in(step_key, t))


def _scan_whole(
    algorithm: PyTree,
    state: State,
    objective: Objective,
    batch: Batch,
    start: Array | int,
    count: Array | int,
    step_key: RandomKey,
    length: int,
    every: int = 1,
) -> tuple[State, Info]:
    """Returns the state after `count` steps on one batch, at most `length`, and the diagnostics of each."""
    # Of a sampler's draws that of the last of `every` steps is kept, and none where `every` is zero.

    def body(state: State, t: Array) -> tuple[State, Info]:
        return _step(algorithm, state, objective, batch, jax.random.fold_in(step_key, t))

    return _scan(body, state, start + jnp.arange(length), count, every)


def _scan_batches(
    algorithm: PyTree,
    state: State,
    objective: Objective,
    rows: Arrays,
    start: Array | int,
    count: Array | int,
    step_key: RandomKey,
    order_key: RandomKey,
    length: int,
    batch_size: int,
    shuffled: bool,
    epochs: int,
    every: int = 1,
) -> tuple[State, Info]:
    """Returns the state after `count` steps from step `start` on; the block touches `epochs` epochs of batches."""
    # Of a sampler's draws that of the last of `every` steps is kept, and none where `every` is zero.
    per_epoch = math.ceil(rows.count / batch_size)
    streams = algorithm_of(algorithm).traits.streams
    numbers = start // per_epoch + jnp.arange(epochs)
    plan, real = jax.vmap(lambda epoch: order(rows.count, batch_size, streams, epoch, order_key, shuffled))(numbers)
    first = start % per_epoch

    def cut(leaf: Array) -> Array:
        leaf = leaf.reshape(-1, *leaf.shape[2:])
        return leaf if leaf.shape[0] == length else jax.lax.dynamic_slice_in_dim(leaf, first, length)

    def body(state: State, now: tuple[Array, Array, Array]) -> tuple[State, Info]:
        t, chosen, real = now
        return _step(algorithm, state, objective, _picked(rows, chosen, real), jax.random.fold_in(step_key, t))

    return _scan(body, state, (start + jnp.arange(length), cut(plan), cut(real)), count, every)


scan_whole = jax.jit(_scan_whole, static_argnums=(7, 8), donate_argnums=1)
scan_batches = jax.jit(_scan_batches, static_argnums=(8, 9, 10, 11, 12), donate_argnums=1)
# Programs with few optimisations. Sweeps of messages run as fast and compile in half the time: 2.8 instead of 5.4 s of
# a processor for a mixture of three components in thirteen columns, 2.5 instead of 4.4 s for four factors of twenty.
# Steps of small networks compile in half the time too, and take a tenth to a fifth longer: `ivon` on batches of 128
# rows of 10 columns with one layer of 32, 1.4 instead of 3.2 s, .042 instead of .038 ms a step; on 30 columns with two
# layers of 64, 3.8 instead of 7.4 s, .19 instead of .15 ms.
scan_whole_lightly = compiled_lightly((7, 8), 1)(_scan_whole)
# Sweeps over few rows, with their start: .9 and .7 instead of 1.8 and 1.2 s for a mixture of three components in two
# columns, and .10 instead of .07 s of 300 rows for all that runs; of 3,000 rows it is .25 instead of .14 s.
scan_whole_quickly = compiled_once(static_argnums=(7, 8), donate_argnums=1)(_scan_whole)
scan_batches_lightly = compiled_lightly((8, 9, 10, 11, 12), 1)(_scan_batches)
# Transitions of chains run as fast with the older way to fuse loops, and compile in two thirds of the time: NUTS on 569
# rows of 30 columns, two chains of 1,000, 1.9 and 2.0 s of a processor; eight schools, four of 5,000, 1.1 and 1.0 s.
scan_chains = compiled_once(True, (7, 8), 1)(_scan_whole)


def _counted(
    body: Callable[[State, PyTree], tuple[State, Info]], state: State, inputs: PyTree, count: Array | int
) -> tuple[State, Info]:
    """Scans the first `count` inputs as `jax.lax.scan` does; the other outputs are zero."""
    inputs_at = lambda i: jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, i, keepdims=False), inputs)
    length = len(jax.tree.leaves(inputs)[0])
    infos = jax.tree.map(
        lambda leaf: jnp.zeros((length, *leaf.shape), leaf.dtype), jax.eval_shape(body, state, inputs_at(0))[1]
    )

    def step(i: Array, carry: tuple[State, Info]) -> tuple[State, Info]:
        state, infos = carry
        state, info = body(state, inputs_at(i))
        return state, jax.tree.map(lambda all, leaf: jax.lax.dynamic_update_index_in_dim(all, leaf, i, 0), infos, info)

    return jax.lax.fori_loop(0, count, step, (state, infos))


def _scan(
    body: Callable[[State, PyTree], tuple[State, Info]], state: State, inputs: PyTree, count: Array | int, every: int
) -> tuple[State, Info]:
    """Scans, and stacks the draw of the last of `every` steps alone, without storing the others."""
    # Where each step is kept, or none, `count` may be less than the inputs, so that the rest of a run uses this
    # program.

    def quiet(state: State, now: PyTree) -> tuple[State, Info]:
        state, info = body(state, now)
        return state, replace(info, draw=None)

    def outer(state: State, some: PyTree) -> tuple[State, tuple[Info, Info]]:
        before, last = (jax.tree.map(lambda leaf, part=part: leaf[part], some) for part in (slice(0, -1), -1))
        state, silent = jax.lax.scan(quiet, state, before)
        state, info = body(state, last)
        return state, (silent, info)

    if every < 2:
        return _counted(body if every else quiet, state, inputs, count)
    folded = jax.tree.map(lambda leaf: leaf.reshape(-1, every, *leaf.shape[1:]), inputs)
    state, (silent, info) = jax.lax.scan(outer, state, folded)

    def joined(first: Array, last: Array) -> Array:
        return jnp.concatenate([first, last[:, None]], axis=1).reshape(-1, *first.shape[2:])

    joined_info = jax.tree.map(joined, silent, replace(info, draw=None))
    return state, replace(joined_info, draw=info.draw)


@partial(jax.jit, static_argnums=(0, 1, 2, 5))
def order(
    count: int, batch_size: int, streams: int, epoch: Array | int, order_key: RandomKey, shuffled: bool
) -> tuple[Array, Array]:
    """Returns the row numbers of an epoch's batches, and which of them are real."""
    # The last batch is padded with rows from the epoch's beginning: they are masked, and networks that ignore the mask
    # (custom batch statistics) still see rows of the data.
    per_epoch = math.ceil(count / batch_size)
    padding = per_epoch * batch_size - count
    if not shuffled:
        orders = jnp.arange(count)[None]
    else:
        epoch_key = jax.random.fold_in(order_key, epoch)
        keys = epoch_key[None] if streams == 1 else jax.random.split(epoch_key, streams)
        orders = jax.vmap(lambda key: jax.random.permutation(key, count))(keys)
    orders = jnp.concatenate([orders, orders[:, :padding]], axis=1).reshape(-1, per_epoch, batch_size)
    real = (jnp.arange(per_epoch * batch_size) < count).reshape(1, per_epoch, batch_size)
    real = jnp.broadcast_to(real, orders.shape)
    return (orders[0], real[0]) if streams == 1 else (jnp.swapaxes(orders, 0, 1), jnp.swapaxes(real, 0, 1))


def _picked(rows: Arrays, chosen: Array, real: Array) -> Batch:
    parts = rows.x, rows.y, rows.weight, rows.offset, rows.groups
    x, y, weight, offset, groups = jax.tree.map(lambda leaf: leaf[chosen], parts)
    return Batch(x=x, y=y, mask=real.astype(rows.weight.dtype), weight=weight, offset=offset, groups=groups)
