"""Settings that once gave an answer in silence: numbers that no run can have, and a result that nobody can read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import lamu
from lamu.algorithms import adagrad, adam, rmsprop
from lamu.sklearn import BayesianRegressor
from tests.for_each import for_each

X = np.random.default_rng(0).normal(size=(30, 3))
Y = X[:, 0] + 0.1
MODEL = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5))


@for_each("value", [math.inf, math.nan, 0.0, -1.0])
def test_a_rate_is_positive_and_finite(value: float) -> None:
    with pytest.raises(ValueError, match="learning_rate="):
        adam(value)
    with pytest.raises(ValueError, match="start="):
        lamu.rate.Annealed(value)


@pytest.mark.parametrize("make", [adam, rmsprop, adagrad])
@pytest.mark.parametrize("eps", [-1.0, math.nan, math.inf])
def test_what_shields_a_division_is_not_negative(make: Any, eps: float) -> None:
    with pytest.raises(ValueError, match="eps="):
        make(0.1, eps=eps)


@pytest.mark.parametrize("make", ["ivon", "vogn", "slang", "noisy_kfac", "bsam", "von", "rmsprop"])
def test_a_curvature_to_start_at_is_not_negative(make: str) -> None:
    """The loss was NaN at the first step, with the advice to lower the learning rate."""
    with pytest.raises(ValueError, match=r"hess_init=-1\.0 is no curvature of a row to start at"):
        getattr(lamu.algorithms, make)(hess_init=-1.0)


@pytest.mark.parametrize("length", [{"epochs": -2}, {"steps": 0}, {"steps": -1}])
def test_a_length_is_a_number_of_steps(length: Any) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        lamu.fit(MODEL, (X, Y), adam(0.1), **length)


def test_a_fit_is_one_line() -> None:
    fit = lamu.fit(MODEL, (X, Y), adam(0.1), epochs=3)
    assert repr(fit).startswith("Fit(Point about Linear, 3 steps, loss ")
    assert len(repr(fit)) < 200
    shown = repr(fit.posterior)
    assert shown.startswith(f"Posterior(Point about Linear, {len(X)} rows, temperature 1")
    assert "\n" not in shown
    assert len(shown) < 200
    cold = lamu.fit(MODEL, (X, Y), lamu.algorithms.ivon(), epochs=3, temperature=0.5)
    assert "temperature 0.5" in repr(cold)


PAIR = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
LABELS = (X[:, 0] > 0).astype(np.int32)


@pytest.mark.parametrize("score", ["nll", "accuracy", "ece", "brier"])
def test_labels_that_are_no_classes_of_the_prediction_are_refused(score: str) -> None:
    pred = lamu.fit(PAIR, (X, LABELS), adam(0.1), epochs=5).posterior.predict(X)
    scored = getattr(lamu.scores, score)
    assert np.isfinite(scored(pred, LABELS))
    with pytest.raises(ValueError, match="these hold -1"):
        scored(pred, 2 * LABELS - 1)
    with pytest.raises(ValueError, match="1 of 30 are NaN"):
        scored(pred, np.where(np.arange(30) == 4, np.nan, LABELS))


@pytest.mark.parametrize("score", ["nll", "rmse", "coverage", "crps"])
def test_unknown_targets_are_no_misses(score: str) -> None:
    pred = lamu.fit(MODEL, (X, Y), adam(0.1), epochs=5).posterior.predict(X)
    with pytest.raises(ValueError, match="2 of 30 are NaN or infinite"):
        getattr(lamu.scores, score)(pred, np.where(np.arange(30) < 2, np.nan, Y))
    with pytest.raises(ValueError, match="2 of 30 are masked"):
        getattr(lamu.scores, score)(pred, np.ma.masked_array(Y, np.arange(30) < 2))


def test_masked_values_are_no_data() -> None:
    x = np.ma.masked_array(X, np.zeros_like(X, bool))
    lamu.fit(MODEL, (x, Y), adam(0.1), epochs=1)
    x[3, 1] = np.ma.masked
    with pytest.raises(ValueError, match="x has 1 masked values"):
        lamu.fit(MODEL, (x, Y), adam(0.1), epochs=1)
    with pytest.raises(ValueError, match="y has 5 masked values"):
        lamu.fit(MODEL, (X, np.ma.masked_array(Y, np.arange(30) < 5)), adam(0.1), epochs=1)
    with pytest.raises(ValueError, match="x has 1 masked values"):
        MODEL.standardised(x, Y)
    with pytest.raises(ValueError, match="x has 1 masked values"):
        MODEL.inputs(x)  # of predictions
    with pytest.raises(ValueError, match="X has 1 masked values"):
        BayesianRegressor().fit(x, Y)
    with pytest.raises(ValueError, match="y has 5 masked values"):
        BayesianRegressor().fit(X, np.ma.masked_array(Y, np.arange(30) < 5))


def test_what_regression_cannot_read_is_named() -> None:
    for x in (X, pd.DataFrame(X, columns=[*"abc"])):
        rows = np.array(x)
        rows[3, 1] = np.nan
        with pytest.raises(ValueError, match=r"x is NaN or infinite in .* in row 3, column 1"):
            lamu.regression(rows if x is X else pd.DataFrame(rows, columns=[*"abc"]), Y)
    with pytest.raises(TypeError, match=r"x is sparse, a csr_matrix; give x.toarray\(\)"):
        lamu.regression(sparse.csr_matrix(X), Y)
    assert lamu.regression(X, Y > 0).predict(X[:2]).mean.shape == (2,)  # truth values are zeros and ones


def test_words_are_no_targets_of_a_score() -> None:
    pred = lamu.regression(X, Y).predict(X)
    with pytest.raises(TypeError, match="rmse needs numbers, and these targets hold 'no'"):
        lamu.scores.rmse(pred, np.full(30, "no"))


@pytest.mark.parametrize(
    "fit",
    [
        lambda x, y: lamu.fit(MODEL, (x, y), adam(), steps=2),
        lambda x, y: lamu.data.Arrays.of({"x": x, "y": np.asarray(y), "weight": abs(y)}),
        lambda x, y: lamu.data.Arrays.of((x.to_xarray().to_array().T, y.to_xarray())),
        lambda x, y: lamu.fit_table(x, y, lamu.likelihoods.Gaussian(), folds=2, steps=15),
        lamu.regression,
        BayesianRegressor(network=lamu.networks.Linear()).fit,
    ],
)
@pytest.mark.filterwarnings("ignore::lamu.Unconverged")
def test_rows_whose_labels_are_in_another_order_are_refused(fit: Any) -> None:
    """They were matched by their position, so that nothing could be learned of y."""
    x, y = pd.DataFrame(X, columns=list("abc")), pd.Series(Y)
    with pytest.raises(
        ValueError, match=r"row 0 of [xX] has the label 0 and that of .* \d+: .*another order, and rows"
    ):
        fit(x, y.sort_values())
    fit(x, y)


def test_rows_with_other_labels_are_matched_by_their_position() -> None:
    x, y = pd.DataFrame(X, columns=list("abc")), pd.Series(Y)
    for labels in (y.index + 1, [0] * len(y), list("ab") * 15):
        assert lamu.data.Arrays.of((x, y.set_axis(labels))).count == 30
