"""Storage of JSON and arrays in a folder: written atomically, verified when read, never pickled."""

# Files are not trusted before they are verified: the archive contains its arrays uncompressed, so that none is larger
# than the file, and each must have the size in its own header and in the JSON data.
#
# The folder has three files: `content.json`, `arrays.npz`, and `checksums.json` with the SHA-256 of the other two. It
# is written under a temporary name and renamed, so that an interrupted write leaves no seemingly complete folder.

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lamu.base.drafts import draft
from lamu.record import UnknownTypeError
from lamu.typing import Document

__all__ = ["StoreError", "altered", "fingerprint", "read", "read_content", "reading", "write", "write_into"]

FORMAT = "lamu-store-2"
_LARGEST_SUMS = 2**16  # bytes
_CONTENT, _ARRAYS, _SUMS = "content.json", "arrays.npz", "checksums.json"


class StoreError(ValueError):
    """Raised for a folder that is missing, incomplete, altered, or not written by Lamu."""


def write(path: str | os.PathLike[str], content: object, arrays: Mapping[str, np.ndarray]) -> Path:
    """Writes JSON data and arrays as one folder, atomically."""
    path = _path(path)
    if path.exists():
        raise FileExistsError(
            f"{str(path)!r} exists already and is not overwritten; choose another folder or remove it"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(path.parent)!r} does not exist; make it first")
    with draft(path) as folder:
        folder.mkdir(mode=0o755)
        write_into(folder, content, arrays)
    return path


def write_into(folder: Path, content: object, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes the files of such a folder into an existing one, which the caller renames afterwards."""
    for name, array in arrays.items():
        if array.dtype == object:
            raise ValueError(
                f"the array {name!r} holds Python objects, which are never written; make it numeric or text"
            )
    body = {"format": FORMAT, "arrays": list(arrays), "content": content}
    text = json.dumps(body, indent=1, allow_nan=True).encode()
    named: dict[str, Any] = {f"a{index}": array for index, array in enumerate(arrays.values())}
    # Arrays are written one after the other in pieces, since arrays on disk may exceed the memory.
    with _synced(folder / _ARRAYS) as file:
        np.savez(file, **named)
    with _synced(folder / _CONTENT) as file:
        file.write(text)
    sums = {name: _sum(folder / name) for name in (_CONTENT, _ARRAYS)}
    with _synced(folder / _SUMS) as file:
        file.write(json.dumps(sums, indent=1).encode())


def read(
    path: str | os.PathLike[str], declared: Callable[[Any], Mapping[str, tuple[str, tuple[int, ...]]]] | None = None
) -> tuple[Any, dict[str, np.ndarray]]:
    """Reads a folder written by `write`, after verifying every byte."""
    body = _body(path)
    path = Path(path)
    if not _is_whole(path, _ARRAYS):
        raise _altered_file(path)
    names = body["arrays"]
    try:
        wanted = None if declared is None else declared(body["content"])
        with open(path / _ARRAYS, "rb") as file, zipfile.ZipFile(file) as archive:
            members = _members(archive, len(names), file.seek(0, os.SEEK_END))
            if wanted is not None:
                _require_declared(archive, dict(zip(names, members, strict=True)), wanted)
            arrays = {name: _array(archive, member) for name, member in zip(names, members, strict=True)}
    except StoreError:
        raise
    except Exception as error:  # readers of archives and arrays raise various errors for malformed files
        raise altered(path, error) from error
    return body["content"], arrays


def altered(path: str | os.PathLike[str], error: BaseException) -> StoreError:
    """Returns the error for a folder with valid checksums and content not written by Lamu."""
    reason = " ".join(str(error).split()) or "it does not end"
    if not isinstance(error, ValueError):
        reason = f"{type(error).__name__}: {reason}"
    return StoreError(
        f"{str(path)!r} cannot be read, since it was altered after it was saved: {reason[:300]}; save it again"
    )


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Context manager for decoding read content, in which every error becomes a `StoreError`."""
    try:
        yield
    except (ModuleNotFoundError, StoreError):
        raise
    except UnknownTypeError as error:
        raise StoreError(f"{str(path)!r} cannot be read: {error}") from error
    except Exception as error:  # types raise various errors for values not written by Lamu
        raise altered(path, error) from error


def _members(archive: zipfile.ZipFile, count: int, size: int) -> list[zipfile.ZipInfo]:
    """Returns the members of an archive in the order of their names, after checking their sizes against the file."""
    members = {member.filename: member for member in archive.infolist()}
    wanted = [f"a{index}.npy" for index in range(count)]
    if len(archive.infolist()) != count or set(members) != set(wanted):
        raise ValueError(f"its index names {count} arrays and its archive holds {len(archive.infolist())}")
    if any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in members.values()):
        raise ValueError("its arrays are compressed, and Lamu writes them as they are")
    total = sum(member.file_size for member in members.values())
    if total > size:
        raise ValueError(f"its arrays take {total:,} bytes and its archive has {size:,}")
    return [members[name] for name in wanted]


