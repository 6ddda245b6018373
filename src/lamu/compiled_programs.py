"""Compiled programs, kept on disk: a later process does not compile again what has the same shapes."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["CACHE", "ProgramFolder", "compiled_folder", "keep_compiled", "programs_folder"]

CACHE = "LAMU_CACHE"  # the environment variable: another folder, or "off"
_MOST = 1 << 30  # bytes; beyond it the half that was used last stays
_FEW = 1 << 26  # bytes that a process writes before it counts the folder again
_STALE = 3600  # seconds after which a draft is one that a killed process left
_DRAFT, _PROGRAM = ".draft-", "-cache"

# Most programs of a fit compile in a tenth of a second: JAX's own threshold, a second, would keep none of them.
_SETTINGS = {"jax_persistent_cache_min_compile_time_secs": 0.0, "jax_persistent_cache_min_entry_size_bytes": -1}
_DIRECTORY, _ENABLED = "jax_compilation_cache_dir", "jax_enable_compilation_cache"


class ProgramFolder:
    """A folder of compiled programs for JAX: written atomically, bounded in size, the least recently used go first."""

    # JAX's own (`jax._src.lru_cache`) writes in place: a process that reads meanwhile warns and compiles, and what a
    # killed one left is never mended. Its bound needs another package, and fails for good after an interrupted write.
    # Errors of the disk, a full one for instance, end in a program that is not kept.

    def __init__(self, folder: Path, most: int = _MOST) -> None:
        self._path, self._most = folder, most  # JAX's log reads `_path`
        self._unchecked = most  # bytes written since the folder was counted: the first write counts

    def get(self, key: str) -> bytes | None:
        """Returns the program of a key, if there is one."""
        path = self._path / f"{key}{_PROGRAM}"
        try:
            value = path.read_bytes()
        except OSError:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the time of the last use decides what goes
        return value

    def put(self, key: str, value: bytes) -> None:
        """Keeps a program; one that JAX asked for and could not read is replaced."""
        try:
            if self._unchecked + len(value) > min(_FEW, self._most // 16):
                forget_oldest(self._path, self._most - len(value))
                self._unchecked = 0
            number, draft = tempfile.mkstemp(prefix=_DRAFT, dir=self._path)
            try:
                with os.fdopen(number, "wb") as file:
                    file.write(value)
                os.replace(draft, self._path / f"{key}{_PROGRAM}")
            except OSError:
                os.unlink(draft)
                raise
        except OSError:
            return
        self._unchecked += len(value)


def forget_oldest(folder: Path, most: int) -> None:
    """Removes abandoned drafts, and from more than `most` bytes the programs used longest ago, down to half."""
    files = []
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):  # another process removed it
            if entry.is_file():
                files.append((entry.stat(), entry.path, entry.name))
    for stat, path, name in files:
        if name.startswith(_DRAFT) and stat.st_mtime < time.time() - _STALE:
            Path(path).unlink(missing_ok=True)
    total = sum(stat.st_size for stat, _, _ in files)
    if total <= most:
        return
    for stat, path, _ in sorted(files, key=lambda file: file[0].st_mtime):
        if total <= most // 2:
            return
        Path(path).unlink(missing_ok=True)
        total -= stat.st_size


def programs_folder(settings: Mapping[str, str]) -> Path | None:
    """Returns the folder that an environment asks for, made if need be; None if `off`, or if it cannot be written."""
    asked = settings.get(CACHE, "")
    if asked == "off":
        return None
    try:
        folder = (Path(asked) if asked else _user_cache(settings) / "lamu") / _machine()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # JAX runs what lies in it
    except (OSError, RuntimeError):  # `RuntimeError`: there is no home folder
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def keep_compiled() -> Path | None:
    """Lets JAX keep what this process compiles in a folder of the user's; returns it, or None where it keeps none."""
    # Whoever has set a folder for JAX, or has switched its cache off, has decided already.
    import jax

    chosen = getattr(jax.config, _DIRECTORY, None) is not None or _DIRECTORY.upper() in os.environ
    if chosen or not getattr(jax.config, _ENABLED, True):
        return compiled_folder()
    folder = programs_folder(os.environ)
    if folder is None:
        return None
    for name, value in _SETTINGS.items():
        if name.upper() not in os.environ:
            jax.config.update(name, value)
    jax.config.update(_DIRECTORY, str(folder))
    _write_atomically(folder)
    return folder


def compiled_folder() -> Path | None:
    """Returns the folder in which `keep_compiled` keeps programs, for messages; None where it keeps none."""
    import jax

    folder = getattr(jax.config, _DIRECTORY, None)
    return Path(folder) if folder and Path(folder).name == _machine() else None


def _write_atomically(folder: Path) -> None:
    """Puts `ProgramFolder` in the place of JAX's for this folder; a JAX that cannot be told keeps its own."""
    try:
        cache = importlib.import_module("jax._src.compilation_cache")
        theirs = cache.get_file_cache
    except (ImportError, AttributeError):
        return
    ours = lambda path: (ProgramFolder(folder), path) if path == str(folder) else theirs(path)
    vars(cache)["get_file_cache"] = ours


def _user_cache(settings: Mapping[str, str]) -> Path:
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
