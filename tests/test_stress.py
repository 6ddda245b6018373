"""The long ones: `make stress`."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import lamu
from tests.test_one_model import CASES, test_nuts_is_the_textbook_within_monte_carlo_error

pytestmark = pytest.mark.stress


@pytest.mark.parametrize(("rows", "temperature", "scaled"), CASES)
def test_nuts_is_the_textbook_in_every_case(rows: int, temperature: float, scaled: bool) -> None:
    test_nuts_is_the_textbook_within_monte_carlo_error(rows, temperature, scaled)


@pytest.mark.parametrize("name", ["adam", "ivon", "vogn", "last_layer", "deep_ensemble"])
def test_digits_are_learned_on_five_splits(name: str) -> None:
    """Shipped defaults, two layers of 64: a mean accuracy of 0.96 is what a broken scale or prior would not reach."""
    x, y = lamu.data.load("digits")
    accuracies = []
    for seed in range(5):
        train, test = lamu.data.split(y, test_size=0.2, seed=seed, stratify=True)
        model = lamu.Model(lamu.networks.MLP((64, 64)), lamu.likelihoods.Categorical(10), lamu.priors.Normal(0.5))
        model = model.standardised(x[train], y[train])
        fit = lamu.fit(model, (x[train], y[train]), getattr(lamu.algorithms, name)(), epochs=40, seed=seed)
        accuracies.append(lamu.scores.accuracy(fit.posterior.predict(x[test]), y[test]))
    assert np.mean(accuracies) >= 0.96


def test_ten_thousand_steps_keep_every_precision_positive() -> None:
    """A learning rate at which the straight step of the rule leaves the cone at once."""
    x, y = lamu.data.load("breast_cancer")
    model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Bernoulli()).standardised(x, y)
    fit = lamu.fit(model, (x, y), lamu.algorithms.ivon(0.05, b2=0.5), steps=10_000, batch_size=32)
    precisions = lamu.tree.ravel(fit.posterior.belief.factors["network"].precision.values)[0]
    assert np.isfinite(fit.history["loss"]).all()
    assert float(precisions.min()) > 0


def test_a_million_rows_are_fitted_within_two_and_a_half_gigabytes(tmp_path) -> None:
    """Of a table of 80 MB, in a process of its own; the time is that of any machine."""
    random = np.random.default_rng(0)
    x = random.normal(size=(1_000_000, 9))
    kind = random.integers(0, 4, len(x))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * np.abs(x[:, 3]) + kind / 4
    y += np.where(x[:, 4] > 0, 0.5, 0.3) * random.normal(size=len(x))
    frame = pd.DataFrame(x, columns=[f"x{c}" for c in range(9)]).assign(kind=np.array(list("abcd"))[kind], y=y)
    frame.to_parquet(tmp_path / "million.parquet", row_group_size=100_000)
    program = (
        "import resource, sys; from lamu.cli import main; code = main(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); sys.exit(code)"
    )
    words = ("fit", tmp_path / "million.parquet", "--target", "y", "--out", tmp_path / "run", "--no-report")
    ran = subprocess.run([sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True, check=True)
    assert int(ran.stderr.split()[-1]) * 1024 < 2.5e9
    scores = json.loads((tmp_path / "run" / "metrics.json").read_text())["scores"]
    entropy = np.log([0.3, 0.5]).mean() + 0.5 * np.log(2 * np.pi * np.e)
    assert entropy - 0.01 < scores["nll"] < entropy + 0.05
    assert 0.88 < scores["coverage"] < 0.92


def test_rows_beyond_the_allowed_memory_are_refused() -> None:
    with lamu.memory.within("1MB"), pytest.raises(ValueError, match=r"the fit of 20,000 rows takes .* take fewer rows"):
        lamu.fit_table(np.zeros((20_000, 10)), np.arange(20_000.0), lamu.likelihoods.Gaussian())
