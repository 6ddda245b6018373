"""Rows to predict whose inputs are known in part: draws of the rest, one row of inputs for each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Completions"]


@dataclass(frozen=True)
class Completions:
    """Inputs of rows to predict: one for a row that is complete, and one for each draw of what another lacks."""

    x: np.ndarray  # inputs `[completions, columns]`
    row: np.ndarray  # the row that each is of, in ascending order, `[completions]`
    # How far the prediction of a completion is moved, in standard deviations between the completions of its row: not
    # zero where a word is new, which may do more than the known words do. `[completions]`.
    spread: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray) -> Completions:
        """Returns rows that lack nothing."""
        return cls(x, np.arange(len(x)), np.zeros(len(x)))

    @property
    def complete(self) -> bool:
        """Whether each row has one completion."""
        return len(self.row) == self.rows

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.row[-1]) + 1 if len(self.row) else 0
