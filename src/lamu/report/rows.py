"""The report and the plot of a model of rows without a target, and the report of a comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lamu.plots import forest, latent_map, training_curve
from lamu.plots.style import ACCENT, GREY, INK, LEGEND, canvas, finished, literal, shortened
from lamu.report.page import Markup, Section, element, page, paragraph, picture, table
from lamu.scores import Estimate
from lamu.typing import Document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FittedRows", "average", "comparison_report", "kinds_told", "latents_figure", "rows_report"]


_ODD, _MOST_COLUMNS, _MOST_LINES = 10, 30, 3
_SURE = 2.0  # standard errors


@dataclass(frozen=True)
class FittedRows:
    """A model of rows, and its section of the report."""

    model: str  # the value of --model
    words: str  # a description
    size: str  # the number of its parts, with their name
    columns: tuple[str, ...]  # the names of the columns
    # The name of the parts, the label of each, and their effects on the standardised columns, `[parts, columns]`.
    summary: tuple[str, Sequence[str], np.ndarray]
    values: np.ndarray  # the table, `[rows, columns]`
    scaled: np.ndarray  # the same, standardised
    latents: Mapping[str, np.ndarray]  # of each row, by name
    log_prob: np.ndarray  # of each row
    test: np.ndarray  # the numbers of the rows held out
    references: Mapping[str, np.ndarray]  # log densities of the held-out rows by reference
    tried: Mapping[int, Mapping[str, float]]  # the evidence bound and the held-out density for each size
    tried_of: str  # the unit of the size
    history: Mapping[str, np.ndarray]  # the history of the run
    convergence: Any  # the distance to a fixed point; None if not measured
    remarks: Sequence[str]  # remarks on the posterior
    notes: Sequence[str]  # decisions in reading the table
    config: Mapping[str, Any]  # given and chosen options, as in config.json
    seconds: float  # the duration of the fit
    out: str  # the folder


def rows_report(run: FittedRows) -> str:
    """Returns the report as the text of an HTML file."""
    sections = [
        Section("fitted", "What was fitted", _fitted(run)),
        Section("density", "How well it describes rows held out", _density(run)),
        Section("latents", "What it found", _latents(run)),
        Section("convergence", "Whether it has converged", _converged(run)),
        Section("rows", "The strangest rows", _odd(run)),
        Section("next", "What to do next", [element("ul", *(element("li", line) for line in _next(run)))]),
    ]
    versions = ", ".join(f"{name} {number}" for name, number in run.config["versions"].items())
    return page(f"{run.words} of {run.config['data']}", paragraph(_verdict(run)), sections, f"Made by {versions}.")


def latents_figure(run: FittedRows) -> Figure:
    """Returns the plot of a model: a plane of latents, components and their means, topics, or states in time."""
    if run.model == "hmm":
        return _states(run)
    if run.model == "lda":
        return _topics(run)
    _, labels, matrix = run.summary
    if run.model == "gmm":
        return _heat(matrix, labels, run.columns, "Means of the components", "in standard deviations").figure
    z = [column for key, column in run.latents.items() if not key.endswith(" std")]
    if len(z) == 1:
        axes = canvas(4.4, 3.0).subplots()
        axes.hist(z[0], bins=40, color=ACCENT)
        axes.set(xlabel="latent", ylabel="rows")
        return finished(axes, "The latent of each row", f"{len(z[0]):,} rows").figure
    deviations = [column for key, column in run.latents.items() if key.endswith(" std")]
    first, second = np.sort(np.argsort([-column.std() for column in z], kind="stable")[:2])  # largest variances
    pair = lambda of: np.stack([of[first], of[second]], axis=1)
    axes = latent_map(pair(z), deviations=pair(deviations))
    axes.set(xlabel=f"z{first + 1}", ylabel=f"z{second + 1}")
    return axes.figure


def _heat(matrix: np.ndarray, rows: Sequence[str], columns: Sequence[str], title: str, aside: str) -> Any:
    shown = np.argsort(-np.abs(matrix).max(axis=0), kind="stable")[:_MOST_COLUMNS] if len(matrix) else []
    shown = np.sort(shown)
    axes = canvas(1.8 + 0.32 * max(len(shown), 4), 1.6 + 0.3 * len(rows)).subplots()
    most = max(float(np.abs(matrix).max()), 1e-9)
    image = axes.imshow(matrix[:, shown], cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    axes.set_xticks(np.arange(len(shown)), [literal(shortened(columns[i], 18)) for i in shown], rotation=60, ha="right")
    axes.set_yticks(np.arange(len(rows)), [literal(row) for row in rows])
    bar = axes.figure.colorbar(image, ax=axes, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, colors=INK)
    return finished(axes, title, aside)


def _states(run: FittedRows) -> Figure:
    shares = np.stack([column for key, column in run.latents.items() if key.startswith("state ")])
    figure = canvas(7.2, 4.0)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for index in range(min(len(run.columns), _MOST_LINES)):
        name = literal(shortened(run.columns[index], 24))
        above.plot(run.scaled[:, index], linewidth=0.9, color=(ACCENT, GREY, INK)[index], label=name)
    above.axvline(run.test[0] - 0.5, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    above.set_ylabel("standardised")
    above.legend(loc="upper left", **LEGEND)
    finished(above, "States over time", "held out behind the dashed line")
    below.imshow(shares, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    below.set_yticks(np.arange(len(shares)), [str(k + 1) for k in range(len(shares))])
    below.set(xlabel="row", ylabel="state")
    finished(below, "Probability of each state")
    return figure


def _topics(run: FittedRows) -> Figure:
    shares = np.stack([run.latents[f"topic {k + 1}"] for k in range(len(run.summary[1]))]).mean(axis=1)
    axes = canvas(7.2, 1.1 + 0.3 * len(shares)).subplots()
    axes.barh(np.arange(len(shares)), shares, color=ACCENT)
    axes.set_yticks(np.arange(len(shares)), [literal(shortened(label, 80)) for label in run.summary[1]])
    axes.invert_yaxis()
    axes.set_xlabel("average share of a document")
    return finished(axes, "Topics and their most probable words", f"{len(run.values):,} documents").figure


def kinds_told(kinds: Sequence[str]) -> str:
    """Returns the number of columns of each kind."""
    words = {"number": "numbers", "positive": "positive numbers", "count": "counts", "bit": "bits"}
    return ", ".join(f"{words.get(kind, 'categories')}: {list(kinds).count(kind)}" for kind in dict.fromkeys(kinds))


def average(values: np.ndarray) -> Estimate:
    """Returns the mean over rows with its standard error, which is omitted for one row."""
    error = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")
    return Estimate(float(np.mean(values)), error)


def _verdict(run: FittedRows) -> str:
    held_out = run.log_prob[run.test]
    sentence = (
        f"{run.words[0].upper()}{run.words[1:]} with {run.size} gives {len(held_out):,} rows that it has not seen "
    )
    sentence += f"a log density of {average(held_out)} nats a row. "
    name = max(run.references, key=lambda name: run.references[name].mean())
    gain = average(held_out - run.references[name])
    if gain.value > _SURE * gain.error:
        return f"{sentence}That is {gain} more than {name}, the better of the references."
    if gain.value < -_SURE * gain.error:
        return f"{sentence}{name[0].upper()}{name[1:]} gives more, by {Estimate(-gain.value, gain.error)}: take that."
    return f"{sentence}These rows do not tell it from {name} (difference {gain})."


def _fitted(run: FittedRows) -> list[Markup]:
    config, kinds = run.config, run.config["kinds"]
    facts = {
        "Data": f"{config['data']}: {len(run.values) - len(run.test):,} rows to learn from, {len(run.test):,} held out",
        "Columns": kinds_told(kinds),
        "Empty cells": f"{int(np.isnan(run.values).sum()):,}, left out of the likelihood",
        "Model": f"{run.words}, {run.size}",
        "Algorithm": config["algorithm"],
        "Seed": config["seed"],
        "Time": f"{run.seconds:.1f} s",
    }
    pairs = [part for name, value in facts.items() for part in (element("dt", name), element("dd", value))]
    notes = [element("li", note) for note in run.notes]
    return [element("dl", *pairs), *([element("h3", "Notes"), element("ul", *notes)] if notes else [])]


def _density(run: FittedRows) -> list[Markup]:
    held_out = run.log_prob[run.test]
    rows: list[tuple[object, ...]] = [(run.words, average(held_out), "-")]
    rows += [(name, average(other), average(held_out - other)) for name, other in run.references.items()]
    parts = [table("Log density of rows held out ± one standard error", ("model", "nats a row", "gain over it"), rows)]
    if len(run.tried) > 1:
        lines = [
            (number, f"{sentence['bound']:.3f}", Estimate(sentence["log_prob"], sentence["standard_error"]))
            for number, sentence in run.tried.items()
        ]
        heads = (run.tried_of, "bound, nats a training row", "log density of a row held out")
        parts.append(table("Sizes that were tried; the greatest bound decides", heads, lines))
    if run.model == "hmm":
        parts.append(paragraph("The last rows are held out; each is given all rows before it.", class_="aside"))
    return parts


def _latents(run: FittedRows) -> list[Markup]:
    parts = [picture("latents", latents_figure(run), "what the model found")]
    name, labels, matrix = run.summary
    if run.model in ("fa", "ppca", "hmm"):
        title = "Loadings" if run.model != "hmm" else "Means of the states"
        drawn = _heat(matrix, labels, run.columns, title, "in standard deviations").figure
        parts.append(picture("parts", drawn, f"{title.lower()} by column"))
    if run.model == "lda":
        parts.append(element("ol", *(element("li", label.partition(": ")[2]) for label in labels)))
    file = f"latents.csv holds the {name}s of every row, with their uncertainty."
    return [*parts, paragraph(file, class_="aside")]


def _converged(run: FittedRows) -> list[Markup]:
    if run.convergence is None:
        sentence = "Distance from the fixed point of the rule was not measured for this kind of posterior."
    elif run.convergence.converged:
        sentence = "The run has converged: the rule would no longer move the belief beyond its limits."
    else:
        sentence = f"The run has not converged: {run.convergence.complaint}."
    parts = [paragraph(sentence), *(paragraph(remark) for remark in run.remarks)]
    if len(run.history["loss"]) > 1:
        parts.append(picture("training", training_curve(run.history).figure, "loss of the steps"))
    return parts


def _odd(run: FittedRows) -> list[Markup]:
    order = np.argsort(run.log_prob, kind="stable")[:_ODD].tolist()
    shown = range(min(len(run.columns), 6))
    levels = run.config["levels"]

    def cell(row: int, column: int) -> str:
        value = run.values[row, column]
        if np.isnan(value):
            return "-"
        return str(levels[column][int(value)]) if levels[column] else f"{value:.5g}"

    heads = ("row", "log density", *(run.columns[column] for column in shown))
    rows = [(row, f"{run.log_prob[row]:.2f}", *(cell(row, column) for column in shown)) for row in order]
    return [
        paragraph("Rows are counted from 0 in the data; rows that were learned from are among them."),
        table("Rows that the model holds least probable", heads, rows),
    ]


def _next(run: FittedRows) -> list[str]:
    lines = [f"lamu predict {run.out} NEW.csv --out latents.csv tells the latents and the log density of new rows."]
    if run.model != "lda":
        lines.append(f"lamu impute {run.out} NEW.csv --out filled.csv fills in empty cells, with intervals.")
    if run.convergence is not None and not run.convergence.converged:
        lines.append("Train longer (--epochs) before the belief is read: it has not converged.")
    gains = [average(run.log_prob[run.test] - other) for other in run.references.values()]
    if any(gain.value < _SURE * gain.error for gain in gains):
        lines.append("A reference is as good on rows held out: take it, or another --model.")
    return lines


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
