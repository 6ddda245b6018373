"""Scores: how good a prediction is. Plain functions of a predictive and the targets, each a number.

A prediction is what `posterior.predict` returns; of it, the scores read `task` ("regression", "binary" or "classes"),
`mean`, `std`, `log_prob(y)`, `cdf(y)`, `interval(level)` and `prediction_set(level)`.

A score of a few hundred rows is itself uncertain: `with_error` gives it with its standard error, and `difference`
compares two predictions of the same rows, pair by pair.
"""

from lamu.scores.closeness import agreement, total_variation
from lamu.scores.densities import crps, nll
from lamu.scores.doubt import RiskCoverage, aurc, auroc, risk_coverage
from lamu.scores.errors import accuracy, brier, rmse
from lamu.scores.estimate import Estimate
from lamu.scores.frequencies import Reliability, coverage, ece, reliability
from lamu.scores.sampling import difference, with_error

__all__ = [
    "Estimate",
    "Reliability",
    "RiskCoverage",
    "accuracy",
    "agreement",
    "aurc",
    "auroc",
    "brier",
    "coverage",
    "crps",
    "difference",
    "ece",
    "nll",
    "reliability",
    "risk_coverage",
    "rmse",
    "total_variation",
    "with_error",
]
