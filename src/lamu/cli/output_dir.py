"""Output folders: written atomically, locked during a run, and never over foreign content."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from lamu.base import drafts
from lamu.base.drafts import is_alive, reason

if TYPE_CHECKING:
    from lamu.posterior import Posterior

__all__ = [
    "CONTENT",
    "FORMAT",
    "NAME",
    "Document",
    "Interrupted",
    "RunLock",
    "altered",
    "draft",
    "keep_posterior",
    "learned",
    "load_posterior",
    "lock_holder",
    "read_config",
    "refuse_existing",
    "refuse_unwritable",
    "unfinished",
]


Document: TypeAlias = dict[str, Any]  # a JSON object
NAME = "lock.json"
_ATTEMPTS = 50


class RunLock:
    """A lock on a folder, which ends with the process that took it, in whatever way the process ends."""

    def __init__(self, folder: Path) -> None:
        self._file = open(folder / NAME, "a+", encoding="utf-8")  # noqa: SIM115 (it is held open)
        for attempt in range(_ATTEMPTS):  # a process that only checks holds it for a moment
            if _try_to_lock(self._file) is not False:
                break
            if attempt == _ATTEMPTS - 1:
                self._file.close()
                raise BlockingIOError(errno.EAGAIN, "another process has it")
            time.sleep(0.02)
        self._file.truncate(0)
        process = os.getpid()
        about = {"process": process, "host": socket.gethostname(), "since": time.time(), "born": _start_time(process)}
        self._file.write(json.dumps(about))
        self._file.flush()

    def release(self) -> None:
        """Releases the lock; its file remains, without a holder's name."""
        with contextlib.suppress(OSError):
            self._file.truncate(0)
        with contextlib.suppress(OSError):
            self._file.close()


def lock_holder(folder: Path) -> str | None:
    """Returns a description of the living process that holds the lock on a folder; None if there is none."""
    # A process of this machine that has ended holds none, nor does a later one with the same number. A process of
    # another machine cannot be checked unless the file system reports it; it counts as alive.
    try:
        text = (folder / NAME).read_text(encoding="utf-8")
    except OSError:
        return None
    about = _holder(text)
    if about is None:
        return None if _is_free(folder) is not False else "another process"
    free = _is_free(folder)
    is_local = about["host"] == socket.gethostname()
    if free or (free is None and is_local and not _is_running(about["process"], about["born"])):
        return None
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(about["since"]))
    where = "" if is_local else f" on {about['host']!r}"
    return f"process {about['process']}{where} since {since}"


def _holder(text: str) -> Document | None:
    try:
        about = json.loads(text)
    except ValueError:
        return None
    kinds = {"process": int, "host": str, "since": int | float}
    sound = isinstance(about, dict) and all(isinstance(about.get(name), kind) for name, kind in kinds.items())
    return {"born": None, **about} if sound else None


def _is_running(process: int, born: str | None) -> bool:
    return is_alive(process) and (born is None or _start_time(process) in (None, born))


def _start_time(process: int) -> str | None:
    """Returns when a process of this machine began, since the last boot, which distinguishes it from a later one."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _try_to_lock(file: IO[str]) -> bool | None:
    """Takes the system's lock on a file; None on systems without locks."""
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
    """Whether no process has the system's lock; None if unknown."""
    try:
        with open(folder / NAME, "a+", encoding="utf-8") as file:
            return _try_to_lock(file)
    except OSError:
        return None


FORMAT = 2  # the version of config.json
_ASKED = "asked.json"
_OTHER = "another --out"
_POSTERIOR = "posterior"
CONTENT = (
    "calibration.png",
    "config.json",
    "effects.csv",
    "metrics.json",
    "posterior",
    "predictions.csv",
    "report.html",
)
_OF_MODELS = ("images.png", "latents.csv", "latents.png")  # of models without a target


