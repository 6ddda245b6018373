"""Scores: how good a prediction is. Plain functions of a predictive and the targets, each a number.

A prediction is what `posterior.predict` returns; of it, the scores read `support` (numbers or classes), `mean`,
 `std`, `log_prob(y)`, `cdf(y)`, `interval(level)` and `prediction_set(level)`.

A score of a few hundred rows is itself uncertain: `with_error` gives it with its standard error, and `difference`
compares two predictions of the same rows, pair by pair.

What follows from a prediction is here too: decisions under a utility, and what it costs not to know better
(`expected_utility` and its neighbours); how strange a row is (`entropy`, `mutual_information`, `least_confidence`,
`energy`, `mahalanobis`, all higher where stranger); whether new rows are of another kind (`drift`); and how close a
posterior comes to a reference (`fidelity`).
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
