"""Named columns: matches a frame to a model by its fitted column names, never by position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamu.data.wording import listed, plural
from lamu.typing import Data, Inputs

__all__ = ["aligned", "by_name", "column_names", "inputs_of", "parts_of"]


def column_names(x: Inputs) -> tuple[str, ...] | None:
    """Returns the column names of a pandas or polars frame; None for other data."""
    names = getattr(x, "columns", None)
    if names is None:
        return None
    columns = tuple(names)
    if not columns or not all(isinstance(name, str) for name in columns):
        return None  # pandas' own numbers, which are positions
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise ValueError(f"x has more than one column {twice[0]!r}; give every column its own name")
    return columns


def by_name(x: Inputs, columns: tuple[str, ...] | None) -> Any:
    """Returns a frame with a model's columns, in their order; anything else unchanged."""
    names = column_names(x)
    if columns is None or names is None or names == columns:
        return x
    lacking = [name for name in columns if name not in names]
    if lacking:
        raise ValueError(
            f"x lacks the {plural('column', lacking)} {listed(lacking)} that the model was fitted on, and has "
            f"{listed(names)}; name them as they were, or pass an array in the order of the fit"
        )
    return x[list(columns)]


def parts_of(data: Data) -> Mapping[str, Any] | None:
    """Returns `(x, y)` or a mapping as a mapping; None for anything else."""
    if isinstance(data, tuple) and len(data) == 2:
        return dict(zip(("x", "y"), data, strict=True))
    return data if isinstance(data, Mapping) else None


def inputs_of(data: Data) -> Inputs | None:
    """Returns the inputs of `(x, y)` or of a mapping with `x`; None for anything else."""
    return (parts_of(data) or {}).get("x")


def aligned(data: Data, columns: tuple[str, ...] | None) -> Data:
    """Returns `(x, y)` or a mapping with a frame's columns in a model's order; anything else unchanged."""
    parts = parts_of(data)
    return data if parts is None or "x" not in parts else {**parts, "x": by_name(parts["x"], columns)}
