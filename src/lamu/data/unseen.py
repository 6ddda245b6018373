"""New categories of rows to predict: codes that are none of a column's, and one-hot columns that are all zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lamu.data.encoding import Encoding
from lamu.data.imputation import Completions
from lamu.data.inputs import Features, completions
from lamu.data.wording import listed

__all__ = ["new_categories"]

# A category that training did not have is all zeros of a `OneHotEncoder` that ignores it, or of a frame of dummies,
# which a model takes for a category that does nothing. Columns of which every training row has exactly one are
# therefore a column of words here.


def new_categories(
    x: np.ndarray, levels: Sequence[int], blocks: Sequence[Sequence[int]], names: Sequence[str]
) -> tuple[Completions | None, list[str]]:
    """Returns rows with draws of the known categories for each new one, None without such, and a sentence a column."""
    # `levels`: for each column the number K of codes 1 to K, 0 for numbers. A single category has no draws: another one
    # widens predictions by its prior.
    words: list[tuple[list[int], np.ndarray, int]] = []  # columns, positions among the known, and their number
    notes = []
    of = f"of {len(x):,} rows; each is predicted as a new draw from the"
    for column in (column for column, count in enumerate(levels) if count > 1):
        codes, count = np.asarray(x[:, column]), levels[column]
        unknown = ~np.isin(codes, np.arange(1, count + 1))
        if unknown.any():
            words.append(([column], np.where(unknown, count, codes - 1), count))
            notes.append(
                f"the column {names[column]!r} has the code {codes[unknown][0]:g}, which is none of 1 to {count}, in "
                f"{unknown.sum():,} {of} {count} known categories, with a wider interval"
            )
    for block in blocks:
        part = np.asarray(x[:, list(block)])
        unknown = ~part.any(axis=1)
        if unknown.any():
            words.append(([*block], np.where(unknown, len(block), part.argmax(axis=1)), len(block)))
            notes.append(
                f"the columns {listed([names[column] for column in block])}, of which each training row has exactly "
                f"one, are all zero in {unknown.sum():,} {of} {len(block)} known categories, with a wider interval"
            )
    if not words:
        return None, []
    known = [tuple(map(str, range(count))) for *_, count in words]
    columns = tuple(map(str, range(len(words))))
    features = Features(columns, np.stack([codes for _, codes, _ in words], 1), tuple((*each, "") for each in known))
    completed = completions(features, Encoding("", "regression", (), columns, tuple(known)))
    rows = np.array(x)[completed.row]
    for place, (block, codes, count) in enumerate(words):
        new, drawn = (codes == count)[completed.row], completed.x[:, place]
        values = drawn[:, None] if len(block) == 1 else np.equal.outer(drawn, np.arange(1, count + 1))
        rows[:, block] = np.where(new[:, None], values, rows[:, block])
    return replace(completed, x=rows), notes
