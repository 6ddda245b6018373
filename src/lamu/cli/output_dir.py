"""What a command writes appears whole or not at all, and never over something that is not its own."""

from __future__ import annotations

import errno
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lamu.cli.atomic_write import exchange
from lamu.cli.run_lock import NAME as LOCK
from lamu.cli.run_lock import RunLock, holder_of
from lamu.drafts import hidden_beside

__all__ = [
    "CONTENT",
    "FORMAT",
    "Interrupted",
    "draft",
    "keep_posterior",
    "learned",
    "refuse_existing",
    "refuse_unwritable",
    "unfinished",
]

FORMAT = 2  # of config.json
_ASKED = "asked.json"
_POSTERIOR = "posterior"
CONTENT = ("calibration.png", "config.json", "metrics.json", "posterior", "predictions.csv", "report.html")
_OF_IMAGES = ("config.json", "images.png", "metrics.json", "posterior")


class Interrupted(Exception):
    """A command that was stopped from the keyboard, and what it kept, in one sentence."""


@contextmanager
def unfinished(out: Path, asked: dict[str, Any], resume: bool, force: bool) -> Iterator[Path]:
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


def keep_posterior(posterior: Any, place: Path) -> None:
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
        return any(path.name not in (_ASKED, LOCK) for path in place.iterdir())
    except OSError:  # it was removed
        return False


def _kept(place: Path) -> str:
    posterior = place / _POSTERIOR
    there = f", the posterior in {str(posterior)!r}," if posterior.is_dir() else ""
    return f"what was learned{there} is kept in {str(place)!r}, and the same command with --resume goes on"


def _begun(place: Path, out: Path, asked: dict[str, Any]) -> RunLock:
    """Makes the folder of the checkpoints, which has its lock from the first moment that others see it."""
    hidden = _hidden(out)
    lock = None
    try:
        lock = RunLock(hidden)
        (hidden / _ASKED).write_text(json.dumps(asked, indent=2), encoding="utf-8")
        hidden.chmod(0o755)
        os.rename(hidden, place)
    except BaseException as error:
        if lock is not None:
            lock.release()
        shutil.rmtree(hidden, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        _refuse_held(place, out)  # which was faster
        raise OSError(f"{str(place)!r} could not be made ({_reason(error)}), and nothing was begun") from error
    return lock


def _refuse_held(place: Path, out: Path) -> None:
    holder = holder_of(place)
    if holder is not None:
        raise ValueError(
            f"another run writes {str(out)!r}: {holder}; wait until it ends, or choose another --out (neither --resume "
            "nor --force takes it over)"
        )


def _asked_before(place: Path) -> dict[str, Any]:
    try:
        before = json.loads((place / _ASKED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = None
    if not isinstance(before, dict):
        raise ValueError(f"{str(place / _ASKED)!r} cannot be read; throw the interrupted run away with --force")
    return before


def _require_same(before: dict[str, Any], now: dict[str, Any]) -> None:
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
    shutil.rmtree(_hidden(_plain(out)))


@contextmanager
def draft(out: Path, force: bool = False) -> Iterator[Path]:
    """Gives a path to make a file or folder at, which becomes `out` if all goes well and vanishes otherwise."""
    # `OSError`: if writing fails, for instance because the disk is full.
    out = _plain(out)
    refuse_existing(out, force)
    hidden = _hidden(out)
    try:
        yield hidden / out.name
        refuse_existing(out, force)
        if out.exists():
            exchange(hidden / out.name, out)
        else:
            os.rename(hidden / out.name, out)
    except OSError as error:
        if error.errno is None:  # a sentence already
            raise
        raise OSError(f"{str(out)!r} could not be written ({_reason(error)}), and no part of it was") from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _plain(out: Path) -> Path:
    """Returns a path that ends in a name: "." and ".." have none to put a draft beside."""
    return out if out.name not in ("", "..") else Path(os.path.abspath(out))


def _hidden(out: Path) -> Path:
    try:
        return hidden_beside(out)
    except OSError as error:
        raise PermissionError(
            f"the folder {str(out.parent)!r} cannot be written to ({_reason(error)}); choose another --out"
        ) from error


def _reason(error: OSError) -> str:
    remedy = "; free some space or choose another --out" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return f"{(error.strerror or str(error)).lower()}{remedy}"


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
    others = sorted(path.name for path in out.iterdir() if path.name not in (*CONTENT, *_OF_IMAGES))
    return f"also holds {others[0]!r}" if others else ""
