"""Makes the gallery: runs every script of `docs/gallery`, and puts its picture and its code on one page.

A script's docstring is the title, a blank line, and the caption; its `draw()` returns a figure of matplotlib. Pictures
are written into the site alone, so that none is older than the code. A script that fails, fails the build.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

SCRIPTS = Path(__file__).parent.parent / "gallery"
PAGE, MARK = "gallery.md", "<!-- pictures -->"


def described(path: Path) -> tuple[str, str, str]:
    """Return the title, the caption and the code of a script."""
    source = path.read_text(encoding="utf-8")
    title, _, caption = inspect.cleandoc(ast.get_docstring(ast.parse(source)) or "").partition("\n\n")
    if not title or not caption:
        raise ValueError(f"{path.name} lacks a docstring with a title, a blank line and a caption")
    return title, " ".join(caption.split()), source.split('"""', 2)[2].strip()


def drawn(path: Path) -> bytes:
    """Return the picture of a script as PNG."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short runs say that they are short, which is no fault of the site
        spec.loader.exec_module(module)
        picture = BytesIO()
        module.draw().savefig(picture, format="png", dpi=110)
    return picture.getvalue()


def entry(path: Path) -> str:
    """Return the Markdown of a script: a figure that leads to its code, its caption, and the code folded away."""
    title, caption, code = described(path)
    folded = "\n".join(f"    {line}".rstrip() for line in code.splitlines())
    # Browsers unfold what holds the anchor that a link leads to.
    return (
        f"## {title}\n\n[![{title}](gallery/{path.stem}.png)](#code-{path.stem})\n\n{caption}\n\n"
        f'??? example "The code: docs/gallery/{path.name}"\n\n    <span id="code-{path.stem}"></span>\n\n'
        f"    ```python\n{folded}\n    ```\n"
    )


def thumbnail(path: Path) -> str:
    """Return the Markdown of a small picture that leads to its entry."""
    title, *_ = described(path)
    anchor = "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c == "-")
    return f"[![{title}](gallery/{path.stem}.png){{ .thumbnail }}](#{anchor})"


def on_files(files: Any, config: Any) -> Any:
    """Add the pictures to the site's files."""
    for path in sorted(SCRIPTS.glob("*.py")):
        files.append(File.generated(config, f"gallery/{path.stem}.png", content=drawn(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put thumbnails and entries where the page has its mark."""
    if page.file.src_uri != PAGE:
        return markdown
    scripts = sorted(SCRIPTS.glob("*.py"))
    return markdown.replace(MARK, "\n".join(map(thumbnail, scripts)) + "\n\n" + "\n\n".join(map(entry, scripts)))
