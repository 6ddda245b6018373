"""`lamu verify`: runs the checks and the default fits, and prints the error of each."""

from __future__ import annotations

import math
import sys
from typing import Any

from lamu.cli.printing import show_document, show_line, show_table
from lamu.data.wording import nearest
from lamu_verification.checks import checks, latent_checks, likelihood_checks
from lamu_verification.shipped_rows import shipped_rows

__all__ = ["verify"]

LIKELIHOODS, LATENT = "likelihoods", "latent"  # each selects all checks of its table

# A row of each kind, which together take a minute on one core: a test of an installation.
QUICK = (
    "Gaussian",
    "Categorical",
    "Poisson",
    "ELBO",
    "sgd",
    "adam",
    "von",
    "ivon",
    "laplace",
    "conjugate",
    "vmp",
    "hmc",
)

_NOT_RUN = "not run"
_OF_EXTRAS = ("arviz", "blackjax")
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


def verify(name: str | None = None, as_json: bool = False, quick: bool = False) -> bool:
    """Checks algorithms against independent references, and prints the error of each."""
    # Four tables: each likelihood against SciPy; bounds, flows, locals and coders of latent variables against closed
    # forms; each algorithm step by step against its classic; and as shipped, each belief of a default fit on bundled
    # data against the posterior. The first three compile for seconds per row and train nothing; the last trains.
    step_checks, likelihoods, latents, defaults = checks(), likelihood_checks(), latent_checks(), shipped_rows()
    if quick:
        if name is not None:
            raise ValueError(f"--quick runs rows of its own, and {name!r} is one; leave one of the two out")
        step_checks, likelihoods, latents = (
            {row: check for row, check in table.items() if row in QUICK}
            for table in (step_checks, likelihoods, latents)
        )
        defaults = {}
    everything = {LIKELIHOODS: None, LATENT: None, **likelihoods, **latents, **step_checks, **defaults}
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
    steps = [_run(each, check) for each, check in step_checks.items() if name in (None, each)]
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
        summaries = [f"{title}: all {len(rows)} passed" for title, rows in tables.items() if rows]
        show_line(f"failed: {', '.join(failed)}" if failed else "; ".join(summaries))
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
        outcome = check()
    except Exception as error:  # an exception counts as a failure; the others still run
        reason, result = _broken(error, "fail")
        return dict(zip(_CHECKS, (name, reason, float("nan"), float("nan"), result), strict=True))
    deviation, tolerance = float(outcome.deviation), float(outcome.tolerance)
    result = "pass" if deviation <= tolerance else "fail"  # NaN fails
    return dict(zip(_CHECKS, (outcome.algorithm, outcome.reference, deviation, tolerance, result), strict=True))


def _broken(error: Exception, failure: str) -> tuple[str, str]:
    """Returns the reason why a row stopped, and its result: a missing extra is no failure of the check."""
    if isinstance(error, ImportError) and error.name is None:  # the library's own error: it names the extra
        return str(error), _NOT_RUN
    if isinstance(error, ImportError) and str(error.name).split(".")[0] in _OF_EXTRAS:  # raised by the reference
        return f'{error.name} is not installed; run pip install "lamu[mcmc]"', _NOT_RUN
    return " ".join(f"error: {type(error).__name__}: {error}".split())[:120], failure


def _ran(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["result"] != _NOT_RUN]


def _ship(name: str, row: Any) -> dict[str, Any]:
    if sys.stderr.isatty():
        print(f"fitting {name}", file=sys.stderr)
    try:
        outcome = row()
    except Exception as error:  # an exception counts as a miss; the others still run
        reason, result = _broken(error, "missed: error")
        return {"algorithm": name, "problem": "", "reference": reason, "result": result}
    limits = outcome.limits
    return {
        "algorithm": outcome.algorithm,
        "problem": outcome.problem,
        "reference": outcome.reference,
        "mean_error": float(outcome.mean_error),
        "sd_ratio": float(outcome.sd_ratio),
        "exact_ratio": float(outcome.exact_ratio),
        "nats": float(outcome.nats),
        "seconds": float(outcome.seconds),
        "limits": {"mean": limits.mean, "sd": limits.sd, "nats": limits.nats},
        "result": "reached" if outcome.reached else f"missed: {', '.join(outcome.misses)}",
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
