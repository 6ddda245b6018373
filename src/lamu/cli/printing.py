"""Output of the commands: tables for users, JSON for programs."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lamu.convergence import UnreliableWeights
from lamu.data.wording import figure
from lamu.scores import Estimate
from lamu.scores.calibration import in_words

__all__ = [
    "append_csv",
    "dump",
    "plain",
    "show_document",
    "show_line",
    "show_notes",
    "show_scores",
    "show_table",
    "show_unreliable",
    "width",
]


def plain(value: object) -> Any:
    """Returns a value for JSON: NumPy numbers as Python numbers, and None for numbers that are not finite."""
    text = json.dumps(value, ensure_ascii=False, default=lambda part: part.tolist())
    return json.loads(text, parse_constant=lambda name: None)


def dump(value: object) -> str:
    """Returns a value as JSON text with a final line break."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def show_document(value: object) -> None:
    """Prints a value as JSON on standard output."""
    sys.stdout.write(dump(value))


def show_line(text: str) -> None:
    """Prints one line on standard output."""
    sys.stdout.write(f"{text}\n")


def show_notes(notes: Iterable[str]) -> None:
    """Prints notes on decisions and omissions, one line each."""
    for note in notes:
        show_line(f"note: {note}")


@contextmanager
def show_unreliable() -> Iterator[None]:
    """Prints a warning about importance weights as one line on standard error, with the option that helps."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UnreliableWeights)
        yield
    for each in told:
        if issubclass(each.category, UnreliableWeights):
            sys.stderr.write(f"{str(each.message).partition(';')[0]}; give more --samples\n")
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def show_scores(title: str, scores: Mapping[str, Estimate], meanings: Mapping[str, str]) -> None:
    """Prints scores with their standard errors, and how to read each."""
    rows = [(name, in_words(name, estimate), meanings[name]) for name, estimate in scores.items()]
    show_table(title, ("score", "± standard error", "in words"), rows)


def width() -> int:
    """Returns the number of characters in a line of standard output; large if it is no terminal."""
    from rich.console import Console

    return Console(file=sys.stdout).width if sys.stdout.isatty() else 240


def show_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table on standard output, without a limit of its width if that is no terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    shown = [[figure(cell) for cell in row] for row in rows]
    table = Table(title=title, title_justify="left", box=box.ROUNDED)
    for index, head in enumerate(heads):
        numbers = bool(shown) and all(_is_number(row[index]) for row in shown)
        table.add_column(head, justify="right" if numbers else "left")
    for row in shown:
        table.add_row(*row)
    Console(file=sys.stdout, width=width(), markup=False, highlight=False, emoji=False).print(table)


def append_csv(path: Path, table: Mapping[str, np.ndarray]) -> None:
    """Appends the rows of a table to a CSV file, which has a header where it is new."""
    import pandas as pd

    pd.DataFrame(table).to_csv(path, mode="a", header=not path.exists(), index=False)


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", ""))
    except ValueError:
        return text in ("", "-")
    return True
