"""What is public stands on one page, versions agree, and an old name says the new one."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import lamu

TOP = Path(__file__).parent.parent


def test_the_page_lists_the_public_packages() -> None:
    text = (TOP / "docs" / "stability.md").read_text(encoding="utf-8")
    listed = re.findall(r"`(lamu\.[a-z]\w*)`", text.partition("## What is public")[2].partition("| |")[0])
    packages = [f"lamu.{name}" for name in lamu.__all__ if isinstance(getattr(lamu, name), ModuleType)]
    assert listed == sorted(packages)


def test_all_files_say_the_same_version() -> None:
    version = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"\nversion: {version}\n" in (TOP / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^## \[(.+?)\]", (TOP / "CHANGELOG.md").read_text(encoding="utf-8"), re.M).group(1) == version


def test_an_old_name_works_and_says_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "renaming"
    package.mkdir()
    (package / "parts.py").write_text("def new():\n    return 3\n")
    (package / "__init__.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "from lamu.base.lazy_imports import lazy_names\n"
        "if TYPE_CHECKING:\n    from renaming.parts import new\n"
        "__all__ = ['new']\n"
        "__getattr__, __dir__ = lazy_names(__name__, __file__, renamed={'old': 'new'})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import renaming

    with pytest.warns(DeprecationWarning, match=r"^renaming\.old is renaming\.new now$") as caught:
        assert renaming.old() == 3
    assert caught[0].filename == __file__  # the line that has to change
    assert "old" not in dir(renaming)
    del sys.modules["renaming"], sys.modules["renaming.parts"]
