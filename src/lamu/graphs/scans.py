"""How the recursion of a series is run."""

from __future__ import annotations

__all__ = ["associative"]


def associative(scan: str) -> bool:
    """Returns whether a series is run by associative scans."""
    if scan not in ("sequential", "associative"):
        raise ValueError(f'scan={scan!r} is not known; give "sequential" or "associative"')
    return scan == "associative"
