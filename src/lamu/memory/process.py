"""What this process has held at most, as the system counts it."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["most_held"]

_STATUS = Path("/proc/self/status")


def most_held() -> int | None:
    """Returns the most bytes of memory that this process has held; None where the system does not say.

    On Linux from the process's own book: `getrusage` counts for a child what its parent held when it was started.

    Examples:
        >>> from lamu.memory import most_held
        >>> held = most_held()
        >>> held is None or held > 2**20
        True
    """
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
