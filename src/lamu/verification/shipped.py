"""A row of the table "as shipped": a default fit beside a reference, and what it is expected to reach."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Limits", "Shipped"]


@dataclass(frozen=True)
class Limits:
    """What a default fit of a kind is expected to reach; infinite where the kind claims nothing."""

    mean: float  # the largest error of a mean, in posterior standard deviations
    sd: float  # the largest distance of the median ratio of standard deviations from one, as a factor less one
    nats: float = math.inf  # how far the bound or the evidence may be from the reference's


@dataclass(frozen=True)
class Shipped:
    """An algorithm, made without arguments and fitted without a length, beside a reference."""

    algorithm: str  # its public name
    problem: str  # the data and the model
    reference: str  # what means and standard deviations are compared with
    mean_error: float  # the largest error of a mean, in the exact posterior's standard deviations
    sd_ratio: float  # the median ratio of standard deviations, the fit's over the reference's; NaN where it has none
    # The same over the exact posterior's, which a mean-field belief does not reach; NaN where unknown.
    exact_ratio: float
    nats: float  # the bound or the evidence less the reference's; NaN where there is none
    seconds: float  # what making, compiling and fitting took
    limits: Limits  # what is expected of its kind

    @property
    def misses(self) -> tuple[str, ...]:
        """The figures that are beyond their limits (NaN counts as absent only where no limit is stated)."""
        found = []
        if not self.mean_error <= self.limits.mean:
            found.append("mean")
        if math.isfinite(self.limits.sd) and not abs(math.log(self.sd_ratio)) <= math.log1p(self.limits.sd):
            found.append("sd")
        if math.isfinite(self.limits.nats) and not abs(self.nats) <= self.limits.nats:
            found.append("nats")
        return tuple(found)

    @property
    def reached(self) -> bool:
        """Whether every figure is within its limit."""
        return not self.misses
