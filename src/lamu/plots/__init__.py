"""Pictures of how far a prediction can be trusted, drawn without any global state.

A function returns a figure, or, where it takes axes, the axes that it drew on. Both are matplotlib's own:
`figure.savefig(path)` and `axes.figure.savefig(path)` write them.
"""

from lamu.plots.abstention import risk_coverage
from lamu.plots.boundaries import decision_boundary
from lamu.plots.classes import reliability
from lamu.plots.comparisons import forest
from lamu.plots.entropies import entropy_map
from lamu.plots.images import image_rows
from lamu.plots.intervals import coverage
from lamu.plots.latents import latent_map
from lamu.plots.prior_draws import prior_functions
from lamu.plots.rows import influence
from lamu.plots.training import training_curve, validation_curve

__all__ = [
    "coverage",
    "decision_boundary",
    "entropy_map",
    "forest",
    "influence",
    "prior_functions",
    "reliability",
    "risk_coverage",
    "training_curve",
    "validation_curve",
    "image_rows",
    "influence",
    "latent_map",
    "prior_functions",
    "reliability",
]
