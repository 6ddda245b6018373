"""What one pass through a network is: whether it trains, whether it draws, and which rows are real."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

__all__ = ["Mode"]


@dataclass(frozen=True)
class Mode:
    """The mode of a pass, for one operator of it."""

    train: bool  # whether batch statistics are computed, and not used
    key: Any  # the operator's own key; None where nothing is drawn
    mask: Any  # one for a real row and zero for a padded one, `[batch]`; None where every row is real

    def at(self, index: int) -> Mode:
        """Returns the mode for the operator of this number, with a key of its own."""
        key = None if self.key is None else jax.random.fold_in(self.key, index)
        return Mode(self.train, key, self.mask)
