"""`lamu algorithms` and `lamu verify`: what there is, and whether it does what it should."""

from __future__ import annotations

import math
import sys
from typing import Any

from lamu.cli.printing import show_document, show_line, show_table
from lamu.cli.recipes import recipes
from lamu.data.spelling import nearest

__all__ = ["list_algorithms", "verify"]

LIKELIHOODS = "likelihoods"  # the name of all their checks together

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
    """Prints each algorithm as the choices that it makes inside the rule.

    Args:
        as_json: whether to print one JSON document in place of a table.
    """
    rows = []
    for name, recipe in recipes().items():
        choices = recipe.choices
        rows.append((name, choices.family, choices.expectation, choices.curvature, choices.departures, recipe.source))
    if as_json:
        show_document([dict(zip(_CHOICES, row, strict=True)) for row in rows])
        return
    show_table("algorithms", _CHOICES, [(*row[:4], ", ".join(row[4]) or "none", row[5]) for row in rows])


def verify(name: str | None = None, as_json: bool = False) -> bool:
    """Runs the checks of algorithms against independent references, and prints how far each is off.

    Three tables: each likelihood beside SciPy; step by step, each algorithm beside its classic; and as shipped, each
    belief of a default fit on bundled data beside the posterior. The first two take seconds a row to compile and no
    training; the third trains.

    Args:
        name: the row to run, of all tables, or "likelihoods" for the first table; None for all.
        as_json: whether to print one JSON document in place of the tables.

    Returns:
        Whether every check passed and every default fit reached what is expected of its kind. A row that stops with an
        error has failed.

    Raises:
        ValueError: for an unknown name; the message has the nearest one.
    """
    from lamu.verification import checks, likelihood_checks, shipped_rows

    known, likelihoods, defaults = checks(), likelihood_checks(), shipped_rows()
    everything = {LIKELIHOODS: None, **likelihoods, **known, **defaults}
    if name is not None and name not in everything:
        raise ValueError(f"there is no check {name!r}; {nearest(name, everything)}")
    densities = [_run(each, check) for each, check in likelihoods.items() if name in (None, LIKELIHOODS, each)]
    if densities and not as_json:
        heads = ("likelihood", *_CHECKS[1:])
        show_table("likelihoods", heads, [[row[head] for head in _CHECKS] for row in densities])
    steps = [_run(each, check) for each, check in known.items() if name in (None, each)]
    if steps and not as_json:
        show_table("step by step", _CHECKS, [[row[head] for head in _CHECKS] for row in steps])
    fits = [_ship(each, row) for each, row in defaults.items() if name in (None, each)]
    if fits and not as_json:
        show_table("as shipped: no arguments, no length, bundled data", _SHIPPED, [_cells(row) for row in fits])
    failed = [row["algorithm"] for row in (*densities, *steps) if row["result"] != "pass"]
    missed = [row["algorithm"] for row in fits if row["result"] != "reached"]
    passed = not failed and not missed
    if as_json:
        show_document({"passed": passed, "likelihoods": densities, "checks": steps, "shipped": fits})
        return passed
    if densities or steps:
        told = [f"likelihoods: all {len(densities)} passed"] * bool(densities)
        told += [f"step by step: all {len(steps)} passed"] * bool(steps)
        show_line(f"failed: {', '.join(failed)}" if failed else "; ".join(told))
    if fits:
        words = f"as shipped: {len(fits) - len(missed)} of {len(fits)} reached what is expected of their kind"
        show_line(f"{words}; missed: {', '.join(missed)}" if missed else words)
    return passed


def _run(name: str, check: Any) -> dict[str, Any]:
    if sys.stderr.isatty():
        print(f"checking {name}", file=sys.stderr)
    try:
        found = check()
    except Exception as error:  # a check that breaks is a check that fails; the others still run
        reason = " ".join(f"error: {type(error).__name__}: {error}".split())
        return dict(zip(_CHECKS, (name, reason[:120], float("nan"), float("nan"), "fail"), strict=True))
    deviation, tolerance = float(found.deviation), float(found.tolerance)
    result = "pass" if deviation <= tolerance else "fail"  # NaN fails
    return dict(zip(_CHECKS, (found.algorithm, found.reference, deviation, tolerance, result), strict=True))


def _ship(name: str, row: Any) -> dict[str, Any]:
    if sys.stderr.isatty():
        print(f"fitting {name}", file=sys.stderr)
    try:
        found = row()
    except Exception as error:  # a default fit that breaks has missed; the others still run
        reason = " ".join(f"error: {type(error).__name__}: {error}".split())
        return {"algorithm": name, "problem": "", "reference": reason[:120], "result": "missed: error"}
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
