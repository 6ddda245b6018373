"""`lamu algorithms` and `lamu verify`: what there is, and whether it does what it should."""

from __future__ import annotations

import inspect
import math
import os
import re
import sys
import unicodedata
from importlib.resources import files
from pathlib import Path
from typing import Any

from lamu.cli.compiled_programs import CACHE, compiled_folder
from lamu.cli.printing import show_document, show_line, show_table
from lamu.cli.recipes import find, recipes, settings_of
from lamu.cli.versions import package_versions, version
from lamu.data.wording import nearest

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


LIKELIHOODS, LATENT = "likelihoods", "latent"  # each the name of all checks of a table together

_NOT_RUN = "not run"
_OF_EXTRAS = ("arviz", "blackjax")
_CHOICES = ("algorithm", "family", "expectation", "curvature", "departures", "source")
_CHECKS = ("algorithm", "reference", "deviation", "tolerance", "result")
_SHIPPED = (
    "algorithm",
    "data",
    "compared with",
    "mean error, sd",
    "sd ratio",
    "sd / posterior's",
    "nats",
    "seconds",
    "expected",
    "result",
)


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
    # Four tables: each likelihood beside SciPy; bounds, flows, locals and coders of latent variables beside closed
    # forms; step by step, each algorithm beside its classic; and as shipped, each belief of a default fit on bundled
    # data beside the posterior. The first three take seconds a row to compile and no training; the last trains.
    from lamu.verification import checks, latent_checks, likelihood_checks, shipped_rows

    known, likelihoods, latents, defaults = checks(), likelihood_checks(), latent_checks(), shipped_rows()
    everything = {LIKELIHOODS: None, LATENT: None, **likelihoods, **latents, **known, **defaults}
    if name is not None and name not in everything:
        raise ValueError(f"there is no check {name!r}; {nearest(name, everything)}")
    densities = [_run(each, check) for each, check in likelihoods.items() if name in (None, LIKELIHOODS, each)]
    if densities and not as_json:
        heads = ("likelihood", *_CHECKS[1:])
        show_table("likelihoods", heads, [[row[head] for head in _CHECKS] for row in densities])
    hidden = [_run(each, check) for each, check in latents.items() if name in (None, LATENT, each)]
    if hidden and not as_json:
        heads = ("part", *_CHECKS[1:])
        show_table("latent variables", heads, [[row[head] for head in _CHECKS] for row in hidden])
    steps = [_run(each, check) for each, check in known.items() if name in (None, each)]
    if steps and not as_json:
        show_table("step by step", _CHECKS, [[row[head] for head in _CHECKS] for row in steps])
    fits = [_ship(each, row) for each, row in defaults.items() if name in (None, each)]
    if fits and not as_json:
        show_table("as shipped: no arguments, no length, bundled data", _SHIPPED, [_cells(row) for row in fits])
    failed = [row["algorithm"] for row in (*densities, *hidden, *steps) if row["result"] not in ("pass", _NOT_RUN)]
    missed = [row["algorithm"] for row in fits if row["result"] not in ("reached", _NOT_RUN)]
    not_run = [row["algorithm"] for row in (*densities, *hidden, *steps, *fits) if row["result"] == _NOT_RUN]
    passed = not failed and not missed
    if as_json:
        show_document({"passed": passed, "likelihoods": densities, "latent": hidden, "checks": steps, "shipped": fits})
        return passed
    if failed or _ran([*densities, *hidden, *steps]):
        tables = {"likelihoods": _ran(densities), "latent variables": _ran(hidden), "step by step": _ran(steps)}
        told = [f"{title}: all {len(rows)} passed" for title, rows in tables.items() if rows]
        show_line(f"failed: {', '.join(failed)}" if failed else "; ".join(told))
    if _ran(fits):
        words = (
            f"as shipped: {len(_ran(fits)) - len(missed)} of {len(_ran(fits))} reached what is expected of their kind"
        )
        show_line(f"{words}; missed: {', '.join(missed)}" if missed else words)
    if not_run:
        show_line(f"not run, for want of an extra: {', '.join(dict.fromkeys(not_run))}")
    return passed


def _run(name: str, check: Any) -> dict[str, Any]:
    if sys.stderr.isatty():
        print(f"checking {name}", file=sys.stderr)
    try:
        found = check()
    except Exception as error:  # a check that breaks is a check that fails; the others still run
        reason, result = _broken(error, "fail")
        return dict(zip(_CHECKS, (name, reason, float("nan"), float("nan"), result), strict=True))
    deviation, tolerance = float(found.deviation), float(found.tolerance)
    result = "pass" if deviation <= tolerance else "fail"  # NaN fails
    return dict(zip(_CHECKS, (found.algorithm, found.reference, deviation, tolerance, result), strict=True))


def _broken(error: Exception, failure: str) -> tuple[str, str]:
    """Returns why a row stopped, and its result: a missing extra is no failure of what was to be checked."""
    if isinstance(error, ImportError) and error.name is None:  # the library's own: it names the extra
        return str(error), _NOT_RUN
    if isinstance(error, ImportError) and str(error.name).split(".")[0] in _OF_EXTRAS:  # the reference's
        return f'{error.name} is not installed; run pip install "lamu[mcmc]"', _NOT_RUN
    return " ".join(f"error: {type(error).__name__}: {error}".split())[:120], failure


def _ran(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["result"] != _NOT_RUN]


def _ship(name: str, row: Any) -> dict[str, Any]:
    if sys.stderr.isatty():
        print(f"fitting {name}", file=sys.stderr)
    try:
        found = row()
    except Exception as error:  # a default fit that breaks has missed; the others still run
        reason, result = _broken(error, "missed: error")
        return {"algorithm": name, "problem": "", "reference": reason, "result": result}
    limits = found.limits
    return {
        "algorithm": found.algorithm,
        "problem": found.problem,
        "reference": found.reference,
        "mean_error": float(found.mean_error),
        "sd_ratio": float(found.sd_ratio),
        "exact_ratio": float(found.exact_ratio),
        "nats": float(found.nats),
        "seconds": float(found.seconds),
        "limits": {"mean": limits.mean, "sd": limits.sd, "nats": limits.nats},
        "result": "reached" if found.reached else f"missed: {', '.join(found.misses)}",
    }


def _cells(row: dict[str, Any]) -> list[Any]:
    if "limits" not in row:
        return [row["algorithm"], row["problem"], row["reference"], *["-"] * 6, row["result"]]
    limits = [
        f"{name} {sign}{row['limits'][key]:g}"
        for name, key, sign in (("mean", "mean", ""), ("sd", "sd", "± "), ("nats", "nats", "± "))
        if math.isfinite(row["limits"][key])
    ]
    figures = [row[key] for key in ("mean_error", "sd_ratio", "exact_ratio", "nats", "seconds")]
    shown = ["-" if math.isnan(value) else value for value in figures]
    return [row["algorithm"], row["problem"], row["reference"], *shown, ", ".join(limits), row["result"]]
