"""A folder on disk that holds JSON and arrays: written whole or not at all, checked when read, never pickled.

The folder has three files: `content.json`, `arrays.npz`, and `checksums.json` with the SHA-256 of the other two. It is
made under a temporary name beside its place and renamed, so that an interrupted write leaves nothing behind that looks
whole.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lamu.drafts import hidden_beside

__all__ = ["StoreError", "read", "read_content", "write"]

FORMAT = "lamu-store-1"
_CONTENT, _ARRAYS, _SUMS = "content.json", "arrays.npz", "checksums.json"


class StoreError(ValueError):
    """A folder that is missing, incomplete, altered, or not ours."""


def write(path: str | os.PathLike[str], content: Any, arrays: Mapping[str, np.ndarray]) -> Path:
    """Writes JSON data and arrays as one folder, atomically.

    Args:
        path: the folder to make. Its parent must exist.
        content: data that `json.dumps` accepts.
        arrays: plain arrays by name (no objects).

    Returns:
        The path of the folder.

    Raises:
        FileExistsError: if there is something at `path`: nothing is overwritten.
        FileNotFoundError: if the parent folder does not exist.
        PermissionError: if nothing can be made there.
        TypeError: if `path` is no path.
        ValueError: for an array of Python objects, or a name that is too long.

    Examples:
        >>> import numpy as np, tempfile, pathlib
        >>> from lamu import store
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "run"
        >>> _ = store.write(folder, {"answer": 42}, {"x": np.arange(3)})
        >>> store.read(folder)[0]
        {'answer': 42}
    """
    path = _path(path)
    if path.exists():
        raise FileExistsError(
            f"{str(path)!r} exists already and is not overwritten; choose another folder or remove it"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(path.parent)!r} does not exist; make it first")
    for name, array in arrays.items():
        if array.dtype == object:
            raise ValueError(
                f"the array {name!r} holds Python objects, which are never written; make it numeric or text"
            )
    body = {"format": FORMAT, "arrays": list(arrays), "content": content}
    text = json.dumps(body, indent=1, allow_nan=True).encode()
    named: dict[str, Any] = {f"a{index}": array for index, array in enumerate(arrays.values())}
    try:
        draft = hidden_beside(path)
    except OSError as error:
        raise PermissionError(
            f"nothing can be made in the folder {str(path.parent)!r} ({str(error.strerror).lower()}); choose another"
        ) from error
    try:
        # To the file itself, array after array and piece after piece: arrays that lie on disk may exceed the memory.
        with _synced(draft / _ARRAYS) as file:
            np.savez(file, **named)
        with _synced(draft / _CONTENT) as file:
            file.write(text)
        sums = {name: _sum(draft / name) for name in (_CONTENT, _ARRAYS)}
        with _synced(draft / _SUMS) as file:
            file.write(json.dumps(sums, indent=1).encode())
        draft.chmod(0o755)
        os.rename(draft, path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return path


def read(path: str | os.PathLike[str]) -> tuple[Any, dict[str, np.ndarray]]:
    """Reads a folder that `write` made, after checking every byte.

    Args:
        path: the folder.

    Returns:
        The JSON data and the arrays by name.

    Raises:
        StoreError: if the folder is missing, incomplete, altered, or of another format; the message says which.

    Examples:
        >>> from lamu import store
        >>> store.read("no such folder")
        Traceback (most recent call last):
            ...
        lamu.store.StoreError: there is no folder 'no such folder'
    """
    body = _body(path)
    path = Path(path)
    if not _is_whole(path, _ARRAYS):
        raise _altered(path)
    with np.load(path / _ARRAYS, allow_pickle=False) as archive:
        if len(archive.files) != len(body["arrays"]):
            raise StoreError(
                f"{str(path)!r} was altered after it was saved: its index names {len(body['arrays'])} arrays and its "
                f"archive holds {len(archive.files)}"
            )
        arrays = {name: archive[f"a{index}"] for index, name in enumerate(body["arrays"])}
    return body["content"], arrays


def read_content(path: str | os.PathLike[str]) -> Any:
    """Reads the JSON data of a folder that `write` made, after checking it, and leaves the arrays alone.

    Args:
        path: the folder.

    Raises:
        StoreError: as `read` does.

    Examples:
        >>> import numpy as np, tempfile, pathlib
        >>> from lamu import store
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "run"
        >>> store.read_content(store.write(folder, {"answer": 42}, {"x": np.arange(3)}))
        {'answer': 42}
    """
    return _body(path)["content"]


def _path(path: Any) -> Path:
    """Returns a path, once it can be one."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"the path is {path!r}; give the name of a folder, for instance 'posterior'")
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            name = Path(path).name
            raise ValueError(
                f"{name[:20] + '…'!r} has {len(name)} characters, too many for a name; shorten it"
            ) from error
    return Path(path)


def _body(path: str | os.PathLike[str]) -> dict[str, Any]:
    path = _path(path)
    if not path.is_dir():
        raise StoreError(f"there is no folder {str(path)!r}")
    for name in (_SUMS, _CONTENT, _ARRAYS):
        if not (path / name).is_file():
            raise StoreError(f"{str(path)!r} is not a folder that Lamu saved: {name} is missing")
    if not _is_whole(path, _CONTENT):
        raise _altered(path)
    body = json.loads((path / _CONTENT).read_bytes())
    if body.get("format") != FORMAT:
        raise StoreError(f"{str(path)!r} has the format {body.get('format')!r}; this version reads {FORMAT!r}")
    return body


def _is_whole(path: Path, name: str) -> bool:
    """Whether a file has the checksum that was written beside it."""
    try:
        return _sum(path / name) == json.loads((path / _SUMS).read_bytes())[name]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{str(path / _SUMS)!r} cannot be read: the folder is truncated or altered") from error


def _altered(path: Path) -> StoreError:
    return StoreError(f"{str(path)!r} was truncated or altered after it was saved: a checksum does not match")


@contextmanager
def _synced(path: Path) -> Iterator[Any]:
    """Opens a new file for writing; at the end it is on the disk."""
    with open(path, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _sum(path: Path) -> str:
    """Returns the SHA-256 of a file, which is read piece by piece."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
