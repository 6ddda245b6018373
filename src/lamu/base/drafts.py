"""Atomic writes: a file or folder is written in a hidden sibling folder and renamed when it is complete."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import socket
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["draft", "exchange", "hidden_beside", "is_alive", "reason"]


@contextmanager
def draft(path: Path, check: Callable[[], None] = lambda: None, other: str = "another") -> Iterator[Path]:
    """Yields a temporary path for a file or folder, which is renamed to `path` on success and removed otherwise."""
    # `check` is called before the renaming, and raises an error where an existing `path` must stay; `other` is the
    # remedy that an error names.
    hidden = hidden_beside(path, other)
    try:
        yield hidden / path.name
        check()
        if path.exists():
            exchange(hidden / path.name, path)
        else:
            os.rename(hidden / path.name, path)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def hidden_beside(path: Path, other: str = "another") -> Path:
    """Creates a hidden folder beside a path, and removes those left by killed processes of this machine."""
    # Its name contains the process and the machine, so that the temporary folder of a running process, or of another
    # machine on a shared disk, is not removed.
    ours = re.compile(rf"\.{re.escape(path.name)}\.{_machine()}-(\d+)\.\w+")
    try:
        names = os.listdir(path.parent)
    except OSError:  # a folder that may be written but not listed
        names = []
    for name in names:
        match = ours.fullmatch(name)
        if match is not None and not is_alive(int(match[1])):
            shutil.rmtree(path.parent / name, ignore_errors=True)
    try:
        return Path(tempfile.mkdtemp(prefix=f".{path.name}.{_machine()}-{os.getpid()}.", dir=path.parent))
    except OSError as error:
        raise PermissionError(
            f"the folder {str(path.parent)!r} cannot be written to ({reason(error)}); choose {other}"
        ) from error


def reason(error: OSError) -> str:
    """Returns the reason of a failed write, in words."""
    return (error.strerror or str(error)).lower()


def _machine() -> str:
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def is_alive(process: int) -> bool:
    """Whether this machine has a process of this number; True where that is not known."""
    if sys.platform == "win32":  # where the question would end it
        return True
    try:
        os.kill(process, 0)
    except OSError as error:
        return error.errno != errno.ESRCH  # a process of another user is alive, but may not be signalled
    except OverflowError:
        return False
    return True


_HERE, _SWAP = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
_UNKNOWN = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)  # of a kernel or a file system without the swap


def exchange(first: Path, other: Path) -> None:
    """Swaps two existing files or folders of one file system."""
    # In one step where the system can (Linux), so that both names exist at every moment. Elsewhere in three renames; if
    # one of them fails, those before it are undone.
    if _in_one_step(first, other):
        return
    aside = first.with_name(f"{first.name}.aside")
    os.rename(other, aside)
    try:
        os.rename(first, other)
    except OSError:
        os.rename(aside, other)
        raise
    os.rename(aside, first)


def _in_one_step(first: Path, other: Path) -> bool:
    swap = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if swap is None:
        return False
    if swap(_HERE, os.fsencode(first), _HERE, os.fsencode(other), _SWAP) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), str(other))
