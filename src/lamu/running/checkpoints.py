"""Checkpoints of a run: the state of everything at some step, whole on disk or not there at all.

One folder a step, which `lamu.store` writes: JSON, arrays and their checksums, made under another name and renamed when
it is whole. One that is to be removed is renamed first. A process that is killed leaves at worst a draft, which the
next save clears. The structure is not saved: it comes back from `like`, a state of the same kind, so that named tuples
of other libraries need no registration here.

What lies over several processes is in the same folder, written by each of them (`lamu.running.shards`).

Orbax's manager was tried in this place: it saved a hundred small arrays in 160 ms where this takes 10, refuses arrays
without elements, and returned a flipped bit as if it were what was saved.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import store
from lamu.data.arrays import Arrays
from lamu.running import shards
from lamu.running.shards import Shards, is_sharded
from lamu.typing import Document, State

__all__ = [
    "CheckpointError",
    "Checkpoints",
    "NotWritten",
    "Unsaved",
    "described",
    "of_part",
    "rows_described",
]


_SHOWN, _DIGITS = 100, 8
_WHOLE = 256 * 2**20  # bytes of an array up to which all of it is read
_SPREAD = 4096  # rows of a larger one
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def described(value: object) -> str:
    """Returns a value as it is written, with a fingerprint of all its parts, the same in every process."""
    leaves, structure = jax.tree.flatten(value)
    if jax.tree_util.all_leaves([value]) and not isinstance(value, int | float | np.ndarray | jax.Array):
        return type(value).__name__
    seen = hashlib.sha256(_ADDRESS.sub("", str(structure)).encode())
    for leaf in leaves:
        _feed(seen, leaf)
    words = _ADDRESS.sub("", repr(value)) if sum(map(np.size, leaves)) <= _SHOWN else type(value).__name__
    words = words if len(words) <= _SHOWN else f"{words[: _SHOWN - 3]}..."
    return f"{words} #{seen.hexdigest()[:_DIGITS]}"


def rows_described(rows: object) -> str:
    """Returns how many rows there are, with a fingerprint of their values; batches that come as they come have none."""
    if not isinstance(rows, Arrays):
        return "batches"
    seen = hashlib.sha256()
    for field in fields(rows):
        part = getattr(rows, field.name)
        if isinstance(part, np.ndarray | jax.Array):
            seen.update(field.name.encode())
            _feed(seen, part)
    return f"{rows.count} rows #{seen.hexdigest()[:_DIGITS]}"


def _feed(seen: Any, leaf: Any) -> None:
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if not isinstance(leaf, int | float | bool | np.ndarray | np.generic | jax.Array):
        seen.update(_ADDRESS.sub("", repr(leaf)).encode())
        return
    array = np.asarray(leaf)
    # A number is the same number in an array, and in any width that holds it.
    seen.update(f"{array.shape}".encode())
    if array.nbytes > _WHOLE and array.ndim:
        array = array[np.linspace(0, len(array) - 1, min(len(array), _SPREAD)).astype(int)]
    if array.ndim == 0:
        seen.update(repr(array.item()).encode())
    else:
        seen.update(str(array.dtype).encode())
        seen.update(np.ascontiguousarray(array).tobytes())


_STEP = "step-"
_DRAFT = f".{_STEP}"  # as `lamu.store` begins the names of drafts


class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged, of something else, or that could not be written."""


class NotWritten(CheckpointError):
    """A checkpoint for which there was no room, no right to write, or no folder."""


