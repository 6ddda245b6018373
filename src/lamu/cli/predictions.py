"""A prediction as the columns of a file, and as scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lamu import scores
from lamu.data import Arrays, Encoding
from lamu.data.table import Table
from lamu.predictives import InputMixture
from lamu.scores import Estimate
from lamu.scores.calibration import FEWEST_ROWS, calibrated_gap, verdict
from lamu.scores.sampling import estimate, rows_of
from lamu.supports import value_of

__all__ = ["LEVEL", "MEANING", "columns", "estimates", "inputs", "known_rows", "meanings", "predicted", "score_rows"]

LEVEL = 0.9  # the probability of the intervals that are written

# The scores that a support names as its own, and their options.
_ALL: dict[str, Any] = {
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


def columns(pred: Any, rows: Any, y: Any, encoding: Encoding) -> dict[str, np.ndarray]:
    """Returns a prediction as named columns, in the original units and labels."""
    table: dict[str, np.ndarray] = {"row": np.asarray(rows)}
    if y is not None:
        table["target"] = encoding.decode(value_of(y))
        table |= {name: np.asarray(column) for name, column in _brought(y).items()}
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


def score_rows(pred: Any, y: Any, encoding: Encoding) -> dict[str, np.ndarray]:
    """Returns what the scores that suit the task are made of, row by row, in the original units."""
    # Other scores compare with the target, of which censored rows know a bound.
    suitable = ("nll",) if "censored" in _brought(y) else pred.support.scores
    rows = {name: rows_of(_ALL[name][0], pred, y, **_ALL[name][1]) for name in suitable}
    _, unit = encoding.origin_and_unit(encoding.target)
    if unit != 1.0:  # coverage has none
        rows["nll"] = np.asarray(rows["nll"], float) + np.log(unit)
        if "rmse" in rows:
            rows["rmse"] = unit**2 * np.asarray(rows["rmse"], float)
    return rows


def inputs(x: Any, beside: Any) -> Any:
    """Returns the rows to predict as `posterior.predict` takes them, their trials with them."""
    trials = beside.get("trials") if isinstance(beside, Mapping) else None
    return x if trials is None else {"x": x, "trials": trials}


def predicted(posterior: Any, table: Table, rows: Any, **options: Any) -> Any:
    """Returns the prediction of some rows of a table, averaged over draws of what they lack."""
    beside = {name: np.asarray(column)[rows] for name, column in table.beside.items()}

    def predict(x: Any, row: Any) -> Any:
        x = Arrays.of((x, np.zeros(len(x)))).x
        return posterior.predict(inputs(x, {name: column[row] for name, column in beside.items()}), **options)

    return InputMixture.of(predict, table.completions(rows))


def known_rows(y: Any) -> np.ndarray:
    """Returns the numbers of the rows whose target is known, which are those that are not censored."""
    rows = np.arange(len(value_of(y)))
    return rows[np.asarray(_brought(y).get("censored", np.zeros(len(rows)))) == 0]


def _brought(y: Any) -> dict[str, Any]:
    return {name: part for name, part in y.items() if name != "value"} if isinstance(y, Mapping) else {}


def estimates(rows: Mapping[str, np.ndarray]) -> dict[str, Estimate]:
    """Returns the scores with their standard errors."""
    # `rmse`, `nll` and `coverage` of the 90 % interval for regression; `accuracy`, `nll` and `ece` otherwise, which
    found = {name: estimate(_ALL[name][0], values, **_ALL[name][1]) for name, values in rows.items()}
    if "ece" in found and len(rows["ece"]) < FEWEST_ROWS:
        found["ece"] = Estimate(math.nan, math.nan)
    return found


def meanings(rows: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Returns how each score is read, of the calibration error beside what right probabilities would have."""
    found = {name: MEANING[name] for name in rows}
    if "ece" in rows:
        count = len(rows["ece"])
        if count < FEWEST_ROWS:
            found["ece"] = f"calibration error; {count} rows are too few to judge it"
        else:
            right = calibrated_gap(rows["ece"][:, 0])
            found["ece"] = f"{MEANING['ece']}; {verdict(estimates({'ece': rows['ece']})['ece'], right, count)}"
    return found
