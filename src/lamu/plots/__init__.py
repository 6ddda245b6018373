"""Plots of calibration, uncertainty, models and chains.

Every function draws on the given matplotlib axes, or on those of a new figure, and returns the axes:
`axes.figure.savefig(path)` writes the picture. A picture with several panels takes and returns an array of axes, one
a panel: `axes[0].figure.savefig(path)`. Matplotlib's global state is not used, except by the plots of chains (ArviZ).

`lamu.plots.style.save_adaptive(axes.figure, "picture.svg")` writes a picture that suits light and dark pages.
"""

from lamu.plots.models import (
    evidence_curve,
    forest,
    influence,
    prior_functions,
    training_curve,
    validation_curve,
    weight_posteriors,
)
from lamu.plots.plane import analogies, decision_boundary, entropy_map, image_rows, latent_map, predictive_bands
from lamu.plots.trust import coverage, energy, reliability, risk_coverage, trace, uncertainty_shift

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
