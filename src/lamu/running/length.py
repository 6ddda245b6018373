"""How long a run is, by what the caller said and what the algorithm is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lamu.data.arrays import Arrays
from lamu.data.stream import Stream
from lamu.protocol import Traits
from lamu.rate import over
from lamu.running.rounds import Rounds
from lamu.running.schedule import run_length

__all__ = ["Length"]


@dataclass(frozen=True)
class Length:
    """The length of a run."""

    total: int | None  # the steps there are at most; None for a stream whose batches nobody has counted
    rounds: Rounds | None = None  # the rounds of a run over arrays that nobody gave a length, else None
    as_it_came: bool = False  # whether no step is taken at all, because the weights arrive trained

    @classmethod
    def of(
        cls, traits: Traits, rows: Arrays | Stream, batch_size: int, epochs: int | None, steps: int | None
    ) -> Length:
        """Returns the length of a run."""
        if epochs is not None and steps is not None:
            raise ValueError(f"epochs={epochs!r} and steps={steps!r} contradict each other; give one of them")
        if epochs == 0 and traits.length is None:
            return cls(0, as_it_came=True)
        if not isinstance(rows, Arrays):
            return cls(steps)
        its_own = traits.length is not None or traits.batching == "once"
        if epochs is None and steps is None and not its_own:
            rounds = Rounds.of(traits, rows.count, batch_size)
            return cls(rounds.limit, rounds)
        return cls(run_length(traits, rows.count, batch_size, epochs, steps))

    def given_to(self, algorithm: Any) -> Any:
        """Returns the algorithm with rates that fall over this length, or over each of its rounds."""
        if self.rounds is not None:
            return over(self.rounds.first, algorithm, restarts=True)
        return over(self.total or None, algorithm)
