"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Check"]


@dataclass(frozen=True)
class Check:
    """An algorithm beside its classic.

    Attributes:
        algorithm: its public name.
        reference: what it was compared with, and in what.
        deviation: the largest difference that was found.
        tolerance: the largest that is allowed.
    """

    algorithm: str
    reference: str
    deviation: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the deviation is within the tolerance (NaN is not)."""
        return self.deviation <= self.tolerance
