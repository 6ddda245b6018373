"""Columns with names: a frame is matched to a model by the names that it was fitted on, and never by position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamu.data.wording import listed, plural
from lamu.typing import Data, Inputs

__all__ = ["aligned", "by_name", "inputs_of", "names_of"]


def names_of(x: Inputs) -> tuple[str, ...] | None:
    """Returns the names of the columns of a frame, of pandas or polars; None for what has none."""
    names = getattr(x, "columns", None)
    if names is None:
        return None
    found = tuple(names)
    if not found or not all(isinstance(name, str) for name in found):
        return None  # of pandas' own numbers, which are positions
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise ValueError(f"x has more than one column {twice[0]!r}; give every column its own name")
    return found


def by_name(x: Inputs, columns: tuple[str, ...] | None) -> Any:
    """Returns a frame with the columns of a model, in their order; anything else as it is."""
    names = names_of(x)
    if columns is None or names is None or names == columns:
        return x
    lacking = [name for name in columns if name not in names]
    if lacking:
        raise ValueError(
            f"x lacks the {plural('column', lacking)} {listed(lacking)} that the model was fitted on, and has "
            f"{listed(names)}; name them as they were, or pass an array in the order of the fit"
        )
    return x[list(columns)]


def inputs_of(data: Data) -> Any:
    """Returns the inputs of `(x, y)` or of a mapping with `x`; None for anything else."""
    if isinstance(data, tuple) and len(data) == 2:
        return data[0]
    return data.get("x") if isinstance(data, Mapping) else None


def aligned(data: Data, columns: tuple[str, ...] | None) -> Any:
    """Returns `(x, y)` or a mapping with the columns of a frame in a model's order; anything else as it is."""
    if isinstance(data, tuple) and len(data) == 2:
        return by_name(data[0], columns), data[1]
    if isinstance(data, Mapping) and "x" in data:
        return {**data, "x": by_name(data["x"], columns)}
    return data
