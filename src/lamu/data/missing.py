"""Missing values, refused by name and number unless somebody asked that they be filled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamu.data.sources import Source
from lamu.data.wording import DataError, counted, plural

__all__ = ["refuse_missing"]


def refuse_missing(source: Source, columns: Sequence[str], target: str | None, advice: str) -> None:
    """Refuses a table that lacks values."""
    # `target`: the target, which is never filled; None where there is none.
    asked = [*columns, *([target] if target else [])]
    counts = source.frame[asked].isna().sum()
    missing = [(str(column), _remark(source, column, int(count))) for column, count in counts.items() if count]
    if missing:
        way = advice
        if missing[-1][0] == target:
            alone = "drop those rows, since a target is never filled"
            way = alone if len(missing) == 1 else f"{advice}; a target is never filled: drop the rows without it"
        raise DataError(
            f"{source.name} has missing values in the {plural('column', missing)} {counted(missing)}; {way}"
        )


def _remark(source: Source, column: Any, count: int) -> str:
    """Returns how many values are missing, and what stands in their place where they are not empty."""
    return f"{count}" + (f", among them {source.marked[column]}" if column in source.marked else "")
