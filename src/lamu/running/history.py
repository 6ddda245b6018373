"""The history of a run: the diagnostics of every step, a sampler's draws, and validation by rows set aside."""

from __future__ import annotations

import errno
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory, tree
from lamu.base.arguments import number, whole_number
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.copies import copies_together, seen_rows
from lamu.data.splits import Groups, RowTimes, folds_of, num_groups, split, sums_of_groups
from lamu.objective import Objective
from lamu.protocol import Info, Traits, runnable
from lamu.running.compiled_steps import algorithm_of
from lamu.supports import value_of
from lamu.target import Target
from lamu.typing import Array, DTypeLike, PyTree, RandomKey, State

__all__ = [
    "Best",
    "DrawsInMemory",
    "DrawsOnDisk",
    "History",
    "collects",
    "count",
    "keeps",
    "mean_and_margin",
    "posterior_nll",
    "row_losses",
    "split_validation",
    "stage_end",
    "validation_nll",
    "validation_pairs",
]


def collects(traits: Traits, t: int) -> bool:
    """Whether step t is in a stage whose draws are kept."""
    return t >= traits.warmup and _within(traits, t) >= traits.exploration


def keeps(traits: Traits, t: int) -> bool:
    """Whether the draw of step t is kept: the last of every `thinning` steps of its stage."""
    return collects(traits, t) and (_within(traits, t) - traits.exploration + 1) % traits.thinning == 0


def count(traits: Traits, steps: int) -> int:
    """Returns the number of kept draws of the first `steps` steps."""
    after = max(steps - traits.warmup, 0)
    if not traits.cycle:
        return max(after - traits.exploration, 0) // traits.thinning
    cycles, rest = divmod(after, traits.cycle)
    each = (traits.cycle - traits.exploration) // traits.thinning
    return cycles * each + max(rest - traits.exploration, 0) // traits.thinning


def stage_end(traits: Traits, t: int, total: int) -> int:
    """Returns the end of the stage of step t: the next step of another stage, or the run's end."""
    if t < traits.warmup:
        return min(traits.warmup, total)
    within = _within(traits, t)
    if within < traits.exploration:
        return min(t - within + traits.exploration, total)
    return min(t - within + traits.cycle, total) if traits.cycle else total


def _within(traits: Traits, t: int) -> int:
    """Returns the number of a step within its cycle; without cycles, within the run after the warm-up."""
    after = t - traits.warmup
    return after % traits.cycle if traits.cycle else after


class DrawsInMemory:
    """Draws in the memory of the host."""

    def __init__(self, like: object) -> None:
        self._structure = jax.tree.structure(like)
        self._parts: list[list[np.ndarray]] = []

    def add(self, draws: object) -> None:
        """Adds draws, leaves `[n, ...]`."""
        self._parts.append([np.asarray(leaf) for leaf in jax.tree.leaves(draws)])

    @property
    def trace(self) -> PyTree:
        """All draws, leaves `[draws, ...]`; None where there are none."""
        if not self._parts:
            return None
        leaves = [jax.device_put(np.concatenate(parts)) for parts in zip(*self._parts, strict=True)]
        return jax.tree.unflatten(self._structure, leaves)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the draws as named arrays, for a checkpoint."""
        return {f"draw {i}": np.concatenate(parts) for i, parts in enumerate(zip(*self._parts, strict=True))}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restores the result of `arrays`."""
        draws = [np.asarray(arrays[f"draw {i}"]) for i in range(len(arrays)) if f"draw {i}" in arrays]
        self._parts = [draws] if draws else []


