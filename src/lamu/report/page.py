"""A page of sections: one HTML file with its style inside, a table of contents, and nothing to load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from lamu.report.markup import Markup, element, join

__all__ = ["Section", "page"]

# The browser itself then refuses scripts and whatever is not in the file.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Section:
    """A part of a page."""

    name: str  # its identifier, for links
    title: str  # its heading
    content: Sequence[Any]  # what it contains, in order


def page(title: str, summary: Any, sections: Sequence[Section], footer: str) -> str:
    """Returns the text of an HTML file."""
    parts = (files("lamu").joinpath("colours.css"), files("lamu.report").joinpath("page.css"))
    style = Markup("".join(part.read_text(encoding="utf-8") for part in parts))
    head = element(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        element("title", title),
        element("style", style),
    )
    links = [element("li", element("a", each.title, href=f"#{each.name}")) for each in sections]
    body = element(
        "body",
        element("a", "Skip to the content", class_="skip", href="#content"),
        element("header", element("h1", title), summary),
        element("nav", element("ol", *links), aria_label="Sections"),
        element("main", *(_section(each) for each in sections), id="content"),
        element("footer", footer),
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{body}\n</html>\n'


def _section(section: Section) -> Markup:
    heading = element("h2", section.title, id=f"{section.name}-title")
    content = join(section.content, "\n")
    return element("section", heading, content, id=section.name, aria_labelledby=f"{section.name}-title")
