"""The gallery's scripts: each has a title, a caption and a `draw()`; `make docs` runs them."""

from __future__ import annotations

import importlib.util
import re
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
    entry = gallery.entry(path)
    assert entry.startswith("## A line\n\n[![A line](gallery/line.png)](#code-line)\n\nOf two points.")
    assert gallery.thumbnail(path).endswith("(#a-line)")


def test_a_picture_leads_to_the_code_that_drew_it(gallery) -> None:
    markdown = pytest.importorskip("markdown")
    extensions = ["pymdownx.details", "pymdownx.superfences", "attr_list", "toc"]
    page = "\n\n".join(f"{gallery.thumbnail(path)}\n\n{gallery.entry(path)}" for path in SCRIPTS)
    html = markdown.markdown(page, extensions=extensions)
    for path in SCRIPTS:
        small, large = re.findall(rf'<a href="#([^"]+)"><img [^>]*gallery/{path.stem}\.png', html)
        assert f'<h2 id="{small}">' in html
        assert large == f"code-{path.stem}"
        before, after = html.split(f'id="{large}"')
        assert before.rindex("<details") > before.rfind("</details>"), "the anchor is inside of the code's fold"
        assert path.name in before[before.rindex("<summary") :]
        assert "def draw" in re.sub(r"<[^>]+>", "", after.split("</details>")[0])


def test_a_page_names_what_drew_its_pictures() -> None:
    drawn = {
        "benchmarks.png": "make bench",
        "benchmarks_growth.png": "make bench",
        "bounded_influence.png": "examples/bounded_influence.py",
        "calibration.png": "lamu fit diabetes",
        "influence.png": "examples/most_influential_rows.py",
        "playground.png": "python -m examples.playground",
        "priors_gallery.png": "examples/priors_gallery.py",
        "ranks.png": "python -m benchmarks.ranks",
        "report.png": "lamu fit diabetes",
        "samplers.png": "examples/samplers_in_2d.py",
        "sparse_weights.png": "docs/gallery/sparse_weights.py",
        "textbook_regression.png": "examples/textbook_regression.py",
    }
    shown = {
        (name, page.name)
        for page in (ROOT / "docs").glob("*.md")
        for name in re.findall(r"\]\(images/(\w+\.png)\)", page.read_text(encoding="utf-8"))
    }
    assert {name for name, _ in shown} == set(drawn) == {path.name for path in (ROOT / "docs" / "images").glob("*.png")}
    for name, page in sorted(shown):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert drawn[name] in " ".join(text.split()), f"docs/{page} shows {name}, and not what drew it: {drawn[name]}"
