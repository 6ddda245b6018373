"""The gallery's scripts: each has a title, a caption and a `draw()`; `make docs` runs them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.for_each import for_each

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "docs" / "gallery").glob("*.py"))


@pytest.fixture(scope="module")
def gallery():
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "docs" / "hooks" / "gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@for_each("path", SCRIPTS)
def test_a_script_has_a_title_a_caption_and_a_picture(gallery, path) -> None:
    title, caption, code = gallery.described(path)
    assert title[0].isupper()
    assert not title.endswith(".")
    assert caption.endswith(".")
    assert code.startswith(("import", "from"))
    assert "\ndef draw():\n" in code
    assert len(code.splitlines()) < 70


def test_a_script_without_a_caption_is_refused(gallery, tmp_path) -> None:
    path = tmp_path / "plain.py"
    path.write_text('"""A title alone"""\n\n\ndef draw():\n    pass\n')
    with pytest.raises(ValueError, match=r"plain\.py lacks a docstring with a title"):
        gallery.described(path)


def test_a_picture_is_made_of_the_figure_that_a_script_draws(gallery, tmp_path) -> None:
    path = tmp_path / "line.py"
    path.write_text(
        '"""A line\n\nOf two points.\n"""\n\nfrom matplotlib.figure import Figure\n\n\ndef draw():\n'
        "    figure = Figure(figsize=(2, 1))\n    figure.subplots().plot([0, 1])\n    return figure\n"
    )
    assert gallery.drawn(path).startswith(b"\x89PNG")
    assert gallery.entry(path).startswith(
        "## A line\n\n[![A line](gallery/line.png)](gallery/line.png)\n\nOf two points."
    )
    assert gallery.thumbnail(path).endswith("(#a-line)")
