"""One process at a time writes a run: a lock that the system holds, and who holds it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from lamu.drafts import is_alive

__all__ = ["NAME", "RunLock", "holder_of"]

NAME = "lock.json"
_ATTEMPTS = 50


class RunLock:
    """A lock on a folder, which ends with the process that took it however that ends."""

    def __init__(self, folder: Path) -> None:
        self._file = open(folder / NAME, "a+", encoding="utf-8")  # noqa: SIM115 (it is held open)
        for attempt in range(_ATTEMPTS):  # who only looks holds it for a moment
            if _try_to_lock(self._file) is not False:
                break
            if attempt == _ATTEMPTS - 1:
                self._file.close()
                raise BlockingIOError(errno.EAGAIN, "another process has it")
            time.sleep(0.02)
        self._file.truncate(0)
        process = os.getpid()
        about = {"process": process, "host": socket.gethostname(), "since": time.time(), "born": _born(process)}
        self._file.write(json.dumps(about))
        self._file.flush()

    def release(self) -> None:
        """Gives the lock back; its file stays where it is, and holds nobody's name."""
        with contextlib.suppress(OSError):
            self._file.truncate(0)
        with contextlib.suppress(OSError):
            self._file.close()


def holder_of(folder: Path) -> str | None:
    """Returns which living process holds the lock on a folder, in words; None where none does."""
    # A process of this machine that has ended holds none, nor does another one that has its number since. Of another
    # machine's process nothing is known where the file system does not say; it counts as alive.
    try:
        text = (folder / NAME).read_text(encoding="utf-8")
    except OSError:
        return None
    about = _about(text)
    if about is None:
        return None if _is_free(folder) is not False else "another process"
    free = _is_free(folder)
    here = about["host"] == socket.gethostname()
    if free or (free is None and here and not _is_running(about["process"], about["born"])):
        return None
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(about["since"]))
    where = "" if here else f" on {about['host']!r}"
    return f"process {about['process']}{where} since {since}"


def _about(text: str) -> dict[str, Any] | None:
    try:
        about = json.loads(text)
    except ValueError:
        return None
    kinds = {"process": int, "host": str, "since": int | float}
    sound = isinstance(about, dict) and all(isinstance(about.get(name), kind) for name, kind in kinds.items())
    return {"born": None, **about} if sound else None


def _is_running(process: int, born: Any) -> bool:
    return is_alive(process) and (born is None or _born(process) in (None, born))


def _born(process: int) -> str | None:
    """Returns when a process of this machine began, since its last start, by which it differs from a later one."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _try_to_lock(file: Any) -> bool | None:
    """Takes the system's lock on a file; None where there are none."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def _is_free(folder: Path) -> bool | None:
    """Whether no process has the system's lock; None where that cannot be known."""
    try:
        with open(folder / NAME, "a+", encoding="utf-8") as file:
            return _try_to_lock(file)
    except OSError:
        return None
