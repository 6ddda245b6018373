"""Scores: how good a prediction is. Plain functions of a predictive and the targets, each a number.

A prediction is what `posterior.predict` returns; of it, the scores read `task` ("regression", "binary" or "classes"),
`mean`, `std`, `log_prob(y)`, `cdf(y)`, `interval(level)` and `prediction_set(level)`.
"""

from lamu.scores.densities import crps, nll
from lamu.scores.errors import accuracy, brier, rmse
from lamu.scores.frequencies import coverage, ece

__all__ = ["accuracy", "brier", "coverage", "crps", "ece", "nll", "rmse"]