def read_config(run: Path) -> Document:
    """Returns the settings of a fit from its folder, with the checks that apply to every folder."""
    path = run / "config.json"
    if not run.is_dir():
        raise FileNotFoundError(f"there is no folder {str(run)!r}; give one that `lamu fit` made with --out")
    if not path.is_file():
        raise FileNotFoundError(f"{str(run)!r} is not a folder that `lamu fit` made: config.json is missing")
    try:
        config: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise altered(run) from error
    if not isinstance(config, dict) or "format" not in config:
        raise altered(run)
    if config["format"] != FORMAT:
        raise ValueError(
            f"{str(path)!r} has the format {config['format']!r} and this version reads {FORMAT}; fit again"
        )
    samples, rows = config.get("samples"), config.get("rows", {})
    counts = [rows.get(part, 1) for part in ("train", "test")] if isinstance(rows, dict) else [None]
    valid = all(type(count) is int and 0 < count < 2**31 for count in (samples, *counts))
    if not valid or not isinstance(config.get("posterior"), str):
        raise altered(run)
    return config


def altered(run: Path) -> ValueError:
    """Returns the error for a folder whose settings no fit can have written."""
    path = run / "config.json"
    return ValueError(f"{str(path)!r} cannot be read: it was altered after `lamu fit` wrote it; fit again")


def load_posterior(run: Path, config: Document, trust: Sequence[str], task: str | None = None) -> Posterior:
    """Returns the posterior of a folder, after a check that it is unchanged and, if a task is named, of that task."""
    from lamu import store
    from lamu.posterior import load

    if trust:
        from lamu.cli.recipes import add_current_folder

        add_current_folder()
    posterior = load(run / "posterior", trust=trust)
    foreign = task is not None and posterior.model.likelihood.task != task
    if foreign or store.fingerprint(run / "posterior") != config["posterior"]:
        raise ValueError(
            f"the posterior in {str(run)!r} is not the one that `lamu fit` wrote there; fit again or copy whole folders"
        )
    return posterior


class Interrupted(Exception):
    """A command that was interrupted from the keyboard, with a sentence about the saved state."""


@contextmanager
def unfinished(out: Path, asked: Document, resume: bool, force: bool) -> Iterator[Path]:
    """Gives the folder of a command's checkpoints, which remains if an interrupted command left a state to resume."""
    # Any other error gets a note if there is a saved state from which `resume` can continue.
    out = _with_name(out)
    place = out.with_name(f"{out.name}.unfinished")
    _refuse_held(place, out)
    if resume:
        if not (place / _ASKED).is_file():
            raise ValueError(f"there is no {str(place)!r} of an interrupted run to go on from; leave --resume out")
        _require_same(_asked_before(place), json.loads(json.dumps(asked)))
        lock = RunLock(place)
    else:
        if place.exists():
            if not force:
                raise ValueError(
                    f"{str(place)!r} holds an interrupted run; go on from it with --resume, or throw it away with "
                    "--force"
                )
            shutil.rmtree(place)
        lock = _lock_new_folder(place, out, asked)
    try:
        yield place
    except KeyboardInterrupt:
        if learned(place):
            raise Interrupted(
                f"interrupted; what was learned is kept in {str(place)!r}, and the same command with --resume goes on"
            ) from None
        shutil.rmtree(place, ignore_errors=True)
        raise
    except Exception as error:
        if learned(place):
            error.add_note(_saved_state(place))
        else:
            shutil.rmtree(place, ignore_errors=True)
        raise
    else:
        shutil.rmtree(place, ignore_errors=True)
    finally:
        lock.release()


def keep_posterior(posterior: Posterior, place: Path) -> None:
    """Keeps a posterior next to the checkpoints during the work after training."""
    # If it cannot be saved, only the copy is lost, and a warning is issued.
    from lamu.running import Unsaved

    shutil.rmtree(place / _POSTERIOR, ignore_errors=True)  # of the interrupted command
    try:
        posterior.save(place / _POSTERIOR)
    except OSError as error:
        warnings.warn(
            f"the posterior could not be kept in {str(place)!r} ({_reason(error)}) while the scores are computed; "
            "the run goes on without the copy",
            Unsaved,
            stacklevel=2,
        )


def learned(place: Path) -> bool:
    """Returns whether a folder of checkpoints contains a state to resume."""
    try:
        return any(path.name not in (_ASKED, NAME) for path in place.iterdir())
    except OSError:  # it was removed
        return False


