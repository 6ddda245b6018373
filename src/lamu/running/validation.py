"""Validation: held-out rows, the score of a state on them, and the best state so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.base.sizes import number, whole_number
from lamu.data.arrays import Arrays, folds_of, split, warn_of_scale
from lamu.data.batch import Batch
from lamu.data.precision import require_room
from lamu.data.stream import Stream
from lamu.objective import Objective
from lamu.protocol import runnable
from lamu.running.compiled_steps import algorithm_of
from lamu.supports import value_of
from lamu.target import Target
from lamu.typing import Array, Data, PyTree, RandomKey, State

__all__ = [
    "Best",
    "bytes_in_memory",
    "mean_and_margin",
    "posterior_nll",
    "row_losses",
    "split_validation",
    "training_rows",
    "validation_nll",
    "validation_pairs",
]


def training_rows(model: Target, data: Data, stacklevel: int = 4) -> Arrays | Stream:
    """Returns data as training rows; warns of weights whose sum is far from the number of rows."""
    rows = model.read(data)
    if isinstance(rows, Arrays) and rows is not data:
        warn_of_scale(rows.weight, stacklevel=stacklevel)
    return rows


def bytes_in_memory(data: Data, validation: object) -> int:
    """Returns the bytes that data in files will take in memory, and refuses those beyond the limit."""
    named = dict(zip(("x", "y"), data, strict=False)) if isinstance(data, tuple | list) else data
    if not isinstance(named, Mapping):
        return 0
    parts = {name: part for name, part in named.items() if isinstance(part, np.ndarray)}
    require_room(parts, copies=2 if number(validation) is not None else 1)
    return require_room(parts)


_ROWS, _DRAWS = 4096, 32
_ERRORS = 2.0  # standard errors within which losses count as equal,
_NATS = 1.0  # or nats, of the losses of all rows together


def split_validation(rows: object, validation: object, model: Target, seed: int) -> tuple[Any, Arrays | None]:
    """Returns the training rows and the validation rows."""
    if validation is None:
        return rows, None
    share = 0.0 if isinstance(validation, bool) else number(validation)
    if share is None:
        return rows, _readable(_counted(model.rows(validation)), model, rows)
    if not 0.0 < share < 1.0:
        raise ValueError(
            f"validation={validation!r} is no share of the rows; give one between 0 and 1, for instance 0.1, or other "
            "rows, (x, y)"
        )
    if not isinstance(rows, Arrays):
        raise ValueError(
            f"validation={validation!r} is a share, and batches have no rows to set aside; give validation=(x, y)"
        )
    y = np.asarray(value_of(rows.y)) if model.has_classes else np.zeros(rows.count)
    rare = not model.has_classes or np.unique(y, return_counts=True)[1].min() < 2
    try:
        kept, held_out = split(y, share, seed, stratify=not rare)
    except ValueError:
        if rare:
            raise
        kept, held_out = split(y, share, seed)  # too few rows for all classes in both parts
    return rows.take(kept), _counted(rows.take(held_out))


def validation_pairs(
    rows: object, validation: object, model: Target, seed: int, share: float, fewest: int
) -> list[tuple[Any, Arrays]]:
    """Returns pairs of training rows and judging rows: one, or more until enough rows judge."""
    # Given validation rows are one pair. Otherwise a share of the rows judges, and where these are too few also further
    # shares, each with the rows outside of it for training.
    if validation is not None or not isinstance(rows, Arrays):
        learned, held_out = split_validation(rows, share if validation is None else validation, model, seed)
        assert held_out is not None  # a share or rows were given
        return [(learned, held_out)]
    folds = min(round(1 / share), rows.count)
    if folds < 2:
        raise ValueError(f"{rows.count} row is too few to fit and to validate; give validation=(x, y), or more rows")
    y = np.asarray(value_of(rows.y)) if model.has_classes else np.zeros(rows.count)
    parts = folds_of(y, folds, seed, stratify=y.ndim == 1 and model.has_classes)
    judging = parts[: min(folds, -(-fewest // len(parts[-1])))]
    everyone = np.arange(rows.count)
    return [(rows.take(np.setdiff1d(everyone, part)), _counted(rows.take(part))) for part in judging]


def _counted(held_out: Arrays) -> Arrays:
    """Returns validation rows; refuses rows with a total weight of zero."""
    if not np.any(np.asarray(held_out.weight) > 0):
        raise ValueError(
            f"the {held_out.count} rows set aside have the weight 0 and cannot validate; set others aside, or leave "
            "these out"
        )
    return held_out


def _readable(held_out: Arrays, model: Target, rows: Any) -> Arrays:
    """Returns validation rows; refuses those that the network of the training rows cannot read."""
    if model.has_outputs:

        def densities(key: RandomKey, of_training: Batch, of_held_out: Batch) -> Array:
            return model.log_likelihood(*model.init(key, of_training), of_held_out)[0]

        try:
            jax.eval_shape(densities, jax.random.key(0), rows.example(1), held_out.example(1))
        except ValueError as error:
            raise ValueError(f"the validation rows do not fit: {error}") from error
    return held_out


def validation_nll(algorithm: object, key: RandomKey, state: State, objective: Objective, held_out: Arrays) -> float:
    """Returns the weighted mean negative log predictive density of the held-out rows, in nats a row."""
    # It is that of the algorithm's `preview`, without a pass over the data.
    #
    # `key`: for the draws; the same at every validation, so that two differ by their states alone.
    total, weight = 0.0, 0.0
    for batch in held_out.batches(min(held_out.count, _ROWS)):
        part, count = _batch_nll(algorithm, jax.random.clone(key), state, objective, batch)
        total, weight = total + float(part), weight + float(count)
    return total / weight


def posterior_nll(posterior: Any, rows: Arrays, samples: int = _DRAWS) -> float:
    """Returns the weighted mean negative log predictive density of held-out rows under a posterior, in nats a row."""
    return float(np.average(row_losses(posterior, rows, samples), weights=np.asarray(rows.weight, float)))


def row_losses(posterior: Any, rows: Arrays, samples: int = _DRAWS) -> np.ndarray:
    """Returns the negative log predictive density of each row under a posterior, in nats."""
    if posterior.model.predicts_missing or posterior.model.simulates:
        return -np.asarray(posterior.log_prob(rows, samples), float)
    return -np.asarray(posterior.predict(rows.x, samples=samples, offset=rows.offset).log_prob(rows.y), float)


def mean_and_margin(more: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Returns the weighted mean of differences, and two standard errors of it, or one nat over all rows."""
    # One nat over all rows: the effect of a single row with one more nat of loss.
    share = weight / weight.sum()
    mean = float(share @ more)
    return mean, max(_ERRORS * math.sqrt(share**2 @ (more - mean) ** 2), _NATS * float(share @ share))


