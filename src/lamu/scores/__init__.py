"""Scores of predictions: functions of a predictive and the targets that return a number.

A prediction is the result of `posterior.predict`; the scores use its `support` (numbers or classes), `mean`,
 `std`, `log_prob(y)`, `cdf(y)`, `interval(level)` and `prediction_set(level)`.

A score of a few hundred rows is itself uncertain: `with_error` returns it with its standard error, and `difference`
compares two predictions of the same rows in pairs.

Further functions of predictions: decisions under a utility and their regret (`expected_utility` and others);
out-of-distribution scores of rows (`entropy`, `mutual_information`, `least_confidence`, `energy`, `mahalanobis`, all
higher for stranger rows); tests of distribution shift (`drift`); and the agreement of a posterior with a reference
(`fidelity`).
"""

from lamu.scores.calibration import (
    Estimate,
    Reliability,
    coverage,
    difference,
    ece,
    ece_if_calibrated,
    reliability,
    with_error,
)
from lamu.scores.decisions import (
    RiskCoverage,
    aurc,
    auroc,
    expected_regret,
    expected_utility,
    least_expected_loss,
    realised_regret,
    risk_coverage,
    value_of_information,
    with_question,
)
from lamu.scores.fidelities import Fidelity, Moments, agreement, fidelity, moments, total_variation, wasserstein
from lamu.scores.ood import (
    Drift,
    Mahalanobis,
    drift,
    energy,
    entropy,
    kernel_drift,
    least_confidence,
    mahalanobis,
    mutual_information,
)
from lamu.scores.proper_scores import accuracy, brier, crps, nll, rmse
from lamu.scores.row_densities import (
    RowLogProb,
    UnreliableWeights,
    amortisation_gap,
    annealed_importance,
    elbo,
    evidence,
    mean_bound,
    mean_log_prob,
    row_log_prob,
)

__all__ = [
    "Drift",
    "Estimate",
    "Fidelity",
    "Mahalanobis",
    "Moments",
    "Reliability",
    "RiskCoverage",
    "RowLogProb",
    "UnreliableWeights",
    "accuracy",
    "agreement",
    "amortisation_gap",
    "annealed_importance",
    "aurc",
    "auroc",
    "brier",
    "coverage",
    "crps",
    "difference",
    "drift",
    "ece",
    "ece_if_calibrated",
    "elbo",
    "energy",
    "entropy",
    "evidence",
    "expected_regret",
    "expected_utility",
    "fidelity",
    "kernel_drift",
    "least_confidence",
    "least_expected_loss",
    "mahalanobis",
    "mean_bound",
    "mean_log_prob",
    "moments",
    "mutual_information",
    "nll",
    "realised_regret",
    "reliability",
    "risk_coverage",
    "rmse",
    "row_log_prob",
    "total_variation",
    "value_of_information",
    "wasserstein",
    "with_error",
    "with_question",
]
