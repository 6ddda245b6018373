"""The loop: a thin layer over `init`, `step` and `posterior`, with progress; its strategy is chosen here alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.stream import Stream
from lamu.model import Model
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.progress import Progress
from lamu.protocol import Algorithm, Info, Traits
from lamu.record import record, static
from lamu.typing import Array, Number, RandomKey

__all__ = ["Diverged", "Fit", "fit"]

_BLOCK_STEPS = 64
_EPOCHS = 50
_EXAMPLE_ROWS = 4096


class Diverged(RuntimeError):
    """The loss became NaN or infinite.

    Attributes:
        fit: what there was before the block of steps that failed, or None for a sampler.
    """

    def __init__(self, message: str, fit: Fit | None) -> None:
        super().__init__(message)
        self.fit = fit


@dataclass(frozen=True)
class Fit:
    """What `fit` returns.

    Attributes:
        posterior: the posterior.
        history: "loss" (nats a row, an estimate on each step's batch) and "residual", one entry a step.
        state: the algorithm's last state.
        interrupted: whether the run was stopped from the keyboard before its end.

    Example:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.7)).standardised(x, y)
        >>> sorted(lamu.fit(model, (x, y), lamu.algorithms.conjugate()).history)
        ['loss', 'residual']
    """

    posterior: Posterior
    history: dict[str, np.ndarray]
    state: Any
    interrupted: bool = False


def fit(
    model: Model,
    data: Any,
    algorithm: Algorithm,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int = 64,
    seed: int = 0,
    temperature: Number = 1.0,
    likelihood_power: Number = 1.0,
    data_size: Number | None = None,
    callbacks: Sequence[Callable[[int, Mapping[str, float]], Any]] = (),
    progress: bool | None = None,
) -> Fit:
    r"""Fits a model to data by an algorithm.

    Arrays are put on the device once, shuffled anew at every epoch by the seed, and read in blocks of steps that are
    one compiled scan; the last batch of an epoch is padded and masked. Other re-iterables of batches run step by step,
    in their own order. A batch size of N or more is the whole data, unshuffled.

    Args:
        model: network, likelihood and prior.
        data: `(x, y)`, a mapping with `x`, `y` and, optionally, `weight`, or a re-iterable of batches.
        algorithm: one of `lamu.algorithms` or `lamu.mcmc`, or one's own.
        epochs: passes over the data; 50 where neither epochs nor steps are given and the length is not the algorithm's
            own.
        steps: the number of steps, in the place of epochs.
        batch_size: rows a step.
        seed: of everything that is random; the same seed gives the same bits on the same machine.
        temperature: T; the target is \(\exp(-\ell/T)\).
        likelihood_power: the power of the likelihood alone.
        data_size: N, where it is not the number of rows given; required for re-iterables.
        callbacks: called after every block of steps with the steps done and the last loss and residual.
        progress: whether to show progress; where None, if standard error is a terminal.

    Returns:
        The posterior, the history and the last state. An interrupt from the keyboard returns what there is.

    Raises:
        ValueError: for data that the model cannot take, or both epochs and steps.
        Diverged: if the loss is no longer finite; its `fit` keeps the last good state.

    Example:
        >>> import lamu
        >>> x, y = lamu.data.load("digits")
        >>> model = lamu.Model(lamu.networks.MLP((32,)), lamu.likelihoods.Categorical(10))
        >>> fit = lamu.fit(model, (x, y), lamu.algorithms.adam(1e-2), epochs=5)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.9
        True
    """
    rows = data if isinstance(data, Arrays | Stream) else _rows(data)
    if isinstance(rows, Arrays):
        model.likelihood.check(np.asarray(rows.y))
    if data_size is None:
        if not isinstance(rows, Arrays):
            raise ValueError("data that comes in batches has no known size; give data_size=N, the number of its rows")
        data_size = rows.count
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size!r} makes no batch; ask for at least one row")
    if epochs is not None and steps is not None:
        raise ValueError(f"epochs={epochs!r} and steps={steps!r} contradict each other; give one of them")
    objective = Objective(model, float(data_size), temperature, likelihood_power)
    init_key, step_key, order_key, final_key = (jax.random.fold_in(jax.random.key(seed), i) for i in range(4))
    # Dispersions start from what they are in the data, so the example may be larger than a batch.
    example = rows.example(min(rows.count, _EXAMPLE_ROWS) if isinstance(rows, Arrays) else 1)
    handle = algorithm if _is_pytree(algorithm) else _Opaque(algorithm)
    state = _init(handle, init_key, objective, example)
    if isinstance(rows, Arrays):
        blocks = _array_blocks(
            handle, algorithm.traits, objective, rows, batch_size, epochs, steps, step_key, order_key
        )
        total = _length(algorithm.traits, rows.count, batch_size, epochs, steps)
    else:
        passes = _passes(algorithm.traits, epochs, steps)
        blocks = _stream_blocks(handle, objective, rows, passes, steps, step_key)
        total = steps
    kept = _Record(algorithm.traits.warmup)
    interrupted = False
    good = state
    with Progress(total, progress) as bar:
        try:
            for block in blocks:
                # The block is given the state away; what can be returned after a failure is a copy.
                good = jax.tree.map(jnp.copy, state)
                try:
                    state, info = block(state)
                    kept.add(info)
                except KeyboardInterrupt:
                    state = good
                    raise
                if not kept.finite:
                    break
                for callback in callbacks:
                    callback(kept.steps, kept.last)
                bar.update(kept.steps, kept.last["loss"])
        except KeyboardInterrupt:
            interrupted = True

    def finish(state: Any) -> Fit:
        posterior = algorithm.posterior(final_key, state, objective, rows, kept.trace)
        return Fit(posterior, kept.history, state, interrupted)

    if not kept.finite:
        raise Diverged(
            f"the loss is {kept.history['loss'][kept.first_bad]} at step {kept.first_bad + 1}; lower the learning "
            "rate, standardise the data (model.standardised(x, y)), or narrow the prior",
            finish(good) if kept.trace is None else None,
        )
    return finish(state)


@record
class _Opaque:
    """An algorithm that is no pytree: one's own class. It is a constant of the compiled step."""

    algorithm: Any = static()


