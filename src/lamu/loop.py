"""The loop: a thin layer over `init`, `step` and `posterior`, with progress; its strategy is chosen here alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.data.arrays import Arrays
from lamu.data.stream import Stream
from lamu.model import Model
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.progress import Progress
from lamu.protocol import Algorithm, Info
from lamu.strategy import array_blocks, handle, passes_over, run_length, start, stream_blocks
from lamu.typing import Number

__all__ = ["Diverged", "Fit", "fit"]

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

    Examples:
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

    Examples:
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
    held = handle(algorithm)
    state = start(held, init_key, objective, example)
    if isinstance(rows, Arrays):
        blocks = array_blocks(held, algorithm.traits, objective, rows, batch_size, epochs, steps, step_key, order_key)
        total = run_length(algorithm.traits, rows.count, batch_size, epochs, steps)
    else:
        passes = passes_over(algorithm.traits, epochs, steps)
        blocks = stream_blocks(held, objective, rows, passes, steps, step_key)
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
    if interrupted and kept.trace is None and algorithm.traits.length is not None:
        raise KeyboardInterrupt  # a sampler in its warm-up has no draw to return
    return finish(state)


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
