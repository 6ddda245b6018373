"""What `lamu fit` runs where nothing is said about the algorithm or its length: the candidates of `lamu.fit_table`."""

from __future__ import annotations

from typing import Any

from lamu.cli.defaults import likelihood_for
from lamu.data import Encoding
from lamu.tabular import StackedFit, fit_table

__all__ = ["described", "is_stacked", "planned", "stacked"]


def is_stacked(request: Any, algorithm: str | None) -> bool:
    """Returns whether the candidates are fitted: no algorithm is named, nor a length, a batch or a temperature.

    Who says one of these means a run of Adam over folds of one network, to which they apply.

    Args:
        request: a `lamu.cli.training.Request`.
        algorithm: the name that was given, or None.
    """
    said = (algorithm, request.epochs, request.batch_size, request.temperature)
    return all(each is None for each in said) and request.folds != 0


def stacked(request: Any, encoding: Encoding, x: Any, y: Any, likelihood: str | None, seed: int) -> StackedFit:
    """Returns the candidates fitted to training rows.

    Args:
        request: a `lamu.cli.training.Request`.
        encoding: what the columns and the target are.
        x: the training inputs.
        y: the training targets.
        likelihood: its name; None for the task's own.
        seed: of everything random.
    """
    made = likelihood_for(encoding, likelihood)
    return fit_table(x, y, made, levels=encoding.cardinalities, folds=request.folds, seed=seed)


def planned(folds: int) -> str:
    """Returns what is said before the fit.

    Args:
        folds: how many folds there are.
    """
    return f"linear, additive and network candidates over {folds} folds, each architecture in one compiled program"


def described(found: StackedFit, log_unit: float) -> str:
    """Returns one line about the candidates that have a weight.

    Args:
        found: the fit.
        log_unit: what a log density exceeds one of the original targets by.
    """
    kept = sorted(((weight, name) for name, weight in found.weights.items() if weight > 0), reverse=True)
    parts = [f"{weight:.2f} {name} ({found.nll[name] + log_unit:.3f})" for weight, name in kept]
    together = f"{found.stacked_nll + log_unit:.3f} together"
    return f"mixture of {', '.join(parts)}: weight, candidate and held-out nll; {together}"
