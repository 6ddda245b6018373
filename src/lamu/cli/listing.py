"""`lamu algorithms` and `lamu verify`: what there is, and whether it does what it should."""

from __future__ import annotations

import sys
from typing import Any

from lamu.cli.printing import show_document, show_line, show_table
from lamu.cli.recipes import recipes
from lamu.data.spelling import nearest

__all__ = ["list_algorithms", "verify"]

_CHOICES = ("algorithm", "family", "expectation", "curvature", "departures", "source")
_CHECKS = ("algorithm", "reference", "deviation", "tolerance", "result")


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

    Args:
        name: the check to run; None for all.
        as_json: whether to print one JSON document in place of a table.

    Returns:
        Whether every check passed. One that stops with an error has failed.

    Raises:
        ValueError: for an unknown name; the message has the nearest one.
    """
    from lamu.verification import checks

    known = checks()
    if name is not None and name not in known:
        raise ValueError(f"there is no check {name!r}; {nearest(name, known)}")
    rows = [_run(each, known[each]) for each in ([name] if name is not None else known)]
    passed = all(row["result"] == "pass" for row in rows)
    if as_json:
        show_document({"passed": passed, "checks": rows})
        return passed
    show_table("verification", _CHECKS, [[row[head] for head in _CHECKS] for row in rows])
    failed = [row["algorithm"] for row in rows if row["result"] != "pass"]
    show_line(f"failed: {', '.join(failed)}" if failed else f"all {len(rows)} passed")
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
