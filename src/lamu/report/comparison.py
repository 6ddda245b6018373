"""The report of `lamu compare`: the scores of its table, and a picture of the differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from lamu.plots import forest
from lamu.report.page import Markup, Section, element, page, paragraph, picture, table
from lamu.scores import Estimate
from lamu.typing import Document

__all__ = ["comparison_report"]

_SURE = 2.0  # standard errors


def comparison_report(
    about: Document,
    rows: Sequence[Document],
    first: str,
    tables: tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]],
    meaning: Mapping[str, str],
    legend: Sequence[str],
    versions: Mapping[str, str],
) -> str:
    """Returns the report of a comparison as the text of an HTML file."""
    # `tables`: scores and costs of the algorithms that finished, as heads and rows.
    ended = [row for row in rows if "failure" not in row]
    failed = [f"{row['algorithm']}: {row['failure']}" for row in rows if "failure" in row]
    sections = [
        Section("compared", "What was compared", _compared(about)),
        Section("scores", "Scores", _scored(about, tables[0], meaning)),
        Section("differences", f"Differences to {first}", _differences(ended, first)),
        Section("cost", "What it cost", _cost(tables[1], legend)),
    ]
    if failed:
        sections.append(
            Section("failed", "What failed", [element("ul", *(element("li", failure) for failure in failed))])
        )
    footer = ", ".join(f"{name} {number}" for name, number in versions.items())
    title = f"Algorithms on {about['target']} of {about['data']}"
    return page(title, _summary(ended, first), sections, f"Made by {footer}.")


def _summary(ended: Sequence[Document], first: str) -> Markup:
    differences = {name: difference for name, difference in _found(ended).items() if name != first}
    better = [name for name, difference in differences.items() if difference.value < -_SURE * difference.error]
    worse = [name for name, difference in differences.items() if difference.value > _SURE * difference.error]
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


def _compared(about: Document) -> list[Markup]:
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


def _scored(about: Document, shown: Sequence[Sequence[str]], meaning: Mapping[str, str]) -> list[Markup]:
    if not shown:
        return [paragraph("No algorithm came to an end.")]
    heads, *cells = shown
    over = "test rows" if about["splits"] == 1 else "splits"
    return [
        table(f"Scores ± one standard error over {over}", heads, cells),
        element("ul", *(element("li", f"{name}: {meaning[name]}") for name in heads if name in meaning)),
        paragraph(
            "Gradient boosting, the linear model and the constant are scikit-learn's with their default settings, on "
            "the same rows.",
            class_="aside",
        ),
    ]


def _differences(ended: Sequence[Document], first: str) -> list[Markup]:
    differences = {name: difference for name, difference in _found(ended).items() if name != first}
    if not differences:
        return [paragraph("There is nothing to compare with.")]
    figure = forest(differences, f"nll − {first}'s", "nats a row; left of the line is better").figure
    words = "; ".join(f"{name} {difference}" for name, difference in differences.items())
    return [picture("forest", figure, f"differences of the nll to {first}: {words}")]


def _cost(shown: Sequence[Sequence[str]], legend: Sequence[str]) -> list[Markup]:
    costs = [table("Evidence, and what it cost", shown[0], shown[1:])] if shown else []
    return [*costs, element("ul", *(element("li", line) for line in legend))]


def _found(ended: Sequence[Document]) -> dict[str, Estimate]:
    """Returns the paired differences of the nll, by algorithm."""
    differences = {row["algorithm"]: row["nll_difference"] for row in ended}
    return {
        name: _estimate(difference["value"], difference["standard_error"])
        for name, difference in differences.items()
        if difference is not None
    }


def _estimate(value: float, error: float | None) -> Estimate:
    return Estimate(value, math.nan if error is None else error)