class Unsaved(UserWarning):
    """A checkpoint that could not be written, in a run that goes on without it: why, and what is lost by it."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run, in one folder.

    Attributes:
        folder: where they are; made with the first one.
        last: how many of the newest are kept.
        best: how many of the lowest scores are kept beside them.
        every: the seconds between two of them, where a run decides when to write; zero for after every block of steps.

    Raises:
        ValueError: unless at least one of the newest is kept.

    Examples:
        >>> import jax.numpy as jnp, tempfile
        >>> from lamu.running.checkpoints import Checkpoints
        >>> keeper = Checkpoints(tempfile.mkdtemp())
        >>> for step, score in ((10, 0.5), (20, 0.25), (30, 0.75)):
        ...     keeper.save(step, {"weights": jnp.full(2, score)}, score, facts={"seed": 0})
        >>> keeper.steps(), keeper.latest(), keeper.lowest()
        ([20, 30], 30, 20)
        >>> content, facts, _ = keeper.restore(20, like={"weights": jnp.zeros(2)})
        >>> content["weights"].tolist(), facts
        ([0.25, 0.25], {'seed': 0})
    """

    folder: str | os.PathLike[str]
    last: int = 1
    best: int = 1
    every: float = 30.0

    def __post_init__(self) -> None:
        if self.last < 1 or self.best < 0:
            raise ValueError(
                f"last={self.last!r} and best={self.best!r}: keep at least one of the newest, and zero or more"
            )

    def save(
        self,
        step: int,
        content: object,
        score: float | None = None,
        facts: Mapping[str, object] | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """Writes a checkpoint, then removes those that are no longer kept; when it returns, all is on disk.

        Args:
            step: the number of steps done, larger than that of every checkpoint there is.
            content: a pytree of arrays, random keys and numbers.
            score: what "best" is by, lower is better; None or NaN where there is none.
            facts: data for `json.dumps`, for instance what identifies the run.
            extra: arrays by name whose shapes may differ from checkpoint to checkpoint (a history).

        Raises:
            CheckpointError: if it cannot be written, or the step is not a new one. What was there before stays.
            TypeError: for a leaf that is no number.
        """
        try:
            newest = self.latest()
        except OSError as error:
            raise self._not_written(step, error) from error
        if newest is not None and step <= newest:
            raise CheckpointError(
                f"step {step} is not beyond {newest}, the last checkpoint in {str(self.folder)!r}; resume from that "
                "one, or choose another folder"
            )
        snapshot = Snapshot.of(step, content, score, facts, extra)
        try:
            Path(self.folder).mkdir(parents=True, exist_ok=True)
            self._clear_drafts()
            store.write(self._place(step), snapshot.about, snapshot.arrays)
            _sync(Path(self.folder))
        except (OSError, ValueError) as error:
            raise self._not_written(step, error) from error
        with suppress(OSError):  # what cannot be removed stays
            self._forget()

    def try_to_save(self, step: int, *arguments: Any, quietly: bool = False, **options: Any) -> bool:
        """Writes a checkpoint as `save` does; one that cannot be written is a warning, since it costs a run nothing.

        Args:
            step: the number of steps done.
            *arguments: as for `save`.
            quietly: without the warning, where the one before could not be written either.
            **options: as for `save`.

        Returns:
            Whether it was written. Where not, those before it stay.

        Raises:
            CheckpointError: if the step is not a new one.
            TypeError: for a leaf that is no number.
        """
        try:
            self.save(step, *arguments, **options)
        except NotWritten as error:
            self._say_unsaved(error, quietly)
            return False
        return True

    def _say_unsaved(self, error: NotWritten, quietly: bool) -> None:
        if not quietly:
            kept = self._newest()
            before = "none is there" if kept is None else f"that of step {kept} stays"
            warnings.warn(f"{error}; the run goes on without it, and {before}", Unsaved, stacklevel=6)

    def _newest(self) -> int | None:
        with suppress(OSError):
            return self.latest()
        return None

    def _not_written(self, step: int, error: BaseException) -> NotWritten:
        return NotWritten(
            f"the checkpoint of step {step} could not be written to {str(self.folder)!r} ({_first_line(error)}); "
            "make room or choose another folder"
        )

    def steps(self) -> list[int]:
        """Returns the steps of which there is a checkpoint, ascending."""
        folder = Path(self.folder)
        if not folder.is_dir():
            return []
        names = [place.name.removeprefix(_STEP) for place in folder.iterdir() if place.name.startswith(_STEP)]
        return sorted(int(name) for name in names if name.isdecimal())

    def latest(self) -> int | None:
        """Returns the last step of which there is a checkpoint, or None."""
        return max(self.steps(), default=None)

    def lowest(self) -> int | None:
        """Returns the step with the lowest score, or None where no checkpoint has a score."""
        return next(iter(self._ranked()), None)

    def restore(self, step: int, like: object) -> tuple[State, Document, dict[str, np.ndarray]]:
        """Reads a checkpoint back, bit for bit.

        Args:
            step: one of `steps()`.
            like: a pytree of the structure, shapes and dtypes that were saved (arrays or `jax.ShapeDtypeStruct`). Its
                kinds of leaves come back: JAX arrays, NumPy arrays, Python numbers, random keys.

        Returns:
            The content, the facts, and the extra arrays.

        Raises:
            CheckpointError: if there is none of this step, it is damaged, or it is of something else than `like`.
        """
        about, arrays = self._read(step, store.read)
        saved = {name: leaf for name, leaf in arrays.items() if not name.startswith("extra ")}
        wanted, structure = jax.tree_util.tree_flatten_with_path(like)
        names = [jax.tree_util.keystr(path) for path, _ in wanted]
        if names != list(saved):
            odd = next((name for name in [*names, *saved] if (name in saved) != (name in names)), names[0])
            where = "is missing in it" if odd in names else "is in it alone"
            raise self._foreign(step, f"leaf {odd} {where}")
        leaves = []
        # Those of extra come last.
        for name, (dtype, shape, implementation, *place), (_, leaf) in zip(
            names, about["leaves"], wanted, strict=False
        ):
            own_dtype, own_shape = _kind(leaf)
            if tuple(shape) != own_shape:
                raise self._foreign(step, f"leaf {name} has shape {tuple(shape)} and not {own_shape}")
            if dtype != own_dtype:
                raise self._foreign(step, f"leaf {name} has dtype {dtype} and not {own_dtype}")
            if place:
                leaves.append(self._read(step, partial(shards.read, place[0], leaf, implementation)))
            else:
                leaves.append(_as(leaf, saved[name], implementation))
        extra = {name.removeprefix("extra "): leaf for name, leaf in arrays.items() if name.startswith("extra ")}
        return jax.tree.unflatten(structure, leaves), about["facts"], extra

    def _place(self, step: int) -> Path:
        return Path(self.folder) / f"{_STEP}{step:012d}"

    def _read(self, step: int, read: Callable[[Path], object]) -> Any:
        """Returns what a function of `lamu.store` reads of a checkpoint."""
        place = self._place(step)
        if not place.is_dir():
            found = self.steps()
            hint = f"there are {found}" if found else "there is none"
            raise CheckpointError(f"{str(self.folder)!r} has no checkpoint of step {step}; {hint}")
        try:
            return read(place)
        except (OSError, store.StoreError) as error:
            raise CheckpointError(f"{_first_line(error)}; remove {str(place)!r} to use another checkpoint") from error

    def _ranked(self) -> list[int]:
        """The steps that have a score, best first; what cannot be read has none."""
        scores = {}
        for step in self.steps():
            with suppress(CheckpointError):
                scores[step] = self._read(step, store.read_content)["score"]
        return sorted((step for step in scores if scores[step] is not None), key=lambda step: (scores[step], step))

    def _forget(self) -> None:
        kept = {*self.steps()[-self.last :], *self._ranked()[: self.best]}
        for step in set(self.steps()) - kept:
            # Renamed first: what is half removed must not look whole.
            gone = Path(self.folder) / f"{_DRAFT}{step}"
            os.rename(self._place(step), gone)
            shutil.rmtree(gone, ignore_errors=True)

    def new_draft(self, step: int) -> Path:
        """Makes the hidden folder in which several processes write a checkpoint; what killed runs left goes."""
        self._clear_drafts()
        self.draft(step).mkdir(parents=True)
        return self.draft(step)

    def draft(self, step: int) -> Path:
        """Returns the place of that folder."""
        return Path(self.folder) / f"{_DRAFT}{step:012d}"

    def publish(self, step: int, failure: BaseException | None, quietly: bool = False) -> bool:
        """Makes a checkpoint of that folder, as `try_to_save` does; `failure` is why it is not whole."""
        try:
            if failure is None:
                os.rename(self.draft(step), self._place(step))
                _sync(Path(self.folder))
        except OSError as error:
            failure = error
        if failure is not None:
            self._say_unsaved(self._not_written(step, failure), quietly)
            self._clear_drafts()
            return False
        with suppress(OSError):
            self._forget()
        return True

    def _clear_drafts(self) -> None:
        for place in Path(self.folder).glob(f"{_DRAFT}*"):
            shutil.rmtree(place, ignore_errors=True)

    def _foreign(self, step: int, what: str) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint of step {step} in {str(self.folder)!r} is of another model or algorithm: {what}; resume "
            "with what it was made with, or choose another folder"
        )


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint consists of: its JSON data, arrays that are whole, and this process's shards of the others."""

    about: Document
    arrays: dict[str, np.ndarray]  # empty where a shard stands for it
    shards: dict[str, Shards]  # by the name of their folder

    @classmethod
    def of(
        cls,
        step: int,
        content: object,
        score: float | None = None,
        facts: Mapping[str, object] | None = None,
        extra: Mapping[str, object] | None = None,
        copy: bool = False,
    ) -> Snapshot:
        """Returns the snapshot of some content; `copy` where steps go on before it is written."""
        leaves = {**_named(content), **{f"extra {name}": value for name, value in (extra or {}).items()}}
        arrays, described, parts, places = {}, [], {}, {}
        for index, (name, leaf) in enumerate(leaves.items()):
            about: list[Any] = [*_kind(leaf), _implementation(leaf)]
            if is_sharded(leaf):
                place = places.setdefault(id(leaf), f"shards/a{index}")  # the best state may be the last one
                about.append(place)
                parts[place] = parts.get(place) or Shards.of(leaf)
                arrays[name] = np.empty(0)
            else:
                arrays[name] = _data(name, leaf)
                arrays[name] = arrays[name].copy() if copy else arrays[name]
            described.append(about)
        score = None if score is None or math.isnan(score) else float(score)
        return cls({"step": step, "score": score, "facts": dict(facts or {}), "leaves": described}, arrays, parts)

    def write(self, folder: Path, whole: bool) -> None:
        """Writes this process's part into a folder; `whole` in the one process that writes all that is no shard."""
        Shards.write({folder / place: part for place, part in self.shards.items()})
        if whole:
            store.write_into(folder, self.about, self.arrays)


