"""Checkpoints of a run: the complete state after some step, written atomically.

Each step has one folder, written by `lamu.store`: JSON, arrays and their checksums, written under a temporary name and
renamed when complete. Before removal a folder is renamed. A killed process leaves at most a temporary folder, which the
next save removes. The structure is not saved: it is taken from `like`, a state of the same kind, so that named tuples
of other libraries need no registration here.

Arrays that are spread over several processes are in the same folder, written by each of them (`lamu.running.sharding`).

Orbax's manager was tried instead: it saved a hundred small arrays in 160 ms where this takes 10, refuses arrays without
elements, and did not detect a flipped bit.
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
from lamu.running import sharding
from lamu.running.sharding import Shards, is_sharded
from lamu.typing import Document, State

__all__ = ["CheckpointError", "Checkpoints", "NotWritten", "Unsaved", "described", "of_part", "rows_described"]


_SHOWN, _DIGITS = 100, 8
_WHOLE = 256 * 2**20  # bytes of an array up to which all of it enters a fingerprint
_SPREAD = 4096  # number of rows of a larger one
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def described(value: object) -> str:
    """Returns the `repr` of a value with a fingerprint of all its parts, the same in every process."""
    leaves, structure = jax.tree.flatten(value)
    if jax.tree_util.all_leaves([value]) and not isinstance(value, int | float | np.ndarray | jax.Array):
        return type(value).__name__
    digest = hashlib.sha256(_ADDRESS.sub("", str(structure)).encode())
    for leaf in leaves:
        _feed(digest, leaf)
    words = _ADDRESS.sub("", repr(value)) if sum(map(np.size, leaves)) <= _SHOWN else type(value).__name__
    words = words if len(words) <= _SHOWN else f"{words[: _SHOWN - 3]}..."
    return f"{words} #{digest.hexdigest()[:_DIGITS]}"


def rows_described(rows: object) -> str:
    """Returns the number of rows with a fingerprint of their values; streams of batches have none."""
    if not isinstance(rows, Arrays):
        return "batches"
    digest = hashlib.sha256()
    for field in fields(rows):
        for part in jax.tree.leaves(getattr(rows, field.name)):
            digest.update(field.name.encode())
            _feed(digest, part)
    return f"{rows.count} rows #{digest.hexdigest()[:_DIGITS]}"


def _feed(digest: Any, leaf: Any) -> None:
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if not isinstance(leaf, int | float | bool | np.ndarray | np.generic | jax.Array):
        digest.update(_ADDRESS.sub("", repr(leaf)).encode())
        return
    array = np.asarray(leaf)
    # A number has one fingerprint, also in an array and in any width.
    digest.update(f"{array.shape}".encode())
    if array.nbytes > _WHOLE and array.ndim:
        array = array[np.linspace(0, len(array) - 1, min(len(array), _SPREAD)).astype(int)]
    if array.ndim == 0:
        digest.update(repr(array.item()).encode())
    else:
        digest.update(str(array.dtype).encode())
        digest.update(np.ascontiguousarray(array).tobytes())


_STEP = "step-"
_DRAFT = f".{_STEP}"  # as `lamu.store` begins the names of drafts


class CheckpointError(ValueError):
    """Raised for a checkpoint that is missing, damaged, of another run, or that could not be written."""


class NotWritten(CheckpointError):
    """Raised for a checkpoint without disk space, permission to write, or a folder."""


class Unsaved(UserWarning):
    """Warns of a checkpoint that could not be written, in a run that continues, with the reason and the loss."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run, in one folder.

    Attributes:
        folder: the folder, which is created with the first checkpoint.
        last: the number of newest checkpoints to keep.
        best: the number of further checkpoints to keep, those with the lowest scores.
        every: the seconds between checkpoints of a run; zero for one after every block of steps.

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
        """Writes a checkpoint and syncs it to disk, then removes those that are no longer kept.

        Args:
            step: the number of steps done, larger than that of every existing checkpoint.
            content: a pytree of arrays, random keys and numbers.
            score: the score for `best`, lower is better; None or NaN where there is none.
            facts: data for `json.dumps`, for instance the identity of the run.
            extra: arrays by name whose shapes may differ between checkpoints (a history).

        Raises:
            CheckpointError: if it cannot be written, or the step is not a new one. Existing checkpoints stay.
            TypeError: for a leaf that is not a number.
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
        with suppress(OSError):  # folders that cannot be removed stay
            self._remove_old()

    def try_to_save(self, step: int, *arguments: Any, quietly: bool = False, **options: Any) -> bool:
        """Writes a checkpoint as `save` does, but only warns where it cannot be written, so that a run continues.

        Args:
            step: the number of steps done.
            *arguments: as for `save`.
            quietly: without the warning, where the previous one could not be written either.
            **options: as for `save`.

        Returns:
            Whether it was written. If not, the previous ones stay.

        Raises:
            CheckpointError: if the step is not a new one.
            TypeError: for a leaf that is not a number.
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
        """Returns the steps with a checkpoint, ascending."""
        folder = Path(self.folder)
        if not folder.is_dir():
            return []
        names = [place.name.removeprefix(_STEP) for place in folder.iterdir() if place.name.startswith(_STEP)]
        return sorted(int(name) for name in names if name.isdecimal())

    def latest(self) -> int | None:
        """Returns the last step with a checkpoint, or None."""
        return max(self.steps(), default=None)

    def lowest(self) -> int | None:
        """Returns the step with the lowest score, or None where no checkpoint has a score."""
        return next(iter(self._ranked()), None)

    def restore(self, step: int, like: object) -> tuple[State, Document, dict[str, np.ndarray]]:
        """Reads a checkpoint back, bit for bit.

        Args:
            step: one of `steps()`.
            like: a pytree of the structure, shapes and dtypes that were saved (arrays or `jax.ShapeDtypeStruct`). The
                leaves are returned in its types: JAX arrays, NumPy arrays, Python numbers, random keys.

        Returns:
            The content, the facts, and the extra arrays.

        Raises:
            CheckpointError: if there is none of this step, it is damaged, or it does not match `like`.
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
                kinds = {kind.removesuffix("32").removesuffix("64") for kind in (dtype, own_dtype)}
                raise self._foreign(step, f"leaf {name} has dtype {dtype} and not {own_dtype}", len(kinds) == 1)
            if place:
                leaves.append(self._read(step, partial(sharding.read, place[0], leaf, implementation)))
            else:
                leaves.append(_as(leaf, saved[name], implementation))
        extra = {name.removeprefix("extra "): leaf for name, leaf in arrays.items() if name.startswith("extra ")}
        return jax.tree.unflatten(structure, leaves), about["facts"], extra

    def _place(self, step: int) -> Path:
        return Path(self.folder) / f"{_STEP}{step:012d}"

    def _read(self, step: int, read: Callable[[Path], object]) -> Any:
        """Reads a checkpoint by a function of `lamu.store`."""
        place = self._place(step)
        if not place.is_dir():
            steps = self.steps()
            hint = f"there are {steps}" if steps else "there is none"
            raise CheckpointError(f"{str(self.folder)!r} has no checkpoint of step {step}; {hint}")
        try:
            return read(place)
        except (OSError, store.StoreError) as error:
            raise CheckpointError(f"{_first_line(error)}; remove {str(place)!r} to use another checkpoint") from error

    def _ranked(self) -> list[int]:
        """Returns the steps with a score, best first; unreadable checkpoints have none."""
        scores = {}
        for step in self.steps():
            with suppress(CheckpointError):
                scores[step] = self._read(step, store.read_content)["score"]
        return sorted((step for step in scores if scores[step] is not None), key=lambda step: (scores[step], step))

    def _remove_old(self) -> None:
        kept = {*self.steps()[-self.last :], *self._ranked()[: self.best]}
        for step in set(self.steps()) - kept:
            # Renamed first, so that a partly removed folder does not look complete.
            gone = Path(self.folder) / f"{_DRAFT}{step}"
            os.rename(self._place(step), gone)
            shutil.rmtree(gone, ignore_errors=True)

    def new_draft(self, step: int) -> Path:
        """Creates the temporary folder for a checkpoint of several processes, and removes those of killed runs."""
        self._clear_drafts()
        self.draft(step).mkdir(parents=True)
        return self.draft(step)

    def draft(self, step: int) -> Path:
        """Returns the path of that folder."""
        return Path(self.folder) / f"{_DRAFT}{step:012d}"

    def publish(self, step: int, failure: BaseException | None, quietly: bool = False) -> bool:
        """Renames that folder to a checkpoint, as `try_to_save` does; `failure` is the reason if it is incomplete."""
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
            self._remove_old()
        return True

    def _clear_drafts(self) -> None:
        for place in Path(self.folder).glob(f"{_DRAFT}*"):
            shutil.rmtree(place, ignore_errors=True)

    def _foreign(self, step: int, what: str, only_digits: bool = False) -> CheckpointError:
        made_with = "what" if not only_digits else "the jax_enable_x64 and the precision of data that"
        return CheckpointError(
            f"the checkpoint of step {step} in {str(self.folder)!r} is of another "
            f"{'precision' if only_digits else 'model or algorithm'}: {what}; resume with {made_with} it was made "
            "with, or choose another folder"
        )


@dataclass(frozen=True)
class Snapshot:
    """The content of a checkpoint: JSON data, complete arrays, and this process's shards of sharded arrays."""

    about: Document
    arrays: dict[str, np.ndarray]  # empty arrays for sharded ones
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
        """Returns the snapshot of some content; `copy` where steps continue before it is written."""
        leaves = {**_named(content), **{f"extra {name}": value for name, value in (extra or {}).items()}}
        arrays, described, parts, places = {}, [], {}, {}
        for index, (name, leaf) in enumerate(leaves.items()):
            about: list[Any] = [*_kind(leaf), str(jax.random.key_impl(leaf)) if _is_key(leaf) else None]
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
        """Writes this process's part into a folder; `whole` in the one process that writes all unsharded data."""
        Shards.write({folder / place: part for place, part in self.shards.items()})
        if whole:
            store.write_into(folder, self.about, self.arrays)


