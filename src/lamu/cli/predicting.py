"""`lamu predict`: predictions of the rows of another table, with a posterior that `lamu fit` wrote."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lamu import scores
from lamu.cli.output_dir import altered, draft, load_posterior, read_config, refuse_unwritable
from lamu.cli.printing import append_csv, show_document, show_line, show_notes, show_scores, show_table
from lamu.cli.request import Request
from lamu.data import Arrays, Encoding
from lamu.data.inputs import Selection
from lamu.data.splits import Groups
from lamu.data.table import Table, match, with_beside
from lamu.posterior import Posterior
from lamu.predictives import InputMixture, Predictive
from lamu.running.progress import Progress
from lamu.scores import Estimate
from lamu.scores.calibration import FEWEST_ROWS, calibrated_gap, estimate, rows_of, verdict
from lamu.supports import value_of
from lamu.typing import Document, Inputs, Options, Rows, Targets

__all__ = [
    "LEVEL",
    "MEANING",
    "columns",
    "estimates",
    "known_rows",
    "predict",
    "predicted",
    "score_explanations",
    "score_rows",
]


_NOTHING: Mapping[str, np.ndarray] = {}
LEVEL = 0.9  # the probability of the intervals in the output

# The scores that supports name, and their options.
_ALL: dict[str, tuple[Callable[..., float], Options]] = {
    "accuracy": (scores.accuracy, {}),
    "rmse": (scores.rmse, {}),
    "nll": (scores.nll, {}),
    "ece": (scores.ece, {}),
    "coverage": (scores.coverage, {"level": LEVEL}),
}

MEANING = {
    "accuracy": "fraction right; higher is better",
    "rmse": "error in the target's units; lower is better",
    "nll": "nats a row; lower is better",
    "ece": "calibration error; lower is better",
    "coverage": f"of {100 * LEVEL:.0f} % intervals; best near {LEVEL}",
}


def columns(
    pred: Predictive, rows: np.ndarray, y: Targets, encoding: Encoding, beside: Mapping[str, np.ndarray] = _NOTHING
) -> dict[str, np.ndarray]:
    """Returns a prediction as named columns, in the original units and labels."""
    table: dict[str, np.ndarray] = {"row": np.asarray(rows)}
    if y is not None:
        table["target"] = encoding.decode(value_of(y))
        table |= {name: np.asarray(column) for name, column in _target_columns(y).items()}
    table |= {name: column for name, column in beside.items() if name in ("weight", "exposure")}
    if encoding.task == "regression":
        table["mean"] = encoding.decode(pred.mean)
        if pred.support.ordered:
            table |= dict(zip(("lower", "upper"), map(encoding.decode, pred.interval(LEVEL)), strict=True))
    else:
        mean = np.asarray(pred.mean)
        probabilities = np.stack([1 - mean, mean], axis=1) if encoding.task == "binary" else mean
        table["prediction"] = encoding.decode(probabilities.argmax(axis=1))
        table |= {f"p_{label}": probabilities[:, index] for index, label in enumerate(encoding.labels)}
    if y is not None:
        log_prob = np.asarray(pred.log_prob(y))
        table["log_prob"] = log_prob - encoding.log_unit if encoding.units else log_prob
    return table


def score_rows(pred: Predictive, y: Targets, encoding: Encoding) -> dict[str, np.ndarray]:
    """Returns the terms of the scores that suit the task, row by row, in the original units."""
    # Other scores need the target, which is unknown for censored rows.
    suitable = ("nll",) if "censored" in _target_columns(y) else pred.support.scores
    rows = {name: rows_of(_ALL[name][0], pred, y, **_ALL[name][1]) for name in suitable}
    _, unit = encoding.origin_and_unit(encoding.target)
    if unit != 1.0:  # coverage has no unit
        rows["nll"] = np.asarray(rows["nll"], float) + np.log(unit)
        if "rmse" in rows:
            rows["rmse"] = unit**2 * np.asarray(rows["rmse"], float)
    return rows


def predicted(posterior: Any, table: Table, rows: Selection, **options: Any) -> Predictive:
    """Returns the prediction of some rows of a table, averaged over draws of their missing entries."""
    beside = table.beside_of(rows)

    def predict(x: Inputs, row: np.ndarray) -> Predictive:
        return posterior.predict(with_beside(Arrays.of((x, np.zeros(len(x)))).x, beside, row), **options)

    return InputMixture.of(predict, table.completions(rows))


def known_rows(y: Targets) -> np.ndarray:
    """Returns the numbers of the rows whose target is known: those that are not censored."""
    rows = np.arange(len(value_of(y)))
    return rows[np.asarray(_target_columns(y).get("censored", np.zeros(len(rows)))) == 0]


def _target_columns(y: Targets) -> dict[str, Rows]:
    return {name: part for name, part in y.items() if name != "value"} if isinstance(y, Mapping) else {}


def estimates(
    rows: Mapping[str, np.ndarray], weight: np.ndarray | None = None, groups: Groups | None = None
) -> dict[str, Estimate]:
    """Returns the scores with their standard errors, by the weight of each row, and over groups where there are any."""
    # `rmse`, `nll` and `coverage` of the 90 % interval for regression; `accuracy`, `nll` and `ece` otherwise, which
    scores = {name: estimate(_ALL[name][0], values, weight, groups, **_ALL[name][1]) for name, values in rows.items()}
    if "ece" in scores and len(rows["ece"]) < FEWEST_ROWS:
        scores["ece"] = Estimate(math.nan, math.nan)
    return scores


def score_explanations(
    rows: Mapping[str, np.ndarray],
    weight: np.ndarray | None = None,
    groups: Groups | None = None,
    discrete: bool = False,
) -> dict[str, str]:
    """Returns how to read each score; the calibration error together with its value under correct probabilities."""
    readings = {name: MEANING[name] for name in rows}
    if "coverage" in rows and discrete:
        readings["coverage"] = f"of {100 * LEVEL:.0f} % intervals; at least {LEVEL}, as their ends are whole numbers"
    if "ece" in rows:
        count = len(rows["ece"])
        if count < FEWEST_ROWS:
            readings["ece"] = f"calibration error; {count} rows are too few to judge it"
        else:
            confidence, correct = rows["ece"].T
            right = calibrated_gap(confidence, weight=weight, right=correct, groups=groups)
            observed = estimates({"ece": rows["ece"]}, weight, groups)["ece"]
            readings["ece"] = f"{MEANING['ece']}; {verdict(observed, right, count)}"
    return readings


MOST_ROWS = 20  # rows that are printed
BLOCK = 8192  # rows that are predicted together
COMPLETED = 512  # the same for rows with missing entries, each of which is predicted for many draws of them


def predict(
    run: Path, request: Request, out: Path | None = None, as_json: bool = False, trust: Sequence[str] = ()
) -> None:
    """Predicts the rows of a table, prints or writes them, and scores them if the table has the target."""
    # Rows are predicted and written block by block, so that the memory for a long table is that of one block
    # and a few numbers per row for the scores.
    config = read_config(run)
    try:
        encoding = Encoding.of(config)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise altered(run) from error
    posterior = load_posterior(run, config, trust, encoding.task)
    table = match(request.data, encoding, request.separator)
    rows = len(table.x)
    notes = [*table.notes, *_training_rows_note(table, config)]
    checked = Arrays.of((table.x, np.zeros(rows) if table.y is None else table.targets))
    y = None if table.y is None else checked.y
    if out is not None:
        if out.suffix.lower() != ".csv":
            raise ValueError(f"--out {str(out)!r} is not a .csv file, and predictions are CSV; give FILE.csv")
        refuse_unwritable(out)
    parts = _blocks(posterior, table, y, encoding, request.samples or config["samples"])
    kept: list[dict[str, np.ndarray]] = []
    scored: list[dict[str, np.ndarray]] = []
    progress = Progress(rows, False if as_json else None, "predicting", "rows")
    with nullcontext() if out is None else draft(out) as path, progress as bar:
        for predictions, values in parts:
            if path is not None:
                append_csv(path, predictions)
            if as_json or not kept:
                kept.append(
                    predictions if as_json else {name: column[:MOST_ROWS] for name, column in predictions.items()}
                )
            scored.append(values)
            bar.update(int(predictions["row"][-1]) + 1)
    first = {name: np.concatenate([part[name] for part in kept]) for name in kept[0]}
    row_scores = {name: np.concatenate([part[name] for part in scored]) for name in scored[0]}
    weight, groups = (table.beside.get(name) for name in ("weight", "groups"))
    scores = estimates(row_scores, weight, groups)
    if as_json:
        show_document(
            {
                "task": encoding.task,
                "rows": rows,
                "scores": {name: estimate.value for name, estimate in scores.items()} or None,
                "standard_errors": {name: estimate.error for name, estimate in scores.items()} or None,
                "notes": notes,
                "predictions": [dict(zip(first, values, strict=True)) for values in zip(*first.values(), strict=True)],
            }
        )
        return
    show_notes(notes)
    if out is None:
        title = f"{rows} predictions" if rows <= MOST_ROWS else f"the first {MOST_ROWS} of {rows:,} predictions"
        digits = _digits(first)
        show_table(title, list(first), zip(*(_shown(*column, digits) for column in first.items()), strict=True))
        if rows > MOST_ROWS:
            show_line("--out FILE.csv writes all of them, --json prints them")
    if scores:
        discrete = posterior.model.likelihood.support.discrete
        show_scores(f"{rows:,} rows", scores, score_explanations(row_scores, weight, discrete=discrete))
    if out is not None:
        show_line(f"{rows:,} predictions written to {out}")


def _training_rows_note(table: Table, config: Document) -> list[str]:
    """Returns the note that scores are of training rows, if the table is the one that was fitted."""
    if table.y is None or config.get("table") != table.fingerprint() or "rows" not in config:
        return []
    train, test = config["rows"]["train"], config["rows"]["test"]
    return [
        f"this is the table that was fitted: {train} of its {len(table.x)} rows were learned from, so that its scores "
        f"flatter; those of the {test} rows held out are in metrics.json"
    ]


def _blocks(
    posterior: Posterior, table: Table, y: Targets, encoding: Encoding, samples: int
) -> Iterator[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """Yields the predictions of each block of rows as columns, with the terms of their scores."""
    block = BLOCK if table.complete else COMPLETED
    for start in range(0, len(table.x), block):
        rows = slice(start, min(start + block, len(table.x)))
        targets = jax.tree.map(lambda leaf, rows=rows: leaf[rows], y)
        pred = predicted(posterior, table, rows, samples=samples)
        predictions = columns(pred, table.numbers[rows], targets, encoding, table.beside_of(rows))
        yield predictions, {} if targets is None else score_rows(pred, targets, encoding)


def _digits(table: dict[str, np.ndarray]) -> int:
    """Returns the number of digits that resolve a regression's targets within their intervals, at least four."""
    if "lower" not in table:
        return 4
    width, largest = np.median(table["upper"] - table["lower"]), np.max(np.abs(table["mean"]))
    return int(np.clip(3 + np.ceil(np.log10(largest / width)), 4, 17)) if 0 < width < largest else 4


def _shown(name: str, column: np.ndarray, digits: int) -> Sequence[object]:
    """Returns the values of a column for printing: probabilities and their logarithms with the same digits."""
    if name.startswith("p_") or name == "log_prob":
        return [f"{value:.4f}" for value in column]
    return [f"{value:.{digits}g}" for value in column] if column.dtype.kind == "f" else list(column)
