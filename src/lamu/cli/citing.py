"""`lamu cite`: BibTeX entries of the papers behind an algorithm."""

from __future__ import annotations

import re
import unicodedata
from importlib.resources import files

from lamu.cli.recipes import find

__all__ = ["cite", "entries_of"]

_PAPER = re.compile(r"([^\W\d_][^;\d]*?)\s(?:et al\. )?(\d{4})")
RULE = "Khan & Rue 2021"


def cite(name: str | None = None) -> None:
    """Prints the BibTeX entries of the papers that an algorithm is from, and of the Bayesian learning rule."""
    source = RULE if name is None else f"{find(name).source}; {RULE}"
    print("\n\n".join(entries_of(source).values()))


def entries_of(source: str) -> dict[str, str]:
    """Returns the BibTeX entries of a source by key, in its order."""
    # `source`: papers as authors and year, for instance "Zhang et al. 2018, section 3.3; Khan & Rue 2021".
    text = files("lamu").joinpath("references.bib").read_text(encoding="utf-8")
    known = {re.split(r"[{,]", entry, maxsplit=2)[1]: entry for entry in re.split(r"\n\n(?=@)", text.strip())}
    cited: dict[str, str] = {}
    for authors, year in _PAPER.findall(source):
        first = re.split(r",| & | et al\.", authors.strip(" ,"))[0]
        start = re.sub(r"\W", "", _plain(first)).lower() + year
        key = next((key for key in known if key.startswith(start)), None)
        if key is None:
            raise ValueError(f"there is no BibTeX entry for {first} {year}; the source is {source!r}")
        cited[key] = known[key]
    return cited


def _plain(name: str) -> str:
    """Returns a name in plain letters, as the keys of entries have it."""
    return unicodedata.normalize("NFKD", name.replace("ı", "i")).encode("ascii", "ignore").decode()
