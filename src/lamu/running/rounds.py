"""How long a run is that nobody gave a length: as long as it takes, in rounds that double, up to a limit."""

# Round c has \(2^c n\) steps; rates that are annealed start again with every round (`lamu.rate.WarmRestarts`). At the
# end of a round the posterior's distance from its fixed point is measured, and the run stops where that is within its
# limits (at the end of the first and of the second round only where the mean is within a tenth of a standard
# deviation). So at least half of all steps belong to the last round, whose rates have fallen to zero.

from __future__ import annotations

import math
from dataclasses import dataclass

from lamu.convergence import FARTHEST_MEAN, Convergence
from lamu.protocol import Traits

__all__ = ["Rounds"]

_FIRST, _FIRST_FULL = 1024, 32  # steps of the first round
_FEWEST_EPOCHS = 4
_MOST, _MOST_EPOCHS = 32_768, 64  # steps and epochs, whichever are more
_UNMEASURED = 50  # epochs of what has no fixed point to measure, three rounds at least
_NEAR, _SHORT = 0.1, 3  # standard deviations, in the first two rounds


@dataclass(frozen=True)
class Rounds:
    """The rounds of a run over arrays."""

    first: int  # the steps of the first round, whole epochs
    count: int  # how many rounds there are at most
    per_epoch: int  # the steps of an epoch

    @classmethod
    def of(cls, traits: Traits, rows: int, batch_size: int) -> Rounds:
        """Returns the rounds for so many rows."""
        full = traits.batching == "full"
        per_epoch = 1 if full else math.ceil(rows / batch_size)
        fewest = max((_FIRST_FULL if full else _FIRST) / per_epoch, 1 if full else _FEWEST_EPOCHS)
        epochs = 2 ** math.ceil(math.log2(fewest))
        most = max(_MOST, _MOST_EPOCHS * per_epoch) / (epochs * per_epoch)
        return cls(epochs * per_epoch, max(round(math.log2(most + 1)), 1), per_epoch)

    @property
    def limit(self) -> int:
        """The steps of all rounds."""
        return self.first * (2**self.count - 1)

    def ends_at(self, step: int) -> bool:
        """Whether a round ends after so many steps."""
        rounds = step / self.first + 1
        return step > 0 and rounds == 2 ** round(math.log2(rounds))

    def enough(self, step: int, found: Convergence | None) -> bool:
        """Whether a run may stop at the end of a round."""
        if found is None:
            return step >= max(_UNMEASURED * self.per_epoch, 7 * self.first)
        # An offset that draws leave uncertain is no reason for a warning, nor to stop. Along correlated weights a mean
        # is further off than their own deviations tell, and short runs can afford to be nearer.
        limit = _NEAR if step <= _SHORT * self.first else FARTHEST_MEAN
        return found.at_fixed_point and (found.offset is None or found.offset <= limit)
