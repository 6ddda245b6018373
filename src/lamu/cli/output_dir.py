"""Output folders: written atomically, locked while a run is at work, and never over foreign content."""

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

from lamu import drafts
from lamu.drafts import is_alive, reason

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
    "holder_of",
    "keep_posterior",
    "learned",
    "load_posterior",
    "read_config",
    "refuse_existing",
    "refuse_unwritable",
    "unfinished",
]


Document: TypeAlias = dict[str, Any]  # of JSON
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


def _about(text: str) -> Document | None:
    try:
        about = json.loads(text)
    except ValueError:
        return None
    kinds = {"process": int, "host": str, "since": int | float}
    sound = isinstance(about, dict) and all(isinstance(about.get(name), kind) for name, kind in kinds.items())
    return {"born": None, **about} if sound else None


def _is_running(process: int, born: str | None) -> bool:
    return is_alive(process) and (born is None or _born(process) in (None, born))


def _born(process: int) -> str | None:
    """Returns when a process of this machine began, since its last start, by which it differs from a later one."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _try_to_lock(file: IO[str]) -> bool | None:
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


FORMAT = 2  # of config.json
_ASKED = "asked.json"
_OTHER = "another --out"
_POSTERIOR = "posterior"
CONTENT = ("calibration.png", "config.json", "metrics.json", "posterior", "predictions.csv", "report.html")
_OF_MODELS = ("images.png", "latents.csv", "latents.png")  # of those without a target, beside some of the same


def read_config(run: Path) -> Document:
    """Returns the choices of a fit that a folder of `lamu fit` holds, as far as every folder has them."""
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
    whole = all(type(count) is int and 0 < count < 2**31 for count in (samples, *counts))
    if not whole or not isinstance(config.get("posterior"), str):
        raise altered(run)
    return config


def altered(run: Path) -> ValueError:
    """Returns the error of a folder whose choices no fit has made."""
    path = run / "config.json"
    return ValueError(f"{str(path)!r} cannot be read: it was altered after `lamu fit` wrote it; fit again")


def load_posterior(run: Path, config: Document, trust: Sequence[str], task: str | None = None) -> Posterior:
    """Returns the posterior of a folder, once it is the one that was written there, of a task where one is named."""
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
    """A command that was stopped from the keyboard, and what it kept, in one sentence."""


@contextmanager
def unfinished(out: Path, asked: Document, resume: bool, force: bool) -> Iterator[Path]:
    """Gives the folder of the checkpoints of a command, which stays if it is cut short with something to go on from."""
    # Any other error has a note where something is kept that `resume` goes on from.
    out = _plain(out)
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
        lock = _begun(place, out, asked)
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
            error.add_note(_kept(place))
        else:
            shutil.rmtree(place, ignore_errors=True)
        raise
    else:
        shutil.rmtree(place, ignore_errors=True)
    finally:
        lock.release()


def keep_posterior(posterior: Posterior, place: Path) -> None:
    """Keeps a posterior beside the checkpoints while what comes after training is at work."""
    # Where it cannot be kept nothing is lost but the copy, and a warning says so.
    from lamu.running import Unsaved

    shutil.rmtree(place / _POSTERIOR, ignore_errors=True)  # of the command that was cut short
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
    """Returns whether a folder of checkpoints holds something to go on from."""
    try:
        return any(path.name not in (_ASKED, NAME) for path in place.iterdir())
    except OSError:  # it was removed
        return False


def _kept(place: Path) -> str:
    posterior = place / _POSTERIOR
    there = f", the posterior in {str(posterior)!r}," if posterior.is_dir() else ""
    return f"what was learned{there} is kept in {str(place)!r}, and the same command with --resume goes on"


def _begun(place: Path, out: Path, asked: Document) -> RunLock:
    """Makes the folder of the checkpoints, which has its lock from the first moment that others see it."""
    lock = None
    try:
        with drafts.draft(place, other=_OTHER) as folder:
            folder.mkdir(mode=0o755)
            lock = RunLock(folder)
            (folder / _ASKED).write_text(json.dumps(asked, indent=2), encoding="utf-8")
    except OSError as error:
        if lock is not None:
            lock.release()
        _refuse_held(place, out)  # which was faster
        if error.errno is None:  # a sentence already
            raise
        raise OSError(f"{str(place)!r} could not be made ({_reason(error)}), and nothing was begun") from error
    return lock


def _refuse_held(place: Path, out: Path) -> None:
    holder = holder_of(place)
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
    """Raises an error of one sentence if `out` cannot be made."""
    out = _plain(out)
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
    """Raises an error of one sentence if nothing can be made beside `out`; asked before hours of work, not after."""
    shutil.rmtree(drafts.hidden_beside(_plain(out), _OTHER))


@contextmanager
def draft(out: Path, force: bool = False) -> Iterator[Path]:
    """Gives a path to make a file or folder at, which becomes `out` if all goes well and vanishes otherwise."""
    # `OSError`: if writing fails, for instance because the disk is full.
    out = _plain(out)
    refuse_existing(out, force)
    try:
        with drafts.draft(out, lambda: refuse_existing(out, force), _OTHER) as path:
            yield path
    except OSError as error:
        if error.errno is None:  # a sentence already
            raise
        raise OSError(f"{str(out)!r} could not be written ({_reason(error)}), and no part of it was") from error


def _reason(error: OSError) -> str:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{reason(error)}{'; free some space or choose another --out' if full else ''}"


def _plain(out: Path) -> Path:
    """Returns a path that ends in a name: "." and ".." have none to put a draft beside."""
    return out if out.name not in ("", "..") else Path(os.path.abspath(out))


def _foreign(out: Path) -> str:
    """Returns why something at `out` is not just what `lamu fit` wrote; nothing where it is."""
    if out.is_symlink() or not out.is_dir():
        return "is no folder"
    try:
        config: Any = json.loads((out / "config.json").read_text(encoding="utf-8"))
        ours = isinstance(config, dict) and {"format", "algorithm", "target"} <= set(config)
    except (OSError, ValueError):
        ours = False
    if not ours:
        return "is no folder that `lamu fit` made"
    others = sorted(path.name for path in out.iterdir() if path.name not in (*CONTENT, *_OF_MODELS))
    return f"also holds {others[0]!r}" if others else ""
