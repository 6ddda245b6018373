"""HTML from values: whatever is no `Markup` is escaped, so that no value can become a tag."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["Markup", "clean", "element", "join", "paragraph", "table", "text"]

# Characters that HTML does not allow; a parser would drop them or end there.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """Text that is HTML already."""


def clean(value: str) -> str:
    """Returns text without the characters that no HTML file may hold."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", value)


def text(value: Any) -> Markup:
    """Returns a value as HTML: markup as it is, anything else escaped."""
    return value if isinstance(value, Markup) else Markup(html.escape(clean(str(value))))


def join(values: Iterable[Any], between: str = "") -> Markup:
    """Returns the values as HTML, one after the other."""
    return Markup(between.join(text(value) for value in values))


def element(tag: str, *children: Any, **attributes: Any) -> Markup:
    """Returns an element with its children."""
    named = "".join(f' {name.strip("_").replace("_", "-")}="{text(value)}"' for name, value in attributes.items())
    return Markup(f"<{tag}{named}>{join(children)}</{tag}>")


def paragraph(*children: Any, **attributes: Any) -> Markup:
    """Returns a paragraph."""
    return element("p", *children, **attributes)


def table(caption: str, heads: Sequence[Any], rows: Iterable[Sequence[Any]]) -> Markup:
    """Returns a table in a frame that scrolls where it is wider than the page, by keyboard too."""
    head = element("tr", *(element("th", each, scope="col") for each in heads))
    body = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    ]
    whole = element("table", element("caption", caption), element("thead", head), element("tbody", *body))
    return element("div", whole, class_="scroll", role="region", aria_label=caption, tabindex="0")