class DrawsOnDisk:
    """Draws in a folder, one `.npy` file a leaf, `[draws, ...]`, which NumPy maps into memory."""

    # The files have their full length and disk space from the beginning; only the draws recorded in a checkpoint count,
    # and a resumed run writes the others again. One of several processes writes, and the others read its files at the
    # end.

    def __init__(self, like: object, total: int, folder: str | os.PathLike[str], writes: bool = True) -> None:
        self._like, self._total, self._folder, self._writes = like, total, Path(folder), writes
        self._files: list[np.memmap] = []
        self._count = 0

    def reserve(self) -> None:
        """Creates the files, so that a lack of disk space is found before the first step."""
        if self._writes:
            self._open()

    def add(self, draws: object) -> None:
        """Appends draws, leaves `[n, ...]`."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(draws)]
        end = self._count + len(leaves[0])
        if self._writes:
            self._open()
            for file, leaf in zip(self._files, leaves, strict=True):
                file[self._count : end] = leaf
        self._count = end

    @property
    def trace(self) -> PyTree:
        """All draws, leaves `[draws, ...]`: on the device where they fit into a chunk of memory, else still on disk."""
        if not self._count:
            return None
        self._open()
        small = memory.bytes_of(self._like) * self._count <= memory.budget()
        leaves = [file[: self._count] for file in self._files]
        return jax.tree.unflatten(
            jax.tree.structure(self._like), [jnp.array(leaf) if small else leaf for leaf in leaves]
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Syncs all draws to disk and returns their number."""
        for file in self._files:
            file.flush()
        return {"draws on disk": np.array([self._count])}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restores the result of `arrays`."""
        self._count = int(np.asarray(arrays["draws on disk"])[0])
        missing = [place.name for place in self._places() if self._count and not place.is_file()]
        if missing:
            raise ValueError(
                f"the checkpoint counts {self._count} draws in {str(self._folder)!r}, where {missing[0]} is missing; "
                "put it back, or start again in another folder"
            )

    def _places(self) -> list[Path]:
        return [self._folder / f"{path.replace('/', '.')}.npy" for path in tree.paths(self._like)]

    def _open(self) -> None:
        if self._files:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        for place, leaf in zip(self._places(), jax.tree.leaves(self._like), strict=True):
            shape = (self._total, *leaf.shape)
            if self._count:
                file = np.lib.format.open_memmap(place, mode="r+" if self._writes else "r")
                if file.shape[1:] != shape[1:] or file.dtype != leaf.dtype or len(file) < self._count:
                    raise ValueError(
                        f"{str(place)!r} holds {file.dtype}{list(file.shape)} and not {leaf.dtype}{list(shape)}; it is "
                        "of another run: choose another folder"
                    )
                short = self._writes and len(file) < self._total
                file = file if not short else _longer(place, file, shape, self._count)
            else:
                file = _allocated(place, leaf.dtype, shape)
            self._files.append(file)


def _allocated(place: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> np.memmap:
    """Returns a new file with its disk space allocated: a missing page would crash the process later."""
    try:
        file = np.lib.format.open_memmap(place, mode="w+", dtype=dtype, shape=shape)
        size = place.stat().st_size
        if hasattr(os, "posix_fallocate"):
            with open(place, "r+b") as handle, _unless_unknown():
                os.posix_fallocate(handle.fileno(), 0, size)
    except OSError as error:
        place.unlink(missing_ok=True)
        need = math.prod(shape) * np.dtype(dtype).itemsize
        raise ValueError(
            f"the draws take {memory.shown(need)} in {str(place)!r}, which could not be made "
            f"({str(error.strerror or error).lower()}); make room, ask for fewer draws, or choose another checkpoint "
            "folder"
        ) from error
    return file


@contextmanager
def _unless_unknown() -> Iterator[None]:
    """Context manager that ignores operations which the file system does not support."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise


def _longer(place: Path, file: np.memmap, shape: tuple[int, ...], count: int) -> np.memmap:
    """Replaces a file by one for more draws, when a run is extended."""
    draft = place.with_suffix(".draft")
    longer = _allocated(draft, file.dtype, shape)
    longer[:count] = file[:count]
    longer.flush()
    os.replace(draft, place)
    return longer


_OF_STEPS = ("loss", "residual")
_OF_VALIDATIONS = ("validation_step", "validation_nll")


class History:
    """The record of a run's steps, in the order in which they were taken."""

    # `like`: the shapes of one draw (`jax.ShapeDtypeStruct`), for a sampler; None otherwise. `writes`: whether this
    # process writes files.

    def __init__(
        self,
        traits: Traits,
        like: object = None,
        folder: str | os.PathLike[str] | None = None,
        writes: bool = True,
    ) -> None:
        self._columns: dict[str, list[np.ndarray]] = {name: [] for name in (*_OF_STEPS, *_OF_VALIDATIONS)}
        self._draws: Any = None
        if like is not None and traits.length is not None:
            total = count(traits, traits.length)
            self._draws = DrawsInMemory(like) if folder is None else DrawsOnDisk(like, total, folder, writes)
        self.steps = 0

    def reserve(self) -> None:
        """Creates the files of draws that are written to a folder."""
        if isinstance(self._draws, DrawsOnDisk):
            self._draws.reserve()

    def add(self, info: Info) -> None:
        """Adds a block of steps, or a single step, with a sampler's kept draws, `[kept, ...]`."""
        loss = np.atleast_1d(np.asarray(info.loss))
        if info.draw is not None:
            draws = jax.tree.map(np.asarray, info.draw)
            if self._draws is None:  # an algorithm whose length the caller sets
                self._draws = DrawsInMemory(jax.tree.map(lambda leaf: leaf[0], draws))
            self._draws.add(draws)
        self._columns["loss"].append(loss)
        self._columns["residual"].append(np.broadcast_to(np.asarray(info.residual), loss.shape))
        self.steps += len(loss)

    def validated(self, nll: float) -> None:
        """Adds a validation after the steps so far: the negative log predictive density, in nats a row."""
        self._columns["validation_step"].append(np.array([self.steps]))
        self._columns["validation_nll"].append(np.array([nll]))

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Loss and residual, one entry a step, and the steps and results of validations."""
        joined = {name: np.concatenate([np.empty(0), *parts]) for name, parts in self._columns.items()}
        joined["validation_step"] = joined["validation_step"].astype(int)
        return {name: values for name, values in joined.items() if name in _OF_STEPS or len(values)}

    @property
    def last(self) -> dict[str, float]:
        """The last entry of each column."""
        return {name: float(parts[-1][-1]) for name, parts in self._columns.items() if parts}

    @property
    def finite(self) -> bool:
        """Whether the last losses are finite."""
        return not self._columns["loss"] or bool(np.isfinite(self._columns["loss"][-1]).all())

    @property
    def first_bad(self) -> int:
        """The number of the first step whose loss is not finite."""
        return int(np.flatnonzero(~np.isfinite(self.columns["loss"]))[0])

    @property
    def trace(self) -> PyTree:
        """The kept draws, leaves `[draws, ...]`; None where there are none."""
        return None if self._draws is None else self._draws.trace

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns all as named arrays, for a checkpoint; for draws on disk their number."""
        return {**self.columns, **({} if self._draws is None else self._draws.arrays())}

    def restore(self, arrays: Mapping[str, np.ndarray], structure: PyTree = None) -> None:
        """Restores the result of `arrays`."""
        for name, parts in self._columns.items():
            parts[:] = [np.asarray(arrays[name])] if len(arrays.get(name, ())) else []
        if self._draws is None and "draw 0" in arrays:
            leaves = [arrays[f"draw {i}"][0] for i in range(structure.num_leaves)]
            self._draws = DrawsInMemory(jax.tree.unflatten(structure, leaves))
        if self._draws is not None:
            self._draws.restore(arrays)
        self.steps = sum(len(part) for part in self._columns["loss"])


