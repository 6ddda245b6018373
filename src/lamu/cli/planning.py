"""How many fits a command will make, said before the first one."""

from __future__ import annotations

from typing import Any

from lamu.folds import fits_of
from lamu.model import Model
from lamu.prior_scale import MOST_SCALES
from lamu.priors import LearnedNormal
from lamu.protocol import Algorithm
from lamu.temperatures import TEMPERATURES

__all__ = ["plan"]


def plan(model: Model, algorithm: Algorithm, rows: int, folds: int, temperature: float | None, epochs: Any) -> str:
    """Returns a sentence: the number of fits, what they are for, and how long each is at most."""
    learned, traits = isinstance(model.prior, LearnedNormal), algorithm.traits
    length = f", each of {epochs} epochs at most" if epochs is not None and traits.length is None else ""
    if folds:
        count = fits_of(rows, folds, learned)
        return f"{count} fits ({folds} folds{', 3 scales of the prior' if learned else ''}){length}"
    alone = traits.length is not None or traits.batching == "once"
    temperatures = len(TEMPERATURES) if temperature is None and model.has_classes and not alone else 0
    scales = MOST_SCALES if learned and not alone and not traits.chooses_prior_scale else 0
    named = [("temperatures", temperatures), ("scales of the prior", scales)]
    reasons = " and ".join(name for name, number in named if number)
    if not reasons:
        return f"one fit{length.replace(', each', '')}"
    last = length or ", the last one until it has converged"
    return f"up to {temperatures + scales + 1} fits ({reasons}){last}"
