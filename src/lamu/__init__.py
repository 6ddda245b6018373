"""Lamu: Bayesian deep learning around one idea, the Bayesian learning rule.

Public names are imported when they are first used, so that `lamu --help` does not wait for JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu import (
        acquire,
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
    from lamu.convergence import Convergence, Overfit, Unconverged, Underfit, WorseThanMean
    from lamu.density import LogDensity
    from lamu.evidence_choice import EvidenceFit, compare_likelihoods, fit_evidence
    from lamu.folds import FoldedFit, fit_folds
    from lamu.graphs import Graph
    from lamu.influence import Sensitivity, sensitivity
    from lamu.loop import fit
    from lamu.model import Model
    from lamu.networks.low_rank_adapter import LowRankAdapter
    from lamu.one_layer import regression
    from lamu.posterior import Posterior, load
    from lamu.programs import from_numpyro
    from lamu.running import Checkpoints
    from lamu.running.conclusion import Diverged, Fit
    from lamu.simulation import Ranks, simulation_based_calibration
    from lamu.sites import Site, site
    from lamu.tabular import StackedFit, fit_table
    from lamu.target import Target
    from lamu.validation_choice import (
        PriorScaleFit,
        PriorSensitivity,
        TemperatureFit,
        fit_prior_scale,
        fit_temperature,
        prior_sensitivity,
    )

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
    "Overfit",
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
    "Underfit",
    "WorseThanMean",
    "absorb",
    "acquire",
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


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("lamu")
    return _find(name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


_find, _ = lazy_names(__name__, __file__)
