"""Lamu: Bayesian deep learning around one idea, the Bayesian learning rule.

The door to the library: the public names, imported when they are first used, so that `lamu --help` need not wait for
JAX.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lamu import (
        algorithms,
        calibration,
        data,
        departures,
        divergences,
        expectations,
        families,
        geometry,
        likelihoods,
        mcmc,
        networks,
        objective,
        observations,
        operators,
        plots,
        predictives,
        priors,
        rate,
        rule,
        scores,
        tree,
    )
    from lamu.density import LogDensity
    from lamu.folds import FoldedFit, fit_folds
    from lamu.loop import Diverged, Fit, fit
    from lamu.model import Model
    from lamu.posterior import Posterior, load
    from lamu.running import Checkpoints
    from lamu.sequential import merge, remove

__all__ = [
    "Checkpoints",
    "Diverged",
    "Fit",
    "FoldedFit",
    "LogDensity",
    "Model",
    "Posterior",
    "algorithms",
    "calibration",
    "data",
    "departures",
    "divergences",
    "expectations",
    "families",
    "fit",
    "fit_folds",
    "geometry",
    "likelihoods",
    "load",
    "mcmc",
    "merge",
    "networks",
    "objective",
    "observations",
    "operators",
    "plots",
    "predictives",
    "priors",
    "rate",
    "remove",
    "rule",
    "scores",
    "tree",
]

_NAMES = {
    "Checkpoints": "lamu.running",
    "Diverged": "lamu.loop",
    "Fit": "lamu.loop",
    "fit": "lamu.loop",
    "FoldedFit": "lamu.folds",
    "fit_folds": "lamu.folds",
    "LogDensity": "lamu.density",
    "Model": "lamu.model",
    "Posterior": "lamu.posterior",
    "load": "lamu.posterior",
    "merge": "lamu.sequential",
    "remove": "lamu.sequential",
}


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if name in __all__:
        return import_module(f"lamu.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("lamu")
    raise AttributeError(f"module 'lamu' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
