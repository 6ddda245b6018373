r"""Turns the LaTeX of the pages and docstrings into MathML, so that the built site needs no script and no network.

`pymdownx.arithmatex` marks the mathematics (`<span class="arithmatex">\(...\)</span>`); this hook converts what it
marked. Everything it warns of fails a strict build: LaTeX that does not parse, and dollar signs that were left as text.
"""

from __future__ import annotations

import html as entities
import logging
import re
from typing import Any

from math_core import LatexError, LatexToMathML

# A child of MkDocs's own logger, because strict builds count the warnings that pass there.
log = logging.getLogger("mkdocs.hooks.mathml")

MACROS = {"E": r"\mathbb{E}", "KL": r"\operatorname{KL}", "tr": r"\operatorname{tr}", "diag": r"\operatorname{diag}"}

_MARKED = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_NOT_PROSE = re.compile(r"<(code|pre|script|style|math)\b.*?</\1>|<[^>]*>", re.DOTALL)
_HEADING = re.compile(r"<h[1-6]\b(?:(?!</h[1-6]>).)*?<math.*?</h[1-6]>", re.DOTALL)

_converter = LatexToMathML(macros=MACROS, fancy_error=False)


def to_mathml(page: str, html: str) -> str:
    """Return the page's HTML with its marked LaTeX as MathML; warn of what cannot be converted."""

    def convert(match: re.Match[str]) -> str:
        tag, opening, latex = match[1], match[2], entities.unescape(match[3]).strip()
        try:
            mathml = _converter.convert_with_local_state(latex, displaystyle=opening == "[")
        except LatexError as error:
            log.warning("%s: LaTeX does not parse (at character %s): %s", page, error, latex)
            return match[0]
        return f'<{tag} class="math">{mathml}</{tag}>'

    converted = _MARKED.sub(convert, html)
    for heading in _HEADING.findall(converted):
        log.warning("%s: a heading holds LaTeX, which the table of contents cannot show: %s", page, heading)
    for line in _NOT_PROSE.sub("", converted).splitlines():
        if "$" in line:
            log.warning("%s: a dollar sign was left as text; is the LaTeX closed? %s", page, line.strip())
    return converted


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """MkDocs's hook: called with each page's content as HTML."""
    return to_mathml(page.file.src_uri, html)
