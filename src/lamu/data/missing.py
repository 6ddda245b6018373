"""Missing values, refused by name and number unless somebody asked that they be filled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamu.data.sources import Source
from lamu.data.wording import DataError, counted, plural

__all__ = ["refuse_missing"]


def refuse_missing(source: Source, columns: Sequence[str], target: str | None, advice: str) -> None:
    """Refuses a table that lacks values.

    Args:
        source: the table.
        columns: the features that must be whole.
        target: the target, which is never filled; None where there is none.
        advice: what to do about a feature.

    Raises:
        DataError: if a value is missing; the message has the columns and how many values each lacks.

    Examples:
        >>> from lamu.data.missing import refuse_missing
        >>> from lamu.data.sources import open_source
        >>> refuse_missing(open_source("iris"), ["petal width (cm)"], "target", "fill them")
    """
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
