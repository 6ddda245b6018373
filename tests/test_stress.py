"""The long ones: `make stress`."""

from __future__ import annotations

import numpy as np
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