@jax.jit
def _batch_nll(
    algorithm: PyTree, key: RandomKey, state: State, objective: Objective, batch: Batch
) -> tuple[Array, Array]:
    posterior = runnable(algorithm_of(algorithm)).preview(key, state, objective)
    draws = jax.random.fold_in(key, 1)
    if posterior.model.predicts_missing or posterior.model.simulates:
        posterior = posterior.model.constrained(posterior)
        log_prob = posterior.model.row_log_prob(posterior.belief, batch, _DRAWS, draws)
        return -batch.total(log_prob), jnp.sum(batch.mask * batch.weight)
    pred = posterior.rule.predict(
        posterior.model, posterior.belief, posterior.network_state, batch.x, _DRAWS, draws, batch.offset
    )
    return -batch.total(pred.log_prob(batch.y)), jnp.sum(batch.mask * batch.weight)


class Best:
    """The best state so far, by its validation."""

    # `stop`: the number of passes over the data without a better validation, or a function of the history, after which
    # to stop; None for never.

    def __init__(self, stop: int | Callable[[Mapping[str, object]], bool] | None) -> None:
        limited = stop is not None and not callable(stop)
        self._stop = whole_number("stop", stop, problem="is not a number of epochs") if limited else stop
        self.state: State = None
        self.nll = float("inf")
        self.passes = 0.0
        self.chosen_last = True
        self.stopped = False

    @property
    def may_stop(self) -> bool:
        """Whether it may stop a run."""
        return self._stop is not None

    def update(self, state: State, nll: float, passes: float | int) -> None:
        """Keeps a copy of the state if its validation is the best one."""
        self.chosen_last = self.state is None or nll < self.nll or math.isnan(self.nll)  # of the first state
        if self.chosen_last:
            # A copy, because the state is donated to the next block.
            self.state, self.nll, self.passes = jax.tree.map(_copy, state), nll, passes

    def enough(self, passes: float | int, history: Mapping[str, object]) -> bool:
        """Whether the run should stop."""
        if callable(self._stop):
            return bool(self._stop(history))
        return self._stop is not None and passes - self.passes >= self._stop


def _copy(leaf: object) -> Any:
    return jnp.copy(leaf) if isinstance(leaf, jax.Array) else leaf
