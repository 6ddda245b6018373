"""Likelihoods compared by rows held out, and what the command line makes of it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import lamu
from lamu.cli.learning import candidates, choose
from lamu.data import Encoding
from tests.command_line import QUICK, runner

RANDOM = np.random.default_rng(0)
ROWS = 400
X = RANDOM.normal(size=(ROWS, 2))
F = X @ [0.8, -0.5]
MEAN = np.exp(F + 1.0)
NUMBERS = Encoding("y", "regression", (), ("a", "b"))
GRADES = Encoding("y", "classes", (3, 4, 5, 6), ("a", "b"))


@pytest.fixture
def lamu_at(capsys, tmp_path, monkeypatch):
    return runner(capsys, tmp_path, monkeypatch)


def test_a_gaussian_of_counts_has_the_probability_of_their_unit() -> None:
    """Of constant counts with noise the mode is known: a density would exceed the mass without bound."""
    y = RANDOM.poisson(MEAN)
    found = lamu.compare_likelihoods(X, y, ["gaussian", "poisson"])
    assert all(values.shape == (ROWS,) and (values < 0).all() for values in found.values())
    alone = lamu.compare_likelihoods(X, y / 1000.0, ["gaussian"])["gaussian"]
    assert alone.mean() > 0 > found["gaussian"].mean()


def test_rows_are_judged_by_models_that_have_not_seen_them() -> None:
    """One row is an outlier: the fold that has not seen it gives it far less than the fit of all rows would."""
    x, y = RANDOM.normal(size=(30, 1)), RANDOM.normal(size=30)
    y[7] = 40.0
    found = lamu.compare_likelihoods(x, y, ["gaussian"], folds=30)["gaussian"]
    others = np.delete(y, 7)
    fit = stats.linregress(np.delete(x[:, 0], 7), others)
    expected = stats.norm.logpdf(40.0, fit.intercept + fit.slope * x[7, 0], np.std(others))
    np.testing.assert_allclose(found[7], expected, rtol=0.2)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("encoding", "y", "kind", "chosen"),
    [
        (NUMBERS, RANDOM.poisson(MEAN), "counts", "poisson"),
        (NUMBERS, RANDOM.negative_binomial(1.0, 1.0 / (1.0 + MEAN)), "counts", "negative_binomial"),
        (NUMBERS, np.where(RANDOM.random(ROWS) < 0.4, 0, RANDOM.poisson(3 * MEAN)), "counts", None),
        (NUMBERS, RANDOM.gamma(3.0, MEAN / 3.0), "positive numbers", "gamma"),
        (NUMBERS, RANDOM.beta(4 / (1 + np.exp(-F)), 4 / (1 + np.exp(F))), "shares", "beta"),
        (NUMBERS, F + 0.5 * RANDOM.standard_t(2.5, ROWS), "numbers with heavy tails", "student_t"),
        (NUMBERS, F + 0.5 * RANDOM.normal(size=ROWS), "numbers", None),
        # Skewed about a line, and Gaussian about the curve.
        (NUMBERS, 1.0 + 8.0 * (X[:, 0] > 1.0) * X[:, 0] ** 2 + 0.1 * np.abs(np.sin(9 * X[:, 1])), "numbers", None),
        (NUMBERS, np.round(100 + 10 * F + 5 * RANDOM.normal(size=ROWS)), "large counts", None),
        (GRADES, np.digitize(F + RANDOM.logistic(size=ROWS), [-1.0, 0.3, 1.5]), "whole-numbered classes", "ordinal"),
        (GRADES, np.array([2, 0, 3, 1])[np.digitize(F, [-1.0, 0.0, 1.0])], "classes", None),
    ],
)
def test_the_right_likelihood_is_chosen(encoding, y, kind, chosen) -> None:
    assert candidates(encoding, X, y)[0] == kind
    found = choose(encoding, {"x": X, "y": y}, seed=0)
    if kind == "counts" and chosen is None:  # more zeros than any other has
        assert found.name in ("zero_inflated_poisson", "negative_binomial")
    else:
        assert found.name == chosen
        assert ("--likelihood overrides" in found.why) == (chosen is not None)


@pytest.mark.stress
def test_fit_says_which_likelihood_and_why(lamu_at, tmp_path) -> None:
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "visits": RANDOM.poisson(MEAN)})
    table.to_csv(tmp_path / "visits.csv", index=False)
    ran = lamu_at("fit", "visits.csv", "--target", "visits", "--task", "regression", "--out", "run", *QUICK)
    assert ran.code == 0, ran.err
    assert "likelihood poisson: 'visits' is of counts" in ran.out
    assert "--likelihood overrides" in ran.out
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["likelihood"] == "poisson"
    assert min(config["likelihoods_tried"], key=config["likelihoods_tried"].get) == "poisson"
    assert (pd.read_csv(tmp_path / "run" / "predictions.csv")["lower"] >= 0).all()
