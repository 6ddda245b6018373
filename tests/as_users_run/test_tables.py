"""Tables: `fit_table`, the estimators and the command line as they ship, and what they say once loaded."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lamu
from lamu.cli import main
from lamu.likelihoods import Bernoulli, Categorical, Gaussian, Poisson
from lamu.networks import Linear
from lamu.sklearn import BayesianClassifier, BayesianRegressor, load

RANDOM = np.random.default_rng(0)
X = np.column_stack([RANDOM.normal(size=(80, 2)), RANDOM.integers(1, 4, 80)])
SIGNAL = X[:, 0] - X[:, 1] + (X[:, 2] == 2)
NOISY = SIGNAL + 0.3 * RANDOM.normal(size=80)
TARGETS = {
    "numbers": (Gaussian(), 50 + NOISY, NOISY.std()),
    "counts": (Poisson(), RANDOM.poisson(np.exp(SIGNAL)), None),
    "two classes": (Bernoulli(), (NOISY > 0).astype(int), None),
    "classes": (Categorical(3), np.digitize(NOISY, [-1.0, 1.0]), None),
}


@pytest.fixture(scope="module", params=TARGETS)
def name(request) -> str:
    return request.param


@cache
def fitted(name: str) -> lamu.StackedFit:
    likelihood, y, _ = TARGETS[name]
    return lamu.fit_table(X, y, likelihood, levels=(0, 0, 3), folds=2, steps=300)


def test_a_table_is_learned(name: str) -> None:
    """Rows that judge are unseen; in nats they are better told than by the frequencies of the targets."""
    _, y, spread = TARGETS[name]
    values, counts = np.unique(y, return_counts=True)
    constant = np.log(spread) + 1.42 if spread is not None else -(counts / 80) @ np.log(counts / 80)
    assert len(values) > 1
    assert fitted(name).stacked_nll < constant - 0.1


def test_a_table_predicts_the_same_once_loaded(name: str, tmp_path) -> None:
    posterior = fitted(name).posterior
    one, other = posterior.predict(X[:9]), lamu.load(posterior.save(tmp_path / "posterior")).predict(X[:9])
    assert np.asarray(one.mean).dtype == np.float32
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.variance, other.variance)


@pytest.mark.parametrize("kind", [BayesianRegressor, BayesianClassifier])
@pytest.mark.parametrize("algorithm", ["laplace", "ivon"])
def test_an_estimator_is_as_good_as_the_signal_and_loads(kind: type, algorithm: str, tmp_path) -> None:
    y = NOISY if kind is BayesianRegressor else (NOISY > 0).astype(int)
    estimator = kind(network=Linear(), algorithm=lamu.algorithms.registry()[algorithm].factory(), random_state=0)
    estimator.fit(X[:, :2], y)
    assert estimator.score(X[:, :2], y) > 0.8
    estimator.save(tmp_path / "estimator")
    np.testing.assert_array_equal(load(tmp_path / "estimator").predict(X[:, :2]), estimator.predict(X[:, :2]))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "word": np.array(["oak", "ash", "elm"])[X[:, 2].astype(int) - 1]})
    frame.assign(y=NOISY).to_csv(folder / "table.csv", index=False)
    words = ["fit", folder / "table.csv", "--target", "y", "--folds", "2", "--out", folder / "run"]
    assert main([str(word) for word in words]) == 0
    return folder


def test_the_command_line_fits_a_table_with_nothing_chosen(run: Path) -> None:
    metrics = json.loads((run / "run" / "metrics.json").read_text())
    assert metrics["scores"]["rmse"] < 0.6
    assert (run / "run" / "report.html").exists()


def test_the_command_line_predicts_what_it_has_written(run: Path) -> None:
    words = ["predict", str(run / "run"), str(run / "table.csv"), "--out", str(run / "out.csv")]
    assert main(words) == 0
    held, whole = pd.read_csv(run / "run" / "predictions.csv"), pd.read_csv(run / "out.csv")
    np.testing.assert_allclose(whole["mean"].to_numpy()[held["row"]], held["mean"], rtol=1e-4, atol=1e-4)
    assert len(whole) == 80
