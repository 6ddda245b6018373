"""Where a sampler's draws are kept as they come: in memory, or in memory-mapped files beside the checkpoints."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory, tree

__all__ = ["DrawsInMemory", "DrawsOnDisk"]


class DrawsInMemory:
    """Draws in the memory of the host."""

    def __init__(self, like: Any) -> None:
        self._structure = jax.tree.structure(like)
        self._parts: list[list[np.ndarray]] = []

    def add(self, draws: Any) -> None:
        """Adds draws, leaves `[n, ...]`."""
        self._parts.append([np.asarray(leaf) for leaf in jax.tree.leaves(draws)])

    @property
    def trace(self) -> Any:
        """All of them, leaves `[draws, ...]`; None where there is none."""
        if not self._parts:
            return None
        leaves = [jax.device_put(np.concatenate(parts)) for parts in zip(*self._parts, strict=True)]
        return jax.tree.unflatten(self._structure, leaves)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the draws as named arrays, for a checkpoint."""
        return {f"draw {i}": np.concatenate(parts) for i, parts in enumerate(zip(*self._parts, strict=True))}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Takes over what `arrays` returned."""
        draws = [np.asarray(arrays[f"draw {i}"]) for i in range(len(arrays)) if f"draw {i}" in arrays]
        self._parts = [draws] if draws else []


class DrawsOnDisk:
    """Draws in a folder, one `.npy` file a leaf, `[draws, ...]`, which NumPy maps into memory."""

    # The files have their whole length from the beginning, and the room for it on the disk; only those draws count that
    # a checkpoint knows of, and a resumed run writes the others again.

    def __init__(self, like: Any, total: int, folder: str | os.PathLike[str]) -> None:
        self._like, self._total, self._folder = like, total, Path(folder)
        self._files: list[np.memmap] = []
        self._count = 0

    def reserve(self) -> None:
        """Makes the files, so that a lack of room is known before the first step."""
        self._open()

    def add(self, draws: Any) -> None:
        """Writes draws, leaves `[n, ...]`, behind those that are there."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(draws)]
        self._open()
        end = self._count + len(leaves[0])
        for file, leaf in zip(self._files, leaves, strict=True):
            file[self._count : end] = leaf
        self._count = end

    @property
    def trace(self) -> Any:
        """All of them, leaves `[draws, ...]`: on the device where a chunk of memory holds them, else on disk still."""
        if not self._count:
            return None
        self._open()
        small = memory.bytes_of(self._like) * self._count <= memory.budget()
        leaves = [file[: self._count] for file in self._files]
        return jax.tree.unflatten(
            jax.tree.structure(self._like), [jnp.array(leaf) if small else leaf for leaf in leaves]
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns how many draws there are, when all of them are on disk."""
        for file in self._files:
            file.flush()
        return {"draws on disk": np.array([self._count])}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Takes over what `arrays` returned."""
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
                file = np.lib.format.open_memmap(place, mode="r+")
                if file.shape[1:] != shape[1:] or file.dtype != leaf.dtype or len(file) < self._count:
                    raise ValueError(
                        f"{str(place)!r} holds {file.dtype}{list(file.shape)} and not {leaf.dtype}{list(shape)}; it is "
                        "of another run: choose another folder"
                    )
                file = file if len(file) >= self._total else _longer(place, file, shape, self._count)
            else:
                file = _allocated(place, leaf.dtype, shape)
            self._files.append(file)


def _allocated(place: Path, dtype: Any, shape: tuple[int, ...]) -> np.memmap:
    """Returns a new file with all of its room: a page that the disk had none for would end the process later."""
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
    """Passes over what a file system does not offer."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise


def _longer(place: Path, file: np.memmap, shape: tuple[int, ...], count: int) -> np.memmap:
    """Returns a file of more draws in the place of a shorter one: the run was made longer."""
    draft = place.with_suffix(".draft")
    longer = _allocated(draft, file.dtype, shape)
    longer[:count] = file[:count]
    longer.flush()
    os.replace(draft, place)
    return longer
