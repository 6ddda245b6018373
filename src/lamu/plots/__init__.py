"""Plots of calibration, uncertainty and models, drawn without global state (except plots of chains, by ArviZ).

Every function takes matplotlib's axes, or makes a figure where none are given, and returns the axes that it drew on:
`axes.figure.savefig(path)` writes the picture. A picture of several panels takes and returns an array of axes, one a
panel: `axes[0].figure.savefig(path)`.

`lamu.plots.style.save_adaptive(axes.figure, "picture.svg")` writes a picture for light and dark pages.
"""

from lamu.plots.chains import energy, trace
from lamu.plots.images import analogies, image_rows, latent_map
from lamu.plots.models import (
    evidence_curve,
    forest,
    influence,
    prior_functions,
    training_curve,
    validation_curve,
    weight_posteriors,
)
from lamu.plots.plane import decision_boundary, entropy_map, predictive_bands
from lamu.plots.trust import coverage, reliability, risk_coverage, uncertainty_shift

__all__ = [
    "analogies",
    "coverage",
    "decision_boundary",
    "energy",
    "entropy_map",
    "evidence_curve",
    "forest",
    "image_rows",
    "influence",
    "latent_map",
    "predictive_bands",
    "prior_functions",
    "reliability",
    "risk_coverage",
    "trace",
    "training_curve",
    "uncertainty_shift",
    "validation_curve",
    "weight_posteriors",
]
