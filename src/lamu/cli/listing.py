"""`lamu algorithms`, `lamu cite`, `lamu doctor` and `lamu verify`."""

from __future__ import annotations

import inspect
import os
import re
import unicodedata
from importlib.resources import files
from pathlib import Path
from typing import Any

from lamu.base.compiled_programs import CACHE, compiled_folder, keep_compiled
from lamu.cli.printing import show_document, show_line, show_table
from lamu.cli.recipes import find, recipes, settings_of
from lamu.cli.versions import package_versions, version
from lamu.protocol import Recipe

__all__ = ["bibtex_entries", "cite", "doctor", "findings", "list_algorithms", "show_algorithm", "verify"]


_PAPER = re.compile(r"([^\W\d_][^;\d]*?)\s(?:et al\. )?(\d{4})")
RULE = "Khan & Rue 2021"


def cite(name: str | None = None) -> None:
    """Prints the BibTeX entries of an algorithm's papers, and of the Bayesian learning rule."""
    source = RULE if name is None else f"{find(name).source}; {RULE}"
    print("\n\n".join(bibtex_entries(source).values()))


def bibtex_entries(source: str) -> dict[str, str]:
    """Returns the BibTeX entries of a source by key, in its order."""
    # `source`: papers as authors and year, for instance "Zhang et al. 2018, section 3.3; Khan & Rue 2021".
    text = files("lamu").joinpath("references.bib").read_text(encoding="utf-8")
    entries = {re.split(r"[{,]", entry, maxsplit=2)[1]: entry for entry in re.split(r"\n\n(?=@)", text.strip())}
    cited: dict[str, str] = {}
    for authors, year in _PAPER.findall(source):
        first = re.split(r",| & | et al\.", authors.strip(" ,"))[0]
        start = re.sub(r"\W", "", _plain(first)).lower() + year
        key = next((key for key in entries if key.startswith(start)), None)
        if key is None:
            raise ValueError(f"there is no BibTeX entry for {first} {year}; the source is {source!r}")
        cited[key] = entries[key]
    return cited


def _plain(name: str) -> str:
    """Returns a name in ASCII letters, as in the keys of entries."""
    return unicodedata.normalize("NFKD", name.replace("ı", "i")).encode("ascii", "ignore").decode()


# The packages of each extra.
_EXTRAS = {"mcmc": ("arviz", "blackjax"), "torch": ("torch",), "safetensors": ("safetensors",)}
_ADAPTED = ("flax", "equinox")


def findings() -> dict[str, Any]:
    """Returns versions, devices, memory and the cache of compiled programs, by topic."""
    import jax
    import jax.numpy as jnp

    from lamu.memory import budget, free, limit

    keep_compiled()
    folder = getattr(jax.config, "jax_compilation_cache_dir", None)
    optional = (*(name for names in _EXTRAS.values() for name in names), *_ADAPTED)
    return {
        "versions": package_versions(),
        "extras": {name: version(name) for name in optional},
        "devices": [f"{device.device_kind} ({device.platform} {device.id})" for device in jax.devices()],
        "precision": "float64" if jnp.result_type(float) == jnp.float64 else "float32",
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": {"free": free(), "limit": limit(), "prediction": budget()},
        "cache": {"folder": folder, "lamu's": compiled_folder() is not None, "bytes": _size(folder)},
    }


def doctor(as_json: bool) -> None:
    """Prints versions, devices, memory and the cache of compiled programs."""
    about = findings()
    if as_json:
        show_document(about)
        return
    from lamu.memory import shown

    absent = lambda number: "not installed" if number == "unknown" else number
    show_table("versions", ("package", "version"), about["versions"].items())
    owner = {name: f"pip install 'lamu[{extra}]'" for extra, names in _EXTRAS.items() for name in names}
    rows = [(name, absent(number), owner.get(name, f"pip install {name}")) for name, number in about["extras"].items()]
    show_table("extras", ("package", "version", "install with"), rows)
    memory, cache = about["memory"], about["cache"]
    show_line(f"devices: {', '.join(about['devices'])}; {about['processors']} processors; {about['precision']}")
    show_line(
        f"memory: {shown(memory['free'])} free, of which a command takes {shown(memory['limit'])} and a prediction "
        f"{shown(memory['prediction'])} at once (--max-memory)"
    )
    if cache["folder"] is None:
        show_line(f"compiled programs are not kept; set {CACHE} to a folder that can be written")
    else:
        show_line(f"compiled programs are kept in {cache['folder']} ({shown(cache['bytes'])}; {CACHE}=off keeps none)")


def _size(folder: str | None) -> int:
    """Returns the total bytes of the files of a folder; 0 if it does not exist."""
    if folder is None or not Path(folder).is_dir():
        return 0
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())


def _described(name: str, recipe: Recipe) -> dict[str, Any]:
    """Returns the choices of an algorithm inside the rule, with its source."""
    choices = recipe.choices
    chosen = {choice: getattr(choices, choice) for choice in ("family", "expectation", "curvature", "departures")}
    return {"algorithm": name, **chosen, "axes": recipe.axes, "source": recipe.source}


def list_algorithms(as_json: bool = False) -> None:
    """Prints each algorithm with its belief, its expectation, and the mesh axes that it supports."""
    described = [_described(name, recipe) for name, recipe in recipes().items()]
    if as_json:
        show_document(described)
        return
    heads = ("algorithm", "family", "expectation", "axes")
    shown = [{**row, "axes": ", ".join(row["axes"])} for row in described]
    show_table("algorithms", heads, [[row[head] for head in heads] for row in shown])
    show_line("lamu algorithms NAME shows all choices of one, its source, and its options")


def show_algorithm(name: str, as_json: bool = False) -> None:
    """Prints one algorithm: its summary, its choices inside the rule, its source, and its options."""
    recipe = find(name)
    described = _described(name, recipe)
    options = {
        option: None if parameter.default is parameter.empty else repr(parameter.default)
        for option, parameter in settings_of(recipe).items()
    }
    summary = (inspect.getdoc(recipe.factory) or "").split("\n\n")[0].replace("\n", " ")
    if as_json:
        show_document({**described, "summary": summary, "options": options})
        return
    described["departures"] = ", ".join(described["departures"]) or "none"
    described["axes"] = ", ".join(described["axes"])
    rows = [pair for pair in described.items() if pair[0] != "algorithm"]
    rows += [(f"--set {option}=", "required" if default is None else default) for option, default in options.items()]
    show_line(summary)
    show_table(name, ("choice", "value"), rows)


def verify(name: str | None = None, as_json: bool = False, quick: bool = False) -> bool:
    """Checks algorithms against independent references, and prints the error of each."""
    try:
        from lamu_verification import verify
    except ModuleNotFoundError as error:
        if error.name != "lamu_verification":
            raise
        raise ImportError(
            'the references of `lamu verify` are not installed; run pip install "lamu[verify]"'
        ) from error
    return verify(name, as_json, quick)
