"""Pictures of how far a prediction can be trusted, drawn without any global state (those of chains, by ArviZ, apart).

Every function takes matplotlib's axes, or makes a figure where none are given, and returns the axes that it drew on:
`axes.figure.savefig(path)` writes the picture. A picture of several panels takes and returns an array of axes, one a
panel: `axes[0].figure.savefig(path)`.

`lamu.plots.style.save_adaptive(axes.figure, "picture.svg")` writes a picture for light and dark pages.
"""

from lamu.plots.abstention import risk_coverage
from lamu.plots.bands import predictive_bands
from lamu.plots.boundaries import decision_boundary
from lamu.plots.chains import energy, trace
from lamu.plots.class_sweep import analogies
from lamu.plots.classes import reliability
from lamu.plots.comparisons import forest
from lamu.plots.entropies import entropy_map
from lamu.plots.evidence import evidence_curve
from lamu.plots.images import image_rows
from lamu.plots.intervals import coverage
from lamu.plots.latents import latent_map
from lamu.plots.novelty import uncertainty_shift
from lamu.plots.prior_draws import prior_functions
from lamu.plots.rows import influence
from lamu.plots.training import training_curve, validation_curve
from lamu.plots.weights import weight_posteriors

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
