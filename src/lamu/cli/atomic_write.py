"""Two paths change places."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

__all__ = ["exchange"]

_HERE, _SWAP = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
# What a kernel or a file system answers that does not know the swap.
_UNKNOWN = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def exchange(one: Path, other: Path) -> None:
    """Lets two existing files or folders of one file system change places."""
    # In one step where the system can (Linux): nobody ever sees either name without its content. Elsewhere in three
    # renames; if one of them fails those before it are taken back.
    if not _in_one_step(one, other):
        _in_three(one, other)


def _in_one_step(one: Path, other: Path) -> bool:
    if sys.platform != "linux":
        return False
    swap = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if swap is None:
        return False
    if swap(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _SWAP) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), str(other))


def _in_three(one: Path, other: Path) -> None:
    aside = one.with_name(f"{one.name}.aside")
    os.rename(other, aside)
    try:
        os.rename(one, other)
    except OSError:
        os.rename(aside, other)
        raise
    os.rename(aside, one)
