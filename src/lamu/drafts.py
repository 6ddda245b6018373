"""Hidden folders in which something is written before it is renamed to its place, and what killed runs left of them."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import sys
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["hidden_beside", "is_alive"]


def hidden_beside(path: Path) -> Path:
    """Makes a hidden folder beside a path, and removes those that killed processes of this machine left."""
    # Its name has the number of the process and of the machine, so that the draft of a process that still runs, or of
    # another machine on a shared disk, stays.
    _remove_abandoned(path)
    return Path(tempfile.mkdtemp(prefix=f".{path.name}.{_machine()}-{os.getpid()}.", dir=path.parent))


def _remove_abandoned(path: Path) -> None:
    ours = re.compile(rf"\.{re.escape(path.name)}\.{_machine()}-(\d+)\.\w+")
    for name in _names(path.parent):
        draft = ours.fullmatch(name)
        if draft is not None and not is_alive(int(draft[1])):
            shutil.rmtree(path.parent / name, ignore_errors=True)


def _names(folder: Path) -> Iterable[str]:
    try:
        return os.listdir(folder)
    except OSError:  # a folder that may be written but not listed
        return ()


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
