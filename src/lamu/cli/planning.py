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
    """Returns a sentence: the number of fits, what they are for, and how long each is at most.

    Args:
        model: what is fitted.
        algorithm: what fits it.
        rows: the training rows.
        folds: how many folds there are; 0 for one run.
        temperature: the temperature that was asked for; None where training rows choose it.
        epochs: of each fit; None where it runs until it has converged or has a length of its own.

    Examples:
        >>> import lamu
        >>> from lamu.cli.planning import plan
        >>> model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Gaussian(), lamu.priors.LearnedNormal(0.5))
        >>> plan(model, lamu.algorithms.adam(1e-2), 100, 5, None, 30)
        '15 fits (5 folds, 3 scales of the prior), each of 30 epochs at most'
        >>> plan(model, lamu.algorithms.adam(1e-2), 100, 0, 1.0, None)
        'up to 6 fits (scales of the prior), the last one until it has converged'
    """
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
