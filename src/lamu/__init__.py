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
        batch_statistics,
        calibration,
        composition,
        data,
        divergences,
        expectations,
        families,
        geometry,
        graphs,
        latent,
        likelihoods,
        limits,
        mcmc,
        memory,
        networks,
        objective,
        observations,
        operators,
        plots,
        predictives,
        presets,
        priors,
        programs,
        rate,
        rule,
        scores,
        sklearn,
        supports,
        testing,
        trackers,
        tree,
        update_rules,
    )
    from lamu.algorithms.post_hoc.neural_linear import absorb
    from lamu.combine import add, merge, remove
    from lamu.conjugacy import ConjugateModel
    from lamu.convergence import Convergence, Unconverged
    from lamu.density import LogDensity
    from lamu.evidence_choice import EvidenceFit, fit_evidence
    from lamu.folds import FoldedFit, fit_folds
    from lamu.graphs import Graph
    from lamu.influence import Sensitivity, sensitivity
    from lamu.likelihood_choice import compare_likelihoods
    from lamu.loop import fit
    from lamu.model import Model
    from lamu.networks.low_rank_adapter import LowRankAdapter
    from lamu.one_layer import regression
    from lamu.posterior import Posterior, load
    from lamu.prior_comparison import PriorSensitivity, prior_sensitivity
    from lamu.programs import from_numpyro
    from lamu.running import Checkpoints
    from lamu.running.result import Diverged, Fit
    from lamu.simulation import Ranks, simulation_based_calibration
    from lamu.sites import Site, site
    from lamu.tabular import StackedFit, fit_table
    from lamu.target import Target
    from lamu.validation_choice import PriorScaleFit, TemperatureFit, fit_prior_scale, fit_temperature

__all__ = [
    "Checkpoints",
    "ConjugateModel",
    "Convergence",
    "Diverged",
    "EvidenceFit",
    "Fit",
    "FoldedFit",
    "Graph",
    "LogDensity",
    "LowRankAdapter",
    "Model",
    "Posterior",
    "PriorScaleFit",
    "PriorSensitivity",
    "Ranks",
    "Sensitivity",
    "Site",
    "StackedFit",
    "Target",
    "TemperatureFit",
    "Unconverged",
    "absorb",
    "add",
    "algorithms",
    "batch_statistics",
    "calibration",
    "compare_likelihoods",
    "composition",
    "data",
    "divergences",
    "expectations",
    "families",
    "fit",
    "fit_evidence",
    "fit_folds",
    "fit_prior_scale",
    "fit_table",
    "fit_temperature",
    "from_numpyro",
    "geometry",
    "graphs",
    "latent",
    "likelihoods",
    "limits",
    "load",
    "mcmc",
    "memory",
    "merge",
    "networks",
    "objective",
    "observations",
    "operators",
    "plots",
    "predictives",
    "presets",
    "prior_sensitivity",
    "priors",
    "programs",
    "rate",
    "regression",
    "remove",
    "rule",
    "scores",
    "sensitivity",
    "simulation_based_calibration",
    "site",
    "sklearn",
    "supports",
    "testing",
    "trackers",
    "tree",
    "update_rules",
]

_NAMES = {
    "Checkpoints": "lamu.running",
    "ConjugateModel": "lamu.conjugacy",
    "Target": "lamu.target",
    "Convergence": "lamu.convergence",
    "Unconverged": "lamu.convergence",
    "Diverged": "lamu.running.result",
    "Fit": "lamu.running.result",
    "fit": "lamu.loop",
    "FoldedFit": "lamu.folds",
    "fit_folds": "lamu.folds",
    "StackedFit": "lamu.tabular",
    "fit_table": "lamu.tabular",
    "absorb": "lamu.algorithms.post_hoc.neural_linear",
    "TemperatureFit": "lamu.validation_choice",
    "fit_temperature": "lamu.validation_choice",
    "PriorScaleFit": "lamu.validation_choice",
    "fit_prior_scale": "lamu.validation_choice",
    "Graph": "lamu.graphs",
    "PriorSensitivity": "lamu.prior_comparison",
    "prior_sensitivity": "lamu.prior_comparison",
    "LogDensity": "lamu.density",
    "from_numpyro": "lamu.programs",
    "LowRankAdapter": "lamu.networks.low_rank_adapter",
    "Model": "lamu.model",
    "Posterior": "lamu.posterior",
    "load": "lamu.posterior",
    "Sensitivity": "lamu.influence",
    "sensitivity": "lamu.influence",
    "Site": "lamu.sites",
    "site": "lamu.sites",
    "add": "lamu.combine",
    "merge": "lamu.combine",
    "remove": "lamu.combine",
    "EvidenceFit": "lamu.evidence_choice",
    "fit_evidence": "lamu.evidence_choice",
    "compare_likelihoods": "lamu.likelihood_choice",
    "regression": "lamu.one_layer",
    "Ranks": "lamu.simulation",
    "simulation_based_calibration": "lamu.simulation",
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
