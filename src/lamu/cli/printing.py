"""What the commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

__all__ = ["dump", "figure", "plain", "show_document", "show_line", "show_table"]


def plain(value: Any) -> Any:
    """Returns a value as JSON knows it: NumPy numbers as Python's, and None for a number that is not finite.

    Examples:
        >>> import numpy as np
        >>> from lamu.cli.printing import plain
        >>> plain({"a": (np.float32(0.5), float("nan"))})
        {'a': [0.5, None]}
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def dump(value: Any) -> str:
    r"""Returns a value as JSON text that ends in a line break.

    Examples:
        >>> from lamu.cli.printing import dump
        >>> dump({"rows": 3})
        '{\n  "rows": 3\n}\n'
    """
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def figure(value: Any) -> str:
    """Returns a number for a person, to four digits.

    Examples:
        >>> from lamu.cli.printing import figure
        >>> figure(0.123456), figure(3), figure("cat")
        ('0.1235', '3', 'cat')
    """
    return f"{float(value):.4g}" if isinstance(value, float | np.floating) else str(value)


def show_document(value: Any) -> None:
    """Prints a value as JSON on standard output."""
    sys.stdout.write(dump(value))


def show_line(text: str) -> None:
    """Prints one line on standard output."""
    sys.stdout.write(f"{text}\n")


def show_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints a table on standard output; its full width where that is no terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*heads, title=title, title_justify="left")
    for row in rows:
        table.add_row(*[figure(cell) for cell in row])
    width = None if sys.stdout.isatty() else 240
    Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False).print(table)
