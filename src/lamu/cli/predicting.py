"""`lamu predict`: the rows of another table, with a posterior that `lamu fit` wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lamu.cli.fingerprints import fingerprint, table_fingerprint
from lamu.cli.output_dir import FORMAT, draft, refuse_unwritable
from lamu.cli.outside import add_current_folder
from lamu.cli.predictions import columns, estimates, meanings, predicted, score_rows
from lamu.cli.printing import show_document, show_line, show_notes, show_scores, show_table
from lamu.data import Arrays, Encoding
from lamu.data.table import Table, match
from lamu.posterior import Posterior, load

__all__ = ["predict"]

MOST_ROWS = 20  # that are printed
BLOCK = 8192  # rows that are predicted at once
COMPLETED = 512  # of a table whose rows lack something, each of which is predicted for many draws of it


def predict(
    run: Path,
    data: str,
    out: Path | None = None,
    as_json: bool = False,
    samples: int | None = None,
    separator: str | None = None,
    trust: Sequence[str] = (),
) -> None:
    """Predicts the rows of a table, prints or writes them, and scores them where the target is there."""
    # Rows are predicted and written block by block, so that predictions of a long table need no more memory than those
    # of one block, its scores a few numbers a row.
    if samples is not None and samples < 1:
        raise ValueError(f"--samples is {samples}; give a whole number that is not below 1")
    config = _config(run)
    encoding = _encoding(run, config)
    posterior = _posterior(run, config, encoding, trust)
    table = match(data, encoding, separator)
    rows = len(table.x)
    notes = [*table.notes, *_seen(table, config)]
    checked = Arrays.of((table.x, np.zeros(rows) if table.y is None else table.targets))
    y = None if table.y is None else checked.y
    if out is not None:
        if out.suffix.lower() != ".csv":
            raise ValueError(f"--out {str(out)!r} is no .csv file, and predictions are written as CSV; give FILE.csv")
        refuse_unwritable(out)
    parts = _blocks(posterior, table, y, encoding, samples or config["samples"])
    kept: list[dict[str, np.ndarray]] = []
    scored: list[dict[str, np.ndarray]] = []
    with nullcontext() if out is None else draft(out) as path:
        for found, values in parts:
            if path is not None:
                _append_csv(path, found)
            if as_json or not kept:
                kept.append(found if as_json else {name: column[:MOST_ROWS] for name, column in found.items()})
            scored.append(values)
    first = {name: np.concatenate([part[name] for part in kept]) for name in kept[0]}
    row_scores = {name: np.concatenate([part[name] for part in scored]) for name in scored[0]}
    scores = estimates(row_scores)
    if as_json:
        show_document(
            {
                "task": encoding.task,
                "rows": rows,
                "scores": {name: each.value for name, each in scores.items()} or None,
                "standard_errors": {name: each.error for name, each in scores.items()} or None,
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
        show_scores(f"{rows:,} rows", scores, meanings(row_scores))
    if out is not None:
        show_line(f"{rows:,} predictions written to {out}")


def _seen(table: Table, config: dict[str, Any]) -> list[str]:
    """Returns the note on scores of rows that were learned from, where the table is the one that was fitted."""
    if table.y is None or config.get("table") != table_fingerprint(table) or "rows" not in config:
        return []
    train, test = config["rows"]["train"], config["rows"]["test"]
    return [
        f"this is the table that was fitted: {train} of its {train + test} rows were learned from, so that its scores "
        f"flatter; those of the {test} others are in metrics.json"
    ]


def _blocks(
    posterior: Posterior, table: Table, y: Any, encoding: Encoding, samples: int
) -> Iterator[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """Yields the predictions of each block of rows as columns, and what their scores are made of."""
    block = BLOCK if table.complete else COMPLETED
    for start in range(0, len(table.x), block):
        rows = slice(start, min(start + block, len(table.x)))
        targets = jax.tree.map(lambda leaf, rows=rows: leaf[rows], y)
        pred = predicted(posterior, table, rows, samples=samples)
        found = columns(pred, np.arange(rows.start, rows.stop), targets, encoding)
        yield found, {} if targets is None else score_rows(pred, targets, encoding)


def _config(run: Path) -> dict[str, Any]:
    path = run / "config.json"
    if not run.is_dir():
        raise FileNotFoundError(f"there is no folder {str(run)!r}; give one that `lamu fit` made with --out")
    if not path.is_file():
        raise FileNotFoundError(f"{str(run)!r} is not a folder that `lamu fit` made: config.json is missing")
    try:
        config: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _altered(path) from error
    if not isinstance(config, dict) or "format" not in config:
        raise _altered(path)
    if config["format"] != FORMAT:
        raise ValueError(
            f"{str(path)!r} has the format {config['format']!r} and this version reads {FORMAT}; fit again"
        )
    samples, rows = config.get("samples"), config.get("rows", {})
    counts = [rows.get(part, 1) for part in ("train", "test")] if isinstance(rows, dict) else [None]
    whole = all(type(count) is int and 0 < count < 2**31 for count in (samples, *counts))
    if not whole or not isinstance(config.get("posterior"), str):
        raise _altered(path)
    return config


def _encoding(run: Path, config: dict[str, Any]) -> Encoding:
    try:
        return Encoding.of(config)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise _altered(run / "config.json") from error


def _altered(path: Path) -> ValueError:
    return ValueError(f"{str(path)!r} cannot be read: it was altered after `lamu fit` wrote it; fit again")


def _posterior(run: Path, config: dict[str, Any], encoding: Encoding, trust: Sequence[str]) -> Posterior:
    if trust:
        add_current_folder()
    posterior = load(run / "posterior", trust=trust)
    task = posterior.model.likelihood.task
    if fingerprint(run / "posterior") != config["posterior"] or task != encoding.task:
        raise ValueError(
            f"the posterior in {str(run)!r} is not the one that `lamu fit` wrote there; fit again or copy whole folders"
        )
    return posterior


def _digits(table: dict[str, np.ndarray]) -> int:
    """Returns how many digits show where the targets of a regression lie within their intervals, four at least."""
    if "lower" not in table:
        return 4
    width, largest = np.median(table["upper"] - table["lower"]), np.max(np.abs(table["mean"]))
    return int(np.clip(3 + np.ceil(np.log10(largest / width)), 4, 17)) if 0 < width < largest else 4


def _shown(name: str, column: np.ndarray, digits: int) -> list[Any]:
    """Returns the values of a column for a person: probabilities and their logarithms with one number of digits."""
    if name.startswith("p_") or name == "log_prob":
        return [f"{value:.4f}" for value in column]
    return [f"{value:.{digits}g}" for value in column] if column.dtype.kind == "f" else list(column)


def _append_csv(path: Path, table: dict[str, np.ndarray]) -> None:
    import pandas as pd

    pd.DataFrame(table).to_csv(path, mode="a", header=not path.exists(), index=False)
