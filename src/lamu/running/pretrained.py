"""Networks that arrive trained: the run of no steps that goes straight to the posterior."""

from __future__ import annotations

import logging
from typing import Any

from lamu.target import Target

__all__ = ["require_trained", "say_seen_rows"]


def require_trained(model: Target, epochs: Any) -> None:
    """Raises a ValueError for a run of no steps from random weights."""
    if epochs == 0 and not model.trained:
        raise ValueError(
            f"epochs=0 would make a posterior of the random weights of {model.name}; give trained "
            "ones with model.starting_at(params), or a network that brings its own (lamu.networks.Trained), or train "
            "for some epochs"
        )


def say_seen_rows(validation: Any) -> None:
    """Warns where rows to validate on are a share of the rows that a network which arrived trained has learned from.

    Args:
        validation: as `fit` takes it.

    Examples:
        >>> from lamu.running.pretrained import say_seen_rows
        >>> say_seen_rows(None)
    """
    if isinstance(validation, float | int):
        logging.getLogger("lamu").warning(
            "validation=%r sets aside rows of the data, which a network that arrives trained has learned from: on its "
            "own rows it is right too often to choose a prior's scale by; give rows that it has not seen, "
            "validation=(x, y), or leave validation out.",
            validation,
        )
