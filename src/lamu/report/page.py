"""A self-contained HTML page of sections with a table of contents."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from lamu.plots.style import ACCENT, GREY, INK, PALE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Markup", "Section", "clean", "element", "join", "page", "paragraph", "picture", "table", "text"]


# Characters that HTML does not allow: parsers drop them or stop.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """Text that is HTML."""


def clean(value: str) -> str:
    """Returns text without the characters that HTML does not allow."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", value)


def text(value: object) -> Markup:
    """Returns a value as HTML: markup unchanged, other values escaped."""
    return value if isinstance(value, Markup) else Markup(html.escape(clean(str(value))))


def join(values: Iterable[object], between: str = "") -> Markup:
    """Returns the concatenated HTML of values."""
    return Markup(between.join(text(value) for value in values))


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """Returns an element with its children."""
    named = "".join(f' {name.strip("_").replace("_", "-")}="{text(value)}"' for name, value in attributes.items())
    return Markup(f"<{tag}{named}>{join(children)}</{tag}>")


def paragraph(*children: object, **attributes: object) -> Markup:
    """Returns a paragraph."""
    return element("p", *children, **attributes)


def table(caption: str, heads: Sequence[object], rows: Iterable[Sequence[object]]) -> Markup:
    """Returns a table in a frame that scrolls if it is wider than the page, also by keyboard."""
    head = element("tr", *(element("th", heading, scope="col") for heading in heads))
    body = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    ]
    table_element = element("table", element("caption", caption), element("thead", head), element("tbody", *body))
    return element("div", table_element, class_="scroll", role="region", aria_label=caption, tabindex="0")


_COLOURS = {INK: "--ink", GREY: "--grey", PALE: "--pale", ACCENT: "--accent", "#ffffff": "--paper", "#000000": "--ink"}
_PIXELS = 96  # per inch
_WIDTH_ON_A_PHONE = 384  # in pixels: page.css scales figures to three quarters on phones, and phones have 320 pixels
_NO_METADATA: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def picture(name: str, figure: Figure, alternative: str, caption: object = "") -> Markup:
    """Returns a figure as an element of the page."""
    # `name`: the prefix of the figure's identifiers, which would otherwise repeat in every figure.
    from matplotlib import rc_context

    file = io.StringIO()
    # Text is not converted to paths, and the output is reproducible.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "lamu"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # glyphs that matplotlib's font lacks are in the browser's fonts
        figure.savefig(file, format="svg", metadata=_NO_METADATA)
    svg = clean(file.getvalue())
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(\sid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"(font(?:-family)?: [^;\"]*?)'DejaVu Sans'[^;\"]*", r"\1system-ui, sans-serif", svg)
    for colour, variable in _COLOURS.items():
        svg = svg.replace(colour, f"var({variable})")
    label = text(alternative)
    svg = re.sub(
        r'^<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg role="img" aria-label="LABEL" viewBox="\1">', svg, count=1
    )
    svg = svg.replace("LABEL", label, 1)
    below = element("figcaption", caption) if caption else ""
    width = round(figure.get_size_inches()[0] * _PIXELS)
    # A figure that is wider than a phone scrolls there, and scrolling elements must be reachable by keyboard.
    reached = {"tabindex": "0"} if width > _WIDTH_ON_A_PHONE else {}
    return element("figure", Markup(svg.strip()), below, style=f"--width: {width}px", **reached)


# The browser then blocks scripts and all external resources.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Section:
    """A part of a page."""

    name: str  # its identifier, for links
    title: str  # its heading
    content: Sequence[object]  # what it contains, in order


def page(title: str, summary: object, sections: Sequence[Section], footer: str) -> str:
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
    links = [element("li", element("a", section.title, href=f"#{section.name}")) for section in sections]
    body = element(
        "body",
        element("a", "Skip to the content", class_="skip", href="#content"),
        element("header", element("h1", title), summary),
        element("nav", element("ol", *links), aria_label="Sections"),
        element("main", *(_section(section) for section in sections), id="content"),
        element("footer", footer),
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{body}\n</html>\n'


def _section(section: Section) -> Markup:
    heading = element("h2", section.title, id=f"{section.name}-title")
    content = join(section.content, "\n")
    return element("section", heading, content, id=section.name, aria_labelledby=f"{section.name}-title")
