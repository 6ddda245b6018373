"""A number that was estimated from rows, and how far it would move with other rows."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Estimate"]


@dataclass(frozen=True)
class Estimate:
    """A value with its standard error.

    Attributes:
        value: the estimate.
        error: its standard error, in the same units; NaN for one row, and where the score of a row is not finite.

    Examples:
        >>> from lamu.scores import Estimate
        >>> str(Estimate(0.97222, 0.00861))
        '0.9722 ± 0.0086'
    """

    value: float
    error: float

    def __str__(self) -> str:
        """The value to the second digit of its error."""
        if not 0.0 < self.error < float("inf"):
            return f"{self.value:.4g}" if self.error == 0.0 else f"{self.value:.4g} ± ?"
        exponent = int(f"{self.error:e}".split("e")[1])
        decimals = 1 - exponent
        if decimals > 9 or decimals < -6:
            return f"{self.value:.4g} ± {self.error:.2g}"
        decimals = max(decimals, 0)
        return f"{self.value:.{decimals}f} ± {self.error:.{decimals}f}"
