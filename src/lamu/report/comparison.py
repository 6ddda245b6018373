"""The report of `lamu compare`: the same scores as its table, with the differences as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lamu.plots import forest
from lamu.report.page import Markup, Section, element, page, paragraph, picture, table
from lamu.scores import Estimate
from lamu.scores.calibration import in_words

__all__ = ["comparison_report"]

_SURE = 2.0  # standard errors


def comparison_report(
    about: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    first: str,
    meaning: Mapping[str, str],
    legend: Sequence[str],
    versions: Mapping[str, str],
) -> str:
    """Returns the report of a comparison as the text of an HTML file."""
    ended = [row for row in rows if "failure" not in row]
    failed = [f"{row['algorithm']}: {row['failure']}" for row in rows if "failure" in row]
    sections = [
        Section("compared", "What was compared", _compared(about)),
        Section("scores", "Scores", _scored(about, ended, first, meaning)),
        Section("differences", f"Differences to {first}", _differences(ended, first)),
        Section("cost", "What it cost", _cost(ended, legend)),
    ]
    if failed:
        sections.append(Section("failed", "What failed", [element("ul", *(element("li", each) for each in failed))]))
    footer = ", ".join(f"{name} {number}" for name, number in versions.items())
    title = f"Algorithms on {about['target']} of {about['data']}"
    return page(title, _summary(ended, first), sections, f"Made by {footer}.")


def _summary(ended: Sequence[Mapping[str, Any]], first: str) -> Markup:
    differences = {name: each for name, each in _found(ended).items() if name != first}
    better = [name for name, each in differences.items() if each.value < -_SURE * each.error]
    worse = [name for name, each in differences.items() if each.value > _SURE * each.error]
    open_ = [name for name in differences if name not in better and name not in worse]
    parts = [
        f"{'Better' if names is better else 'Worse'} than {first} by more than two standard errors of the nll: "
        f"{', '.join(names)}. "
        for names in (better, worse)
        if names
    ]
    if open_:
        parts.append(f"These rows do not tell from {first}: {', '.join(open_)}.")
    return paragraph(*(parts or ["Nothing to compare with came to an end."]))


def _compared(about: Mapping[str, Any]) -> list[Any]:
    rows = about["rows"]
    facts = {
        "Data": f"{about['data']}: {rows['train']:,} rows to learn from, {rows['test']:,} to score",
        "Target": f"{about['target']}, {about['task']}",
        "Splits": about["splits"],
        "Seed": about["seed"],
        "Likelihood": about["likelihood"] or "the task's own",
        "Budget": ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in about["budget"].items()),
    }
    pairs = [part for name, value in facts.items() for part in (element("dt", name), element("dd", value))]
    notes = [element("li", note) for note in about["notes"]]
    return [element("dl", *pairs), *([element("h3", "Notes"), element("ul", *notes)] if notes else [])]


def _scored(
    about: Mapping[str, Any], ended: Sequence[Mapping[str, Any]], first: str, meaning: Mapping[str, str]
) -> list[Any]:
    if not ended:
        return [paragraph("No algorithm came to an end.")]
    names = list(ended[0]["scores"])
    cells = [
        (
            row["algorithm"],
            *(in_words(name, _estimate(row["scores"][name], row["standard_errors"][name])) for name in names),
        )
        for row in ended
    ]
    over = "test rows" if about["splits"] == 1 else "splits"
    return [
        table(f"Scores ± one standard error over {over}", ("algorithm", *names), cells),
        element("ul", *(element("li", f"{name}: {meaning[name]}") for name in names)),
        paragraph(
            "Gradient boosting, the linear model and the constant are scikit-learn's with their default settings, on "
            "the same rows.",
            class_="aside",
        ),
    ]


def _differences(ended: Sequence[Mapping[str, Any]], first: str) -> list[Any]:
    found = {name: each for name, each in _found(ended).items() if name != first}
    if not found:
        return [paragraph("There is nothing to compare with.")]
    figure = forest(found, f"nll − {first}'s", "nats a row; left of the line is better").figure
    words = "; ".join(f"{name} {each}" for name, each in found.items())
    return [picture("forest", figure, f"differences of the nll to {first}: {words}")]


def _cost(ended: Sequence[Mapping[str, Any]], legend: Sequence[str]) -> list[Any]:
    cells = [
        (
            row["algorithm"],
            "-" if row["evidence"] is None else f"{row['evidence']:,.1f}",
            "-" if row["steps"] is None else f"{row['steps']:,}",
            "-" if math.isnan(row["seconds"]) else f"{row['seconds']:.1f}",
            "-" if row["memory"] is None else f"{row['memory'] / 2**20:.0f}",
        )
        for row in ended
    ]
    heads = ("algorithm", "evidence", "steps", "seconds", "MiB")
    return [table("Evidence, and what it cost", heads, cells), element("ul", *(element("li", each) for each in legend))]


def _found(ended: Sequence[Mapping[str, Any]]) -> dict[str, Estimate]:
    """Returns the paired differences of the nll, by algorithm."""
    found = {row["algorithm"]: row["nll_difference"] for row in ended}
    return {name: _estimate(each["value"], each["standard_error"]) for name, each in found.items() if each is not None}


def _estimate(value: float, error: float | None) -> Estimate:
    return Estimate(value, math.nan if error is None else error)
