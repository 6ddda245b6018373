"""The scale of the prior by validation: it goes where the data need it, and learns from all rows at the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamu
from lamu import validation_choice
from lamu.priors import LearnedNormal, Normal

rng = np.random.default_rng(0)


def _problem(strength: float, noise: float) -> tuple[lamu.Model, tuple[np.ndarray, np.ndarray]]:
    """A line through 40 rows of 12 columns, whose slopes have a deviation of `strength`."""
    x = rng.normal(size=(40, 12))
    y = x @ (strength * rng.normal(size=12)) + noise * rng.normal(size=40)
    likelihood = lamu.likelihoods.Gaussian(scale=noise)
    return lamu.Model(lamu.networks.Linear(), likelihood, LearnedNormal(0.5)), (x, y)


def test_the_width_follows_the_weights() -> None:
    chosen = {}
    for strength in (3.0, 0.05):
        model, data = _problem(strength, noise=1.0)
        found = lamu.fit_prior_scale(model, data, lamu.algorithms.adam(0.1), epochs=60, batch_size=40)
        assert found.scales[found.posterior.model.prior.scale] == min(found.scales.values())
        chosen[strength] = found.posterior.model.prior.scale
    assert chosen[3.0] > 0.5 > chosen[0.05]


def test_the_last_run_sees_all_rows() -> None:
    model, (x, y) = _problem(1.0, noise=1.0)
    algorithm = lamu.algorithms.adam(0.1)
    found = lamu.fit_prior_scale(model, (x, y), algorithm, epochs=3, batch_size=40)
    under = lamu.Model(model.network, model.likelihood, found.posterior.model.prior)
    alone = lamu.fit(under, (x, y), algorithm, epochs=3, batch_size=40)
    assert (found.posterior.predict(x).mean == alone.posterior.predict(x).mean).all()
    assert "validation_nll" not in found.fit.history
    assert isinstance(found, lamu.PriorScaleFit)


@pytest.mark.parametrize(
    ("prior", "algorithm"),
    [
        (Normal(1.0), lamu.algorithms.adam(0.1)),
        (LearnedNormal(1.0), lamu.algorithms.laplace(lamu.algorithms.adam(0.1))),
    ],
)
def test_nothing_is_tried_where_nothing_is_to_choose(prior: Any, algorithm: Any) -> None:
    model, data = _problem(1.0, noise=1.0)
    found = lamu.fit_prior_scale(
        lamu.Model(model.network, model.likelihood, prior), data, algorithm, epochs=3, batch_size=40
    )
    assert found.scales == {}
    assert isinstance(found.posterior.model.prior, Normal)


def test_a_run_that_keeps_the_first_guess_says_so(caplog: pytest.LogCaptureFixture) -> None:
    model, (x, y) = _problem(1.0, noise=1.0)
    adam, short = lamu.algorithms.adam(0.1), {"epochs": 1, "batch_size": 40}
    lamu.fit(model, (x, y), adam, **short)
    assert "keeps its first guess, a scale of 0.5" in caplog.text
    caplog.clear()
    lamu.fit(model, (x, y), lamu.algorithms.laplace(adam), **short)
    found = lamu.fit_temperature(model, (x, y), lamu.mcmc.sghmc(warmup=2, draws=2), temperatures=(1.0, 0.5))
    lamu.sklearn.BayesianRegressor(network=lamu.networks.Linear(), algorithm=adam, **short).fit(x, y)
    assert found.posterior.model.prior == Normal(0.5)
    assert "first guess" not in caplog.text


def test_a_width_under_which_a_run_diverges_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = _problem(0.1, noise=1.0)
    run, bad = lamu.fit, {0.25, 0.125}

    def fit(under: Any, *given: Any, **options: Any) -> Any:
        if under.prior.scale in bad:
            raise lamu.Diverged("the loss is inf at step 3", None)
        return run(under, *given, **options)

    monkeypatch.setattr(validation_choice, "fit", fit)
    settings = {"epochs": 3, "batch_size": 40}
    found = lamu.fit_prior_scale(model, data, lamu.algorithms.adam(0.1), **settings)
    assert found.scales[0.25] == np.inf
    assert np.isfinite(min(found.scales.values()))
    bad |= {0.0625, 0.5, 1.0, 2.0, 4.0}
    with pytest.raises(lamu.Diverged, match="at step 3"):
        lamu.fit_prior_scale(model, data, lamu.algorithms.adam(0.1), **settings)


def test_options_of_one_run_are_refused() -> None:
    model, data = _problem(1.0, noise=1.0)
    with pytest.raises(ValueError, match="stop=3 is about one run"):
        lamu.fit_prior_scale(model, data, lamu.algorithms.adam(0.1), stop=3)