class _Record:
    """What is kept of the steps: their numbers, and the draws after the warm-up."""

    def __init__(self, warmup: int) -> None:
        self._warmup = warmup
        self._infos: list[dict[str, np.ndarray]] = []
        self._draws: list[Any] = []
        self.steps = 0

    def add(self, info: Info) -> None:
        loss = np.atleast_1d(np.asarray(info.loss))
        residual = np.broadcast_to(np.asarray(info.residual), loss.shape)
        if info.draw is not None:
            dropped = max(0, min(self._warmup - self.steps, len(loss)))
            if dropped < len(loss):
                self._draws.append(jax.tree.map(lambda leaf: np.asarray(leaf[dropped:]), info.draw))
        self._infos.append({"loss": loss, "residual": residual})
        self.steps += len(loss)

    @property
    def history(self) -> dict[str, np.ndarray]:
        names = ("loss", "residual")
        return {name: np.concatenate([np.empty(0), *(info[name] for info in self._infos)]) for name in names}

    @property
    def last(self) -> dict[str, float]:
        return {name: float(values[-1]) for name, values in self._infos[-1].items()}

    @property
    def finite(self) -> bool:
        return not self._infos or bool(np.isfinite(self._infos[-1]["loss"]).all())

    @property
    def first_bad(self) -> int:
        return int(np.flatnonzero(~np.isfinite(self.history["loss"]))[0])

    @property
    def trace(self) -> Any:
        if not self._draws:
            return None
        return jax.tree.map(lambda *parts: jnp.asarray(np.concatenate(parts)), *self._draws)


def _rows(data: Any) -> Arrays | Stream:
    if isinstance(data, Mapping) or (isinstance(data, tuple) and len(data) == 2):
        return Arrays.of(data)
    if isinstance(data, Iterable) and not hasattr(data, "shape"):
        return Stream(data)
    raise TypeError(
        f"data of type {type(data).__name__} cannot be read; give (x, y), a mapping, or an iterable of batches"
    )


def _length(traits: Traits, count: int, batch_size: int, epochs: int | None, steps: int | None) -> int:
    """Returns the number of steps that a run over arrays takes."""
    if traits.length is not None or traits.batching == "once":
        if epochs is not None or steps is not None:
            raise ValueError("this algorithm has a length of its own; leave epochs and steps out")
        return traits.length if traits.length is not None else math.ceil(count / batch_size)
    _require_positive(epochs, steps)
    per_epoch = 1 if traits.batching == "full" else math.ceil(count / batch_size)
    return steps if steps is not None else (_EPOCHS if epochs is None else epochs) * per_epoch


def _passes(traits: Traits, epochs: int | None, steps: int | None) -> int | None:
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


def _array_blocks(
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
    total = _length(traits, rows.count, batch_size, epochs, steps)
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


def _stream_blocks(
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
def _init(algorithm: Any, key: RandomKey, objective: Objective, batch: Batch) -> Any:
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
        """Returns the rows of every batch of an epoch, `[batches, batch]`, or `[batches, streams, batch]` for several."""
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


def _is_pytree(value: Any) -> bool:
    return not jax.tree_util.all_leaves([value])


def _largest_divisor(n: int, most: int) -> int:
    """Returns the largest divisor of n up to `most`: blocks of one length compile once."""
    return next((d for d in range(min(n, max(most, 1)), 0, -1) if n % d == 0), 1)
