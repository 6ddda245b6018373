"""Figures of matplotlib as inline SVG whose colours are those of the page, light or dark."""

from __future__ import annotations

import io
import re
import warnings
from typing import Any

from lamu.plots.style import ACCENT, GREY, INK, PALE
from lamu.report.markup import Markup, clean, element, text

__all__ = ["picture"]

_COLOURS = {INK: "--ink", GREY: "--grey", PALE: "--pale", ACCENT: "--accent", "#ffffff": "--paper", "#000000": "--ink"}
_PIXELS = 96  # of the page, an inch
_WIDTH_ON_A_PHONE = 384  # page.css shrinks a figure to three quarters there, of this width to a phone of 320 pixels
_NO_METADATA: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def picture(name: str, figure: Any, alternative: str, caption: Any = "") -> Markup:
    """Returns a figure as an element of the page."""
    # `name`: begins all its identifiers, which are otherwise those of every figure.
    from matplotlib import rc_context

    file = io.StringIO()
    # Text stays text, and runs do not differ.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "lamu"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the browser's fonts have what matplotlib's lacks
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
    # One that is wider than a phone scrolls there, and a keyboard must reach what scrolls.
    reached = {"tabindex": "0"} if width > _WIDTH_ON_A_PHONE else {}
    return element("figure", Markup(svg.strip()), below, style=f"--width: {width}px", **reached)