def of_part(checkpoint: Any, part: str) -> Any:
    """Returns where one of several runs of a whole keeps its checkpoints: a folder in the folder of the whole.

    Args:
        checkpoint: what the whole was given: a folder, `Checkpoints`, or None.
        part: a name for the run, the same at every start.

    Returns:
        A folder, `Checkpoints`, or None where the whole keeps nothing.

    Examples:
        >>> from lamu.running.checkpoints import Checkpoints, of_part
        >>> of_part(Checkpoints("run", last=2), "fold-0").last, of_part(None, "fold-0") is None
        (2, True)
    """
    if checkpoint is None:
        return None
    if isinstance(checkpoint, Checkpoints):
        return replace(checkpoint, folder=Path(checkpoint.folder) / part)
    return Path(checkpoint) / part


def _named(content: object) -> Document:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(content)[0]}


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _kind(leaf: Any) -> tuple[str, tuple[int, ...]]:
    """Returns the name of a leaf's dtype, and its shape."""
    leaf = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
    return (str(leaf.dtype) if _is_key(leaf) else leaf.dtype.name), tuple(leaf.shape)


def _implementation(leaf: Any) -> str | None:
    return str(jax.random.key_impl(leaf)) if _is_key(leaf) else None


def _data(name: str, leaf: object) -> np.ndarray:
    """Returns a leaf as NumPy keeps it in a file, which knows no dtypes of other libraries: those as their bytes."""
    if isinstance(leaf, jax.Array) and not leaf.size and not _is_key(leaf):
        leaf = np.empty(leaf.shape, leaf.dtype)  # which may lie over processes
    data = np.asarray(jax.random.key_data(jax.random.clone(leaf)) if _is_key(leaf) else leaf)
    if not (jnp.issubdtype(data.dtype, np.number) or data.dtype == bool):
        raise TypeError(f"leaf {name} is a {type(leaf).__name__}, which is no number; keep it out of a checkpoint")
    return data if data.dtype.isbuiltin == 1 else data.view(f"V{data.dtype.itemsize}")


def _as(like: Any, data: np.ndarray, implementation: str | None) -> Any:
    """Returns the data as the kind of leaf that `like` is; JAX gets a copy, which it may give away."""
    if _is_key(like):
        return jax.random.wrap_key_data(jnp.array(data), impl=implementation)
    if data.dtype.kind == "V":
        data = data.view(like.dtype)
    if isinstance(like, jax.Array | jax.ShapeDtypeStruct):
        return jnp.array(data)
    if isinstance(like, np.ndarray):
        return data.copy()
    return data[()] if isinstance(like, np.generic) else data.item()


def _sync(folder: Path) -> None:
    """Makes a rename last through a loss of power, where the system lets a folder be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
