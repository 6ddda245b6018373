"""The examples run, as a person would run them: in a process of their own, without the tests' strictness."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
LONG = {"demo.py", "one_model_all_agree.py"}
SCRIPTS = [
    pytest.param(path, id=path.name, marks=[pytest.mark.stress] if path.name in LONG else [])
    for path in sorted(FOLDER.glob("*.py"))
]


@pytest.mark.parametrize("path", SCRIPTS)
def test_example_runs(path: Path) -> None:
    ran = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout
