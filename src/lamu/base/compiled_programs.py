"""Compiled programs cached on disk, so that a later process need not compile the same shapes again."""

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
_MOST = 1 << 30  # bytes; beyond it the most recently used half stays
_FEW = 1 << 26  # bytes that a process writes before it measures the folder again
_STALE = 3600  # seconds after which a temporary file counts as left by a killed process
_DRAFT, _PROGRAM = ".draft-", "-cache"

# Most programs of a fit compile in a tenth of a second: JAX's own threshold, one second, would keep none of them.
_SETTINGS = {"jax_persistent_cache_min_compile_time_secs": 0.0, "jax_persistent_cache_min_entry_size_bytes": -1}
_DIRECTORY, _ENABLED = "jax_compilation_cache_dir", "jax_enable_compilation_cache"


class ProgramFolder:
    """Least-recently-used cache folder of compiled programs for JAX, written atomically and bounded in size."""

    # JAX's own (`jax._src.lru_cache`) writes in place: a process that reads meanwhile warns and compiles, and a partial
    # file of a killed process is never replaced. Its bound needs another package, and fails for good after an
    # interrupted write. After an error of the disk, a full one for instance, the program is not kept.

    def __init__(self, folder: Path, most: int = _MOST) -> None:
        self._path, self._most = folder, most  # JAX's log reads `_path`
        self._unchecked = most  # bytes written since the folder was measured: the first write measures it

    def get(self, key: str) -> bytes | None:
        """Returns the program of a key, or None."""
        path = self._path / f"{key}{_PROGRAM}"
        try:
            value = path.read_bytes()
        except OSError:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the time of the last use decides which program is removed
        return value

    def put(self, key: str, value: bytes) -> None:
        """Stores a program, and replaces one that JAX could not read."""
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
    """Removes abandoned temporary files and, beyond `most` bytes, the least recently used programs, down to half."""
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
    """Returns the folder that the environment names, created if needed; None if `off`, or if it is not writable."""
    setting = settings.get(CACHE, "")
    if setting == "off":
        return None
    try:
        folder = (Path(setting) if setting else _user_cache(settings) / "lamu") / _machine()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # JAX executes its files
    except (OSError, RuntimeError):  # `RuntimeError`: there is no home folder
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def keep_compiled() -> Path | None:
    """Sets JAX's compilation cache to a folder of the user's; returns it, or None where there is none."""
    # A cache folder that the user has set for JAX, or a cache switched off, is left as it is.
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
    """Replaces JAX's cache of this folder by `ProgramFolder`; a JAX version without that hook keeps its own."""
    try:
        cache = importlib.import_module("jax._src.compilation_cache")
        default_cache = cache.get_file_cache
    except (ImportError, AttributeError):
        return
    ours = lambda path: (ProgramFolder(folder), path) if path == str(folder) else default_cache(path)
    vars(cache)["get_file_cache"] = ours


def _user_cache(settings: Mapping[str, str]) -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(settings.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(settings.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _machine() -> str:
    """Returns a name for the kind of processor, since machines of several kinds may share a home folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:12]}"
