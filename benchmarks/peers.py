"""The peers' side of a benchmark, where it has programs of its own: run by the Python that has the peers installed.

PEERS names the folder of those programs, PEERS_TORCH_PY the interpreter of their environment; each program prints a
line of JSON a figure. Where either is not there, a benchmark goes on alone and says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Figure", "figures"]


@dataclass(frozen=True)
class Figure:
    """What a peer's program printed of one measurement."""

    peer: str
    metric: str
    value: float
    detail: dict[str, Any]


def figures(program: str, *arguments: str) -> list[Figure]:
    """Runs a peer's program to its end, and returns its figures; none where it cannot be run here.

    Args:
        program: the name of its file, without the ending.
        arguments: of its command line.
    """
    place, python = Path(os.environ.get("PEERS", "../shared/bench/peers")), os.environ.get("PEERS_TORCH_PY")
    if python is None or not (place / f"{program}.py").is_file():
        print(f"the peers were not run: {program}.py needs PEERS, its folder, and PEERS_TORCH_PY, their interpreter")
        return []
    command = [str(Path(python).absolute()), f"{program}.py", *arguments]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{program}.py failed: {(done.stderr.strip().splitlines() or ['without a word'])[-1]}", file=sys.stderr)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [
        Figure(line["peer"], line["metric"], float(line["value"]), line["detail"])
        for line in lines
        if isinstance(line["value"], int | float)
    ]
