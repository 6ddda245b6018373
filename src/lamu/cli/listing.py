"""`lamu algorithms` and `lamu verify`: what there is, and whether it does what it should."""

from __future__ import annotations

import inspect
import os
import re
import unicodedata
from importlib.resources import files
from pathlib import Path
from typing import Any

from lamu.cli.compiled_programs import CACHE, compiled_folder
from lamu.cli.printing import show_document, show_line, show_table
from lamu.cli.recipes import find, recipes, settings_of
from lamu.cli.versions import package_versions, version

__all__ = ["cite", "doctor", "entries_of", "findings", "list_algorithms", "show_algorithm", "verify"]


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


# What an extra brings, by the extra.
_EXTRAS = {"mcmc": ("arviz", "blackjax"), "torch": ("torch",), "safetensors": ("safetensors",)}
_ADAPTED = ("flax", "equinox")


def findings() -> dict[str, Any]:
    """Returns what there is, by topic."""
    import jax
    import jax.numpy as jnp

    from lamu.memory import budget, free, limit

    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    optional = (*(name for names in _EXTRAS.values() for name in names), *_ADAPTED)
    return {
        "versions": package_versions(),
        "extras": {name: version(name) for name in optional},
        "devices": [f"{each.device_kind} ({each.platform} {each.id})" for each in jax.devices()],
        "precision": "float64" if jnp.result_type(float) == jnp.float64 else "float32",
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": {"free": free(), "limit": limit(), "prediction": budget()},
        "cache": {"folder": folder, "lamu's": compiled_folder() is not None, "bytes": _size(folder)},
    }


def doctor(as_json: bool) -> None:
    """Prints what there is."""
    found = findings()
    if as_json:
        show_document(found)
        return
    from lamu.memory import shown

    absent = lambda number: "not installed" if number == "unknown" else number
    show_table("versions", ("package", "version"), found["versions"].items())
    owner = {name: f"pip install 'lamu[{extra}]'" for extra, names in _EXTRAS.items() for name in names}
    rows = [(name, absent(number), owner.get(name, f"pip install {name}")) for name, number in found["extras"].items()]
    show_table("extras", ("package", "version", "install with"), rows)
    memory, cache = found["memory"], found["cache"]
    show_line(f"devices: {', '.join(found['devices'])}; {found['processors']} processors; {found['precision']}")
    show_line(
        f"memory: {shown(memory['free'])} free, of which a command takes {shown(memory['limit'])} and a prediction "
        f"{shown(memory['prediction'])} at once (--max-memory)"
    )
    if cache["folder"] is None:
        show_line(f"compiled programs are not kept; set {CACHE} to a folder that can be written")
    else:
        show_line(f"compiled programs are kept in {cache['folder']} ({shown(cache['bytes'])}; {CACHE}=off keeps none)")


def _size(folder: str | None) -> int:
    """Returns the bytes of the files of a folder; none where there is none."""
    if folder is None or not Path(folder).is_dir():
        return 0
    return sum(each.stat().st_size for each in os.scandir(folder) if each.is_file())


_CHOICES = ("algorithm", "family", "expectation", "curvature", "departures", "source")


def list_algorithms(as_json: bool = False) -> None:
    """Prints each algorithm with its belief and its expectation: the first two of its choices inside the rule."""
    rows = []
    for name, recipe in recipes().items():
        choices = recipe.choices
        rows.append((name, choices.family, choices.expectation, choices.curvature, choices.departures, recipe.source))
    if as_json:
        show_document([dict(zip(_CHOICES, row, strict=True)) for row in rows])
        return
    show_table("algorithms", _CHOICES[:3], [row[:3] for row in rows])
    show_line("lamu algorithms NAME shows all choices of one, its source, and its options")


def show_algorithm(name: str, as_json: bool = False) -> None:
    """Prints one algorithm: what it is, its choices inside the rule, its source, and its options."""
    recipe = find(name)
    choices = recipe.choices
    values = (name, choices.family, choices.expectation, choices.curvature, choices.departures, recipe.source)
    options = {
        option: None if each.default is each.empty else repr(each.default)
        for option, each in settings_of(recipe).items()
    }
    summary = (inspect.getdoc(recipe.factory) or "").split("\n\n")[0].replace("\n", " ")
    if as_json:
        show_document({**dict(zip(_CHOICES, values, strict=True)), "summary": summary, "options": options})
        return
    departures = ", ".join(choices.departures) or "none"
    rows = [("family", choices.family), ("expectation", choices.expectation), ("curvature", choices.curvature)]
    rows += [("departures", departures), ("source", recipe.source)]
    rows += [(f"--set {option}=", "required" if default is None else default) for option, default in options.items()]
    show_line(summary)
    show_table(name, ("choice", "value"), rows)


def verify(name: str | None = None, as_json: bool = False) -> bool:
    """Runs the checks of algorithms against independent references, and prints how far each is off."""
    try:
        from lamu_verification import verify
    except ModuleNotFoundError as error:
        if error.name != "lamu_verification":
            raise
        raise ImportError(
            'the references of `lamu verify` are not installed; run pip install "lamu[verify]"'
        ) from error
    return verify(name, as_json)
