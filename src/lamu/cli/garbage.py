"""Fewer garbage collections while a command runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collected_seldom"]

_OBJECTS = 300_000  # Python's own number is 700


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Lets Python collect garbage only after 300,000 new objects, inside a `with` block."""
    # Imports and traces make many objects and little garbage: collecting it took half a second of a command's start. A
    # command that runs long still has its garbage collected; 300,000 objects are some tens of megabytes.
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
