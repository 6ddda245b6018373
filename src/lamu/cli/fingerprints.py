"""What a saved posterior and a table are known again by."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from lamu.data.table import Table

__all__ = ["fingerprint", "table_fingerprint"]


def fingerprint(posterior: Path) -> str:
    """Returns the SHA-256 of a saved posterior's own list of checksums, which no other posterior has."""
    return hashlib.sha256((posterior / "checksums.json").read_bytes()).hexdigest()


def table_fingerprint(table: Table) -> str:
    """Returns a SHA-256 of a table's inputs and targets, by which it is known again."""
    # Medians stand where a number is missing: a draw differs between a table that is fitted and one that is predicted.
    seen = hashlib.sha256(np.ascontiguousarray(table.with_medians().x).tobytes())
    seen.update(b"" if table.y is None else np.ascontiguousarray(table.y).tobytes())
    return seen.hexdigest()
