"""Atomic writes: a file or folder is made in a hidden folder beside its place and renamed when it is whole."""

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
    """Gives a path to make a file or folder at, which becomes `path` if all goes well and vanishes otherwise."""
    # `check` is called before the renaming, and raises an error where what is at `path` by then must stay; `other` is
    # the remedy that an error names.
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
    """Makes a hidden folder beside a path, and removes those that killed processes of this machine left."""
    # Its name has the number of the process and of the machine, so that the draft of a process that still runs, or of
    # another machine on a shared disk, stays.
    ours = re.compile(rf"\.{re.escape(path.name)}\.{_machine()}-(\d+)\.\w+")
    try:
        names = os.listdir(path.parent)
    except OSError:  # a folder that may be written but not listed
        names = []
    for name in names:
        left = ours.fullmatch(name)
        if left is not None and not is_alive(int(left[1])):
            shutil.rmtree(path.parent / name, ignore_errors=True)
    try:
        return Path(tempfile.mkdtemp(prefix=f".{path.name}.{_machine()}-{os.getpid()}.", dir=path.parent))
    except OSError as error:
        raise PermissionError(
            f"the folder {str(path.parent)!r} cannot be written to ({reason(error)}); choose {other}"
        ) from error


def reason(error: OSError) -> str:
    """Returns why something could not be written, in words."""
    return (error.strerror or str(error)).lower()


def _machine() -> str:
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def is_alive(process: int) -> bool:
    """Returns whether this machine has a process of this number; where that cannot be asked, it has."""
    if sys.platform == "win32":  # where the question would end it
        return True
    try:
        os.kill(process, 0)
    except OSError as error:
        return error.errno != errno.ESRCH  # another user's process may not be asked, and is alive
    except OverflowError:
        return False
    return True


_HERE, _SWAP = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
_UNKNOWN = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)  # of a kernel or a file system that does not know the swap


def exchange(one: Path, other: Path) -> None:
    """Lets two existing files or folders of one file system change places."""
    # In one step where the system can (Linux): nobody ever sees either name without its content. Elsewhere in three
    # renames; if one of them fails those before it are taken back.
    if _in_one_step(one, other):
        return
    aside = one.with_name(f"{one.name}.aside")
    os.rename(other, aside)
    try:
        os.rename(one, other)
    except OSError:
        os.rename(aside, other)
        raise
    os.rename(aside, one)


def _in_one_step(one: Path, other: Path) -> bool:
    swap = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if swap is None:
        return False
    if swap(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _SWAP) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), str(other))