def _saved_state(place: Path) -> str:
    posterior = place / _POSTERIOR
    there = f", the posterior in {str(posterior)!r}," if posterior.is_dir() else ""
    return f"what was learned{there} is kept in {str(place)!r}, and the same command with --resume goes on"


def _lock_new_folder(place: Path, out: Path, asked: Document) -> RunLock:
    """Creates the folder of the checkpoints, locked from the first moment that other processes see it."""
    lock = None
    try:
        with drafts.draft(place, other=_OTHER) as folder:
            folder.mkdir(mode=0o755)
            lock = RunLock(folder)
            (folder / _ASKED).write_text(json.dumps(asked, indent=2), encoding="utf-8")
    except OSError as error:
        if lock is not None:
            lock.release()
        _refuse_held(place, out)  # another process was faster
        if error.errno is None:  # already a sentence
            raise
        raise OSError(f"{str(place)!r} could not be made ({_reason(error)}), and nothing was begun") from error
    return lock


def _refuse_held(place: Path, out: Path) -> None:
    holder = lock_holder(place)
    if holder is not None:
        raise ValueError(
            f"another run writes {str(out)!r}: {holder}; wait until it ends, or choose another --out (neither --resume "
            "nor --force takes it over)"
        )


def _asked_before(place: Path) -> Document:
    try:
        before = json.loads((place / _ASKED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = None
    if not isinstance(before, dict):
        raise ValueError(f"{str(place / _ASKED)!r} cannot be read; throw the interrupted run away with --force")
    return before


def _require_same(before: Document, now: Document) -> None:
    for name, value in now.items():
        if before.get(name) != value:
            shown = name.replace("_", "-")
            raise ValueError(
                f"--resume goes on with the command that was interrupted, whose {shown} was {before.get(name)!r} and "
                f"not {value!r}; give the same"
            )


def refuse_existing(out: Path, force: bool = False, option: str = "--out") -> None:
    """Raises an error of one sentence if `out` cannot be created."""
    out = _with_name(out)
    if out.exists() or out.is_symlink():
        foreign = _foreign(out)
        if force and foreign:
            raise FileExistsError(f"{str(out)!r} {foreign}, and --force replaces only what `lamu fit` wrote; move it")
        if not force:
            remedy = "remove it" if foreign else "replace it with --force"
            raise FileExistsError(
                f"{str(out)!r} exists already and is not overwritten; choose another {option} or {remedy}"
            )
    if not out.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(out.parent)!r} to put {out.name!r} in; make it first")


def refuse_unwritable(out: Path) -> None:
    """Raises an error of one sentence if the parent of `out` is not writable; checked before hours of work."""
    shutil.rmtree(drafts.hidden_beside(_with_name(out), _OTHER))


@contextmanager
def draft(out: Path, force: bool = False) -> Iterator[Path]:
    """Gives a temporary path for a file or folder, which is renamed to `out` on success and removed otherwise."""
    # `OSError`: if writing fails, for instance on a full disk.
    out = _with_name(out)
    refuse_existing(out, force)
    try:
        with drafts.draft(out, lambda: refuse_existing(out, force), _OTHER) as path:
            yield path
    except OSError as error:
        if error.errno is None:  # already a sentence
            raise
        raise OSError(f"{str(out)!r} could not be written ({_reason(error)}), and no part of it was") from error


def _reason(error: OSError) -> str:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{reason(error)}{'; free some space or choose another --out' if full else ''}"


def _with_name(out: Path) -> Path:
    """Returns a path that ends in a name: "." and ".." have no sibling for a draft."""
    return out if out.name not in ("", "..") else Path(os.path.abspath(out))


def _foreign(out: Path) -> str:
    """Returns why `out` is not exactly what `lamu fit` wrote; an empty string if it is."""
    if out.is_symlink() or not out.is_dir():
        return "is not a folder"
    try:
        config: Any = json.loads((out / "config.json").read_text(encoding="utf-8"))
        ours = isinstance(config, dict) and {"format", "algorithm", "target"} <= set(config)
    except (OSError, ValueError):
        ours = False
    if not ours:
        return "is not a folder that `lamu fit` made"
    others = sorted(path.name for path in out.iterdir() if path.name not in (*CONTENT, *_OF_MODELS))
    return f"also holds {others[0]!r}" if others else ""
