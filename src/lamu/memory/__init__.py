"""How much memory work may take: one limit, which fitting, prediction, curvature and scoring share.

The limit is what may be held at once beside what there already is. Nothing is measured against it while work runs:
sizes are computed before, work is cut into chunks that fit, and what cannot be cut is refused.
"""

from lamu.memory.limits import at_least, budget, demand, free, limit, parse, shown, within
from lamu.memory.process import most_held
from lamu.memory.programs import bytes_of, held_by, largest_array, numbers_written

__all__ = [
    "at_least",
    "budget",
    "bytes_of",
    "demand",
    "free",
    "held_by",
    "largest_array",
    "limit",
    "most_held",
    "numbers_written",
    "parse",
    "shown",
    "within",
]
