"""How a run is cut into compiled pieces, chosen here alone: scans over epochs of arrays, single steps of streams."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.stream import Stream
from lamu.objective import Objective
from lamu.protocol import Info, Traits
from lamu.record import record, static
from lamu.typing import Array, RandomKey

__all__ = ["array_blocks", "handle", "passes_over", "run_length", "start", "stream_blocks"]

_BLOCK_STEPS = 64
_EPOCHS = 50


def handle(algorithm: Any) -> Any:
    """Returns the algorithm as an argument of a compiled function: itself, or a constant around one's own class."""
    return algorithm if not jax.tree_util.all_leaves([algorithm]) else _Opaque(algorithm)


@record
class _Opaque:
    """An algorithm that is no pytree: one's own class. It is a constant of the compiled step."""

    algorithm: Any = static()


def run_length(traits: Traits, count: int, batch_size: int, epochs: int | None, steps: int | None) -> int:
    """Returns the number of steps that a run over arrays takes."""
    if traits.length is not None or traits.batching == "once":
        if epochs is not None or steps is not None:
            raise ValueError("this algorithm has a length of its own; leave epochs and steps out")
        return traits.length if traits.length is not None else math.ceil(count / batch_size)
    _require_positive(epochs, steps)
    per_epoch = 1 if traits.batching == "full" else math.ceil(count / batch_size)
    return steps if steps is not None else (_EPOCHS if epochs is None else epochs) * per_epoch


def passes_over(traits: Traits, epochs: int | None, steps: int | None) -> int | None:
    """Returns the number of passes over batches that come in their own order; None where steps say when it ends."""
    if traits.batching == "full":
        raise ValueError("this algorithm needs all the data at every step; give it as (x, y), not in batches")
    if traits.batching == "once":
        if epochs is not None or steps is not None:
            raise ValueError("this algorithm has a length of its own; leave epochs and steps out")
        return 1
    _require_positive(epochs, steps)
    return None if steps is not None else (_EPOCHS if epochs is None else epochs)


def _require_positive(epochs: int | None, steps: int | None) -> None:
    for name, value in (("epochs", epochs), ("steps", steps)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value!r} does nothing; give at least 1")


def array_blocks(
    algorithm: Any,
    traits: Traits,
    objective: Objective,
    rows: Arrays,
    batch_size: int,
    epochs: int | None,
    steps: int | None,
    step_key: RandomKey,
    order_key: RandomKey,
) -> Iterator[Callable[[Any], tuple[Any, Info]]]:
    """Yields the blocks of a run over arrays: whole epochs, as many as make a block worth its dispatch."""
    total = run_length(traits, rows.count, batch_size, epochs, steps)
    whole = traits.batching == "full" or batch_size >= rows.count
    per_epoch = 1 if whole else math.ceil(rows.count / batch_size)
    at_once = per_epoch * _largest_divisor(max(total // per_epoch, 1), _BLOCK_STEPS // per_epoch)
    for start in range(0, total, at_once):
        length = min(at_once, total - start)

        def block(state: Any, start: int = start, length: int = length) -> tuple[Any, Info]:
            if whole:
                return _scan_whole(algorithm, state, objective, rows.full(), start, step_key, length)
            shuffled = traits.batching != "once"
            return _scan_batches(
                algorithm, state, objective, rows, start, step_key, order_key, length, batch_size, shuffled
            )

        yield block


def stream_blocks(
    algorithm: Any, objective: Objective, rows: Stream, passes: int | None, steps: int | None, step_key: RandomKey
) -> Iterator[Callable[[Any], tuple[Any, Info]]]:
    """Yields the steps of a run over batches that come in their own order."""
    done = 0
    for _ in itertools.count() if passes is None else range(passes):
        for batch in rows:
            if done == steps:
                return

            def step(state: Any, batch: Batch = batch, done: int = done) -> tuple[Any, Info]:
                return _one_step(algorithm, state, objective, batch, jax.random.fold_in(step_key, done))

            yield step
            done += 1


@jax.jit
def start(algorithm: Any, key: RandomKey, objective: Objective, batch: Batch) -> Any:
    """Returns the algorithm's first state, in one compiled call."""
    return _opened(algorithm).init(key, objective, batch)


@partial(jax.jit, donate_argnums=1)
def _one_step(algorithm: Any, state: Any, objective: Objective, batch: Batch, key: RandomKey) -> tuple[Any, Info]:
    return _opened(algorithm).step(key, state, batch, objective)


@partial(jax.jit, static_argnums=6, donate_argnums=1)
def _scan_whole(
    algorithm: Any, state: Any, objective: Objective, batch: Batch, start: Array | int, step_key: RandomKey, length: int
) -> tuple[Any, Info]:
    def body(state: Any, t: Array) -> tuple[Any, Info]:
        return _opened(algorithm).step(jax.random.fold_in(step_key, t), state, batch, objective)

    return jax.lax.scan(body, state, start + jnp.arange(length))


@partial(jax.jit, static_argnums=(7, 8, 9), donate_argnums=1)
def _scan_batches(
    algorithm: Any,
    state: Any,
    objective: Objective,
    rows: Arrays,
    start: Array | int,
    step_key: RandomKey,
    order_key: RandomKey,
    length: int,
    batch_size: int,
    shuffled: bool,
) -> tuple[Any, Info]:
    per_epoch = math.ceil(rows.count / batch_size)
    first_epoch = start // per_epoch

    opened = _opened(algorithm)
    streams = opened.traits.streams
    padding = per_epoch * batch_size - rows.count

    def plan_of(epoch: Array) -> Array:
        """Returns the rows of an epoch's batches, `[batches, batch]`, or `[batches, streams, batch]` for several."""
        if not shuffled:
            orders = jnp.arange(rows.count)[None]
        else:
            epoch_key = jax.random.fold_in(order_key, epoch)
            keys = [epoch_key] if streams == 1 else jax.random.split(epoch_key, streams)
            orders = jnp.stack([jax.random.permutation(key, rows.count) for key in keys])
        batches = jnp.pad(orders, ((0, 0), (0, padding))).reshape(-1, per_epoch, batch_size)
        return batches[0] if streams == 1 else jnp.swapaxes(batches, 0, 1)

    epochs = first_epoch + jnp.arange(math.ceil(length / per_epoch))
    plan = jax.vmap(plan_of)(epochs)
    plan = plan.reshape(-1, *plan.shape[2:])[:length]
    real = jnp.pad(jnp.ones(rows.count, rows.x.dtype), (0, padding)).reshape(per_epoch, batch_size)

    def body(state: Any, now: tuple[Array, Array]) -> tuple[Any, Info]:
        t, chosen = now
        mask = jnp.broadcast_to(real[t % per_epoch], chosen.shape)
        batch = Batch(x=rows.x[chosen], y=rows.y[chosen], mask=mask, weight=rows.weight[chosen])
        return opened.step(jax.random.fold_in(step_key, t), state, batch, objective)

    return jax.lax.scan(body, state, (start + jnp.arange(length), plan))


def _opened(algorithm: Any) -> Any:
    return algorithm.algorithm if isinstance(algorithm, _Opaque) else algorithm


def _largest_divisor(n: int, most: int) -> int:
    """Returns the largest divisor of n up to `most`: blocks of one length compile once."""
    return next((d for d in range(min(n, max(most, 1)), 0, -1) if n % d == 0), 1)