def _require_declared(
    archive: zipfile.ZipFile,
    members: Mapping[str, zipfile.ZipInfo],
    wanted: Mapping[str, tuple[str, tuple[int, ...]]],
) -> None:
    """Raises a ValueError unless an archive contains exactly the declared arrays, by their headers."""
    for name in [*wanted, *members]:
        if name not in wanted or name not in members:
            raise ValueError(f"the array {name!r} is {'unused' if name in members else 'missing'}")
    for name, (dtype, shape) in wanted.items():
        with archive.open(members[name]) as file:
            found_shape, actual = _header(file)
        # NumPy reads dtypes of other libraries as bytes; the decoder restores them.
        if found_shape != shape or (actual.kind != "V" and str(actual) != dtype):
            raise ValueError(f"the array {name!r} is {actual}{list(found_shape)}, and {dtype}{list(shape)} was written")


def _header(file: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Returns the shape and the dtype in the header of an array's file."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"an array is of the version {version} of NumPy's format, which Lamu does not write")
    shape, _, dtype = _HEADERS[version](file)
    if dtype.hasobject or dtype.kind not in "biufcUSV" or dtype.names is not None:
        raise ValueError(f"an array is {dtype}, which Lamu does not write")
    return shape, dtype


_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Reads an array, but no more than the size of its member."""
    with archive.open(member) as file:
        shape, dtype = _header(file)
        remaining = member.file_size - file.tell()
    if math.prod(shape) * dtype.itemsize != remaining:
        raise ValueError(f"an array {dtype}{list(shape)} has {remaining:,} bytes in the archive")
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def fingerprint(path: str | os.PathLike[str]) -> str:
    """Returns the SHA-256 of a folder's list of checksums, which identifies its content."""
    return _sum(Path(path) / _SUMS)


def read_content(path: str | os.PathLike[str]) -> Any:
    """Reads and verifies the JSON data of a folder written by `write`, without the arrays."""
    return _body(path)["content"]


def _path(path: object) -> Path:
    """Returns a value as a path, or raises an error."""
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


def _body(path: str | os.PathLike[str]) -> Document:
    path = _path(path)
    if not path.is_dir():
        raise StoreError(f"there is no folder {str(path)!r}")
    for name in (_SUMS, _CONTENT, _ARRAYS):
        if not (path / name).is_file() or (path / name).is_symlink():
            reason = "is a link" if (path / name).is_symlink() else "is missing"
            raise StoreError(f"{str(path)!r} is not a folder that Lamu saved: {name} {reason}")
    if (size := (path / _SUMS).stat().st_size) > _LARGEST_SUMS:
        raise altered(path, ValueError(f"{_SUMS} has {size:,} bytes"))
    if not _is_whole(path, _CONTENT):
        raise _altered_file(path)
    try:
        body = json.loads((path / _CONTENT).read_bytes(), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise altered(path, error if isinstance(error, ValueError) else ValueError("it is nested too deep")) from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        version = body.get("format") if isinstance(body, dict) else None
        raise StoreError(f"{str(path)!r} has the format {version!r}; this version reads {FORMAT!r}: save it again")
    names = body.get("arrays")
    if "content" not in body or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise altered(path, ValueError("its index of arrays is missing"))
    if len(set(names)) < len(names):
        raise altered(path, ValueError("its index names an array twice"))
    return body


def _without_repeats(pairs: list[tuple[str, object]]) -> Document:
    """Returns a JSON object; refuses repeated names, of which Python would silently keep the last."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("it has one name twice")
    return entries


def _is_whole(path: Path, name: str) -> bool:
    """Whether a file has its recorded checksum."""
    try:
        return _sum(path / name) == json.loads((path / _SUMS).read_bytes())[name]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{str(path / _SUMS)!r} cannot be read: the folder is truncated or altered") from error


def _altered_file(path: Path) -> StoreError:
    return StoreError(f"{str(path)!r} was truncated or altered after it was saved: a checksum does not match")


@contextmanager
def _synced(path: Path) -> Iterator[Any]:
    """Opens a new file for writing, and syncs it to disk at the end."""
    with open(path, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _sum(path: Path) -> str:
    """Returns the SHA-256 of a file, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