def of_part(checkpoint: Any, part: str) -> Any:
    """Returns the checkpoints of one of several runs: a folder within the common folder.

    Args:
        checkpoint: the common argument: a folder, `Checkpoints`, or None.
        part: a name for the run, the same at every start.

    Returns:
        A folder, `Checkpoints`, or None where there are no checkpoints.

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


def _data(name: str, leaf: object) -> np.ndarray:
    """Returns a leaf as a NumPy array for a file; dtypes of other libraries as bytes."""
    if isinstance(leaf, jax.Array) and not leaf.size and not _is_key(leaf):
        leaf = np.empty(leaf.shape, leaf.dtype)  # it may be spread over processes
    data = np.asarray(jax.random.key_data(jax.random.clone(leaf)) if _is_key(leaf) else leaf)
    if not (jnp.issubdtype(data.dtype, np.number) or data.dtype == bool):
        raise TypeError(f"leaf {name} is a {type(leaf).__name__}, which is not a number; keep it out of a checkpoint")
    return data if data.dtype.isbuiltin == 1 else data.view(f"V{data.dtype.itemsize}")


def _as(like: Any, data: np.ndarray, implementation: str | None) -> Any:
    """Returns the data in the type of `like`; JAX gets a copy, which it may donate."""
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
    """Syncs a folder, so that a rename survives a power failure, where the system allows it."""
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
