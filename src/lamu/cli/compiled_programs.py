"""Compiled programs, kept between commands: a second command of the same shapes does not compile again."""

from __future__ import annotations

import gc
import hashlib
import os
import platform
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["CACHE", "collected_seldom", "compiled_folder", "keep_compiled"]


_OBJECTS = 300_000  # Python's own number is 700


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Lets Python collect garbage only after 300,000 new objects, inside a `with` block."""
    # Imports and traces make many objects and little garbage: collecting it took half a second of a command's start. A
    # command that runs long still has its garbage collected; 300,000 objects are some tens of megabytes.
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


# JAX reads these settings from the environment when it is first imported, which is after the words of a command were
# understood, and processes that a command starts inherit them.


CACHE = "LAMU_CACHE"  # the environment variable: another folder, or "off"
_SETTINGS = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
_FOLDER = "JAX_COMPILATION_CACHE_DIR"
_MOST = 1 << 30  # bytes; beyond it the older half goes


def keep_compiled(environment: MutableMapping[str, str] | None = None) -> Path | None:
    """Lets JAX keep what it compiles in a folder of the user's, and removes the oldest programs if they grew large."""
    # A folder that JAX was given itself stays (`JAX_COMPILATION_CACHE_DIR`), and so does `LAMU_CACHE=off`.
    settings = os.environ if environment is None else environment
    asked = settings.get(CACHE, "")
    if asked == "off" or _FOLDER in settings:
        return None
    folder = (Path(asked) if asked else _user_cache(settings) / "lamu") / _machine()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _forget_oldest(folder, _MOST)
    except OSError:
        return None
    if not os.access(folder, os.W_OK):
        return None
    settings[_FOLDER] = str(folder)
    for name, value in _SETTINGS.items():
        settings.setdefault(name, value)
    return folder


def compiled_folder() -> str | None:
    """Returns the folder in which `keep_compiled` keeps programs, for messages; None where it keeps none."""
    folder = os.environ.get(_FOLDER, "")
    return folder if Path(folder).name == _machine() else None


def _user_cache(settings: MutableMapping[str, str]) -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(settings.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(settings.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _machine() -> str:
    """Returns a name for processors that run the same programs: a home folder may be shared by several machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:12]}"


def _forget_oldest(folder: Path, most: int) -> None:
    """Removes the programs that were written first until half of what is allowed is left, where there is more."""
    files = [(entry.stat(), entry.path) for entry in os.scandir(folder) if entry.is_file()]
    total = sum(stat.st_size for stat, _ in files)
    if total <= most:
        return
    for stat, path in sorted(files, key=lambda each: each[0].st_mtime):
        if total <= most // 2:
            return
        Path(path).unlink(missing_ok=True)
        total -= stat.st_size
