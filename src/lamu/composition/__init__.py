"""Composition: several posteriors as one, and posteriors made of repeated fits.

`average` weighs posteriors by their evidence, `stack` by how well they predict held-out rows; both give a `Composition`
that predicts as a posterior does. `bootstrap` and `sandwich` are the frequentist's baselines: how far the estimate
would move with other rows.
"""

from lamu.composition.composed import Composition, average, load_composition, stack
from lamu.composition.resampling import bootstrap
from lamu.composition.sandwich_estimate import sandwich

__all__ = ["Composition", "average", "bootstrap", "load_composition", "sandwich", "stack"]
