"""What a command writes appears whole or not at all, and never over something that is there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["draft", "refuse_existing"]


def refuse_existing(out: Path) -> None:
    """Raises an error of one sentence if `out` cannot be made.

    Args:
        out: a file or folder that is to be made.

    Raises:
        FileExistsError: if there is something at `out`.
        FileNotFoundError: if there is no folder to put it in.

    Examples:
        >>> from pathlib import Path
        >>> from lamu.cli.folder import refuse_existing
        >>> refuse_existing(Path("a name that is free"))
    """
    if out.exists() or out.is_symlink():
        raise FileExistsError(f"{str(out)!r} exists already and is not overwritten; choose another --out or remove it")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(out.parent)!r} to put {out.name!r} in; make it first")


@contextmanager
def draft(out: Path) -> Iterator[Path]:
    """Gives a path to make a file or folder at, which becomes `out` if all goes well and vanishes otherwise.

    Args:
        out: the file or folder that is to be there in the end.

    Yields:
        The path of the draft, of the same name in a hidden folder beside `out`; nothing is there yet.

    Raises:
        FileExistsError: if there is something at `out`, now or in the end.
        FileNotFoundError: if there is no folder to put it in.
        PermissionError: if that folder cannot be written to.

    Examples:
        >>> import pathlib, tempfile
        >>> from lamu.cli.folder import draft
        >>> out = pathlib.Path(tempfile.mkdtemp()) / "answer.txt"
        >>> with draft(out) as path:
        ...     _ = path.write_text("42")
        >>> out.read_text(), len(list(out.parent.iterdir()))
        ('42', 1)
    """
    refuse_existing(out)
    try:
        hidden = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise PermissionError(
            f"the folder {str(out.parent)!r} cannot be written to ({error.strerror}); choose another --out"
        ) from error
    try:
        yield hidden / out.name
        refuse_existing(out)
        os.rename(hidden / out.name, out)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
