"""The peers' environment: a virtual environment under .cache/, made from the package index that pip is set up with."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

__all__ = ["Missing", "missing", "peers"]

ROOT = Path(__file__).parents[2]
REQUIREMENTS = Path(__file__).parent / "peers" / "requirements.txt"
FOLDER = ROOT / ".cache" / "peers"
DONE = "installed.txt"  # the requirements that were installed, so that a changed list is installed again


class Missing(Exception):
    """A peer that cannot be run here; the message is the sentence of the table."""


def requirements() -> list[str]:
    lines = (line.split("#")[0].strip() for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def interpreter(folder: Path) -> Path:
    return folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def install(folder: Path = FOLDER) -> None:
    """Makes the environment, package by package, so that one that cannot be had leaves the others."""
    done = folder / DONE
    if done.is_file() and done.read_text(encoding="utf-8").split("\n\n")[0].split() == requirements():
        return
    print("installing the peers' environment into", folder, "(minutes the first time)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    failures = []
    for requirement in requirements():
        line = [str(interpreter(folder)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        result = subprocess.run(
            [*line, "--constraint", str(REQUIREMENTS), requirement], capture_output=True, text=True, check=False
        )
        if result.returncode:
            lines = [text for text in result.stderr.splitlines() if text.startswith("ERROR")] or ["no reason given"]
            failures.append(f"{requirement}: {lines[-1].removeprefix('ERROR: ')[:200]}")
    # laplace-torch asks for torchvision, whose wheel may be of another build than torch's: then importing it fails.
    if missing("torchvision", folder) is not None:
        remove = [str(interpreter(folder)), "-m", "pip", "uninstall", "--quiet", "--yes", "torchvision"]
        subprocess.run(remove, capture_output=True, check=False)
    done.write_text("\n".join(requirements()) + "\n\n" + "\n".join(failures) + "\n", encoding="utf-8")


@cache
def missing(package: str, folder: Path = FOLDER) -> str | None:
    """Returns why a package of the peers' environment cannot be imported, or None where it can."""
    python = interpreter(folder)
    if not python.is_file():
        return f"{package} was not run: its environment is not installed (`make bench` makes it)."
    code = f"import {package}"
    result = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return None
    return f"{package} was not run: {(result.stderr.strip().splitlines() or ['it cannot be imported'])[-1][:200]}."


def peers(*packages: str) -> Path:
    """Returns the interpreter of the peers.

    Args:
        packages: names to import, each of which must be there.
    """
    for package in packages:
        if (reason := missing(package)) is not None:
            raise Missing(reason)
    return interpreter(FOLDER)
