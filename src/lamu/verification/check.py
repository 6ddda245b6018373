"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Check"]


@dataclass(frozen=True)
class Check:
    """An algorithm beside its classic."""

    algorithm: str  # its public name
    reference: str  # what it was compared with, and in what
    deviation: float  # the largest difference that was found
    tolerance: float  # the largest that is allowed

    @property
    def passed(self) -> bool:
        """Whether the deviation is within the tolerance (NaN is not)."""
        return self.deviation <= self.tolerance