_ROWS, _DRAWS = 4096, 32
_ERRORS = 2.0  # standard errors within which losses count as equal,
_NATS = 1.0  # or nats, of the losses of all rows together


def split_validation(rows: object, validation: object, model: Target, seed: int) -> tuple[Any, Arrays | None]:
    """Returns the training rows and the validation rows."""
    if validation is None:
        return rows, None
    share = 0.0 if isinstance(validation, bool) else number(validation)
    if share is None:
        held_out = _readable(_counted(model.rows(validation)), model, rows)
        if isinstance(rows, Arrays) and held_out is not validation:  # else it is a part of the rows
            _warn_of_seen(held_out, rows)
        return rows, held_out
    if not 0.0 < share < 1.0:
        raise ValueError(
            f"validation={validation!r} is no share of the rows; give one between 0 and 1, for instance 0.1, or other "
            "rows, (x, y)"
        )
    if not isinstance(rows, Arrays):
        raise ValueError(
            f"validation={validation!r} is a share, and batches have no rows to set aside; give validation=(x, y)"
        )
    rows = copies_together(rows)
    y = np.asarray(value_of(rows.y)) if model.has_classes else np.zeros(rows.count)
    rare = not model.has_classes or np.unique(y, return_counts=True)[1].min() < 2
    try:
        kept, held_out = split(y, share, seed, stratify=not rare, groups=rows.groups)
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
    rows = copies_together(rows)
    folds = min(round(1 / share), rows.count if rows.groups is None else num_groups(rows.groups, rows.count))
    if folds < 2:
        raise ValueError(f"{rows.count} row is too few to fit and to validate; give validation=(x, y), or more rows")
    y = np.asarray(value_of(rows.y)) if model.has_classes else np.zeros(rows.count)
    parts = folds_of(y, folds, seed, stratify=y.ndim == 1 and model.has_classes, groups=rows.groups)
    judging = parts[: min(folds, -(-fewest // (rows.count // folds)))]
    if isinstance(rows.groups, RowTimes):  # each is judged by rows that are later than all of its own
        rank = np.asarray(rows.groups)
        learned = [np.flatnonzero(rank < rank[part].min()) for part in judging[: folds - 1]]
    else:
        learned = [np.setdiff1d(np.arange(rows.count), part) for part in judging]
    return [(rows.take(own), _counted(rows.take(part))) for own, part in zip(learned, judging, strict=False)]


def _counted(held_out: Arrays) -> Arrays:
    """Returns validation rows; refuses rows with a total weight of zero."""
    if not np.any(np.asarray(held_out.weight) > 0):
        raise ValueError(
            f"the {held_out.count} rows set aside have the weight 0 and cannot validate; set others aside, or leave "
            "these out"
        )
    return held_out


def _warn_of_seen(held_out: Arrays, rows: Arrays) -> None:
    """Warns of validation rows that are training rows."""

    def numbers(part: Arrays) -> list[np.ndarray]:
        return [np.asarray(leaf).reshape(part.count, -1) for leaf in jax.tree.leaves((part.x, part.y))]

    if seen := len(seen_rows(numbers(held_out), numbers(rows))):
        warnings.warn(
            f"{seen} of {held_out.count} validation rows are training rows too, which reward what knows them by heart; "
            "give other rows, or a share, validation=0.1",
            UserWarning,
            stacklevel=4,
        )


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


def mean_and_margin(more: np.ndarray, weight: np.ndarray, groups: Groups | None = None) -> tuple[float, float]:
    """Returns the weighted mean of differences, and two standard errors of it, or one nat over all rows."""
    # The rows of a group are one observation of the error.
    # One nat over all rows: the effect of a single row with one more nat of loss.
    share = weight / weight.sum()
    mean = float(share @ more)
    return mean, max(
        _ERRORS * float(np.linalg.norm(sums_of_groups(share * (more - mean), groups))), _NATS * float(share @ share)
    )


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
