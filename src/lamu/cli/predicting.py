"""`lamu predict`: the rows of another table, with a posterior that `lamu fit` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from lamu.cli.folder import draft
from lamu.cli.predictions import columns, score
from lamu.cli.printing import show_document, show_line, show_table
from lamu.data import Arrays, TargetEncoding
from lamu.data.table import match
from lamu.posterior import load

__all__ = ["predict"]

MOST_ROWS = 20  # that are printed


def predict(run: Path, data: str, out: Path | None = None, as_json: bool = False) -> None:
    """Predicts the rows of a table, prints or writes them, and scores them where the target is there.

    Args:
        run: a folder that `lamu fit` made.
        data: a file, or the name of a bundled set.
        out: a .csv file to make; None prints the first rows.
        as_json: whether to print one JSON document, with all rows, in place of tables.

    Raises:
        ValueError: for a folder that is not whole, or data that do not match it.
        FileExistsError: if there is something at `out`.
    """
    encoding = _encoding(run)
    table = match(data, encoding)
    rows = len(table.x)
    checked = Arrays.of((table.x, np.zeros(rows) if table.y is None else table.y))
    y = None if table.y is None else checked.y
    pred = load(run / "posterior").predict(checked.x)
    found = columns(pred, np.arange(rows), y, encoding)
    scores = None if y is None else score(pred, y)
    if out is not None:
        _write_csv(out, found)
    if as_json:
        listed = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
        document = {
            "task": encoding.task,
            "rows": rows,
            "scores": scores,
            "notes": list(table.notes),
            "predictions": listed,
        }
        show_document(document)
        return
    for note in table.notes:
        show_line(f"note: {note}")
    if out is None:
        title = f"{rows} predictions" if rows <= MOST_ROWS else f"the first {MOST_ROWS} of {rows} predictions"
        show_table(title, list(found), zip(*(column[:MOST_ROWS] for column in found.values()), strict=True))
        if rows > MOST_ROWS:
            show_line("--out FILE.csv writes all of them, --json prints them")
    if scores is not None:
        show_table(f"{rows} rows", ("score", "value"), scores.items())
    if out is not None:
        show_line(f"{rows} predictions written to {out}")


def _encoding(run: Path) -> TargetEncoding:
    path = run / "config.json"
    if not run.is_dir():
        raise FileNotFoundError(f"there is no folder {str(run)!r}; give one that `lamu fit` made with --out")
    if not path.is_file():
        raise FileNotFoundError(f"{str(run)!r} is not a folder that `lamu fit` made: config.json is missing")
    try:
        config: Any = json.loads(path.read_text(encoding="utf-8"))
        return TargetEncoding(config["target"], config["task"], tuple(config["labels"]), tuple(config["columns"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{str(path)!r} cannot be read: it was altered after `lamu fit` wrote it; fit again"
        ) from error


def _write_csv(out: Path, table: dict[str, Any]) -> None:
    import pandas as pd

    with draft(out) as path:
        pd.DataFrame(table).to_csv(path, index=False)
