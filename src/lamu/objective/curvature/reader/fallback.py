"""The warning that some parameters need a backward pass of each example."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache

from lamu import tree
from lamu.typing import Params

__all__ = ["warn_of_rows", "warned"]

LOG = logging.getLogger("lamu")


def warn_of_rows(quantity: str, rows: int, params: Params, reasons: Mapping[int, str]) -> None:
    """Warns that a quantity takes one backward pass a row for the parameters that the reader cannot read."""
    # The first three parameters are named for each reason. A program that is traced again does not warn again.
    paths = tree.paths(params)
    by_reason: dict[str, list[str]] = {}
    for leaf, reason in reasons.items():
        by_reason.setdefault(reason, []).append(paths[leaf] or "the parameter")
    told = [f"{_first_three(names)} ({reason})" for reason, names in by_reason.items()]
    if told:
        warned(
            f"{quantity} by {rows} backward passes, one for each example, for parameters that cannot be read: "
            + "; ".join(told)
        )


def _first_three(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")


@lru_cache(maxsize=256)
def warned(message: str) -> None:
    """Gives a warning, of each text once."""
    LOG.warning(message)
