"""Follows every link, picture and anchor of the built site; a dead one is a warning, which fails a strict build.

MkDocs follows the links of Markdown pages alone, and not those that docstrings, themes and hooks make.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

log = logging.getLogger("mkdocs.hooks.links")

# The site's templates quote every attribute. A parser of all HTML took an eighth of the build.
_TAG = re.compile(r'<\w+((?:\s+[^\s"=<>/]+(?:="[^"]*")?)+)\s*/?>')
_ATTRIBUTE = re.compile(r'\s(id|name|href|src)="([^"]+)"')


class Page:
    """The anchors of a page, and what it links to or shows."""

    def __init__(self, html: str) -> None:
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        for tag in _TAG.finditer(html):
            for name, value in _ATTRIBUTE.findall(tag[1]):
                (self.anchors if name in ("id", "name") else self.links).add(unescape(value))


def dead(site: Path) -> Iterator[tuple[str, str, str]]:
    """Yields the page, the link, and what it lacks, of every link within the site that leads nowhere."""
    pages = {path.relative_to(site).as_posix(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    for name, page in sorted(pages.items()):
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path = unquote(parts.path)
            inside = path.lstrip("/") if path.startswith("/") else posixpath.join(posixpath.dirname(name), path)
            target = posixpath.normpath(inside) if path else name
            if (site / target).is_dir():
                target = posixpath.normpath(posixpath.join(target, "index.html"))
            if not (site / target).is_file():
                yield name, link, "no such file"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield name, link, "no such anchor"


def on_post_build(config: Any) -> None:
    """MkDocs's hook: called when all pages are written."""
    for page, link, lack in dead(Path(config.site_dir)):
        log.warning("%s links to %s: %s", page, link, lack)
