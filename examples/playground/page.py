"""The playground's page: one HTML file with its style and its script inside, and a policy that allows those alone."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

__all__ = ["page", "policy"]


def _part(name: str) -> str:
    return files("examples.playground").joinpath(name).read_text(encoding="utf-8")


@cache
def _style() -> str:
    return files("lamu").joinpath("colours.css").read_text(encoding="utf-8") + _part("page.css")


@cache
def _script() -> str:
    return _part("pictures.js") + _part("page.js")


def _digest(part: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}"


@cache
def page() -> str:
    """Returns the text of the page."""
    return _part("page.html").replace("/* style */", _style()).replace("/* script */", _script())


@cache
def policy() -> str:
    """Returns the page's Content-Security-Policy: its own style, its own script, and questions to its own server."""
    rules = (
        "default-src 'none'",
        f"script-src '{_digest(_script())}'",
        f"style-src '{_digest(_style())}'",
        "img-src data:",  # the empty icon: without one, browsers ask for a file
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return "; ".join(rules)
