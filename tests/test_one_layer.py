"""`lamu.regression`: the posterior of a generalised linear model in one line."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import special
from scipy.optimize import minimize

import lamu
from lamu.data import FewRows
from lamu.likelihoods.table import LIKELIHOODS
from lamu.predictives import StudentPredictive

RANDOM = np.random.default_rng(0)
X = RANDOM.normal([3.0, -1.0], [2.0, 0.5], size=(120, 2))
Z = (X - X.mean(axis=0)) / X.std(axis=0)
F = Z @ [0.6, -0.4] + 0.5


def flat(posterior) -> np.ndarray:
    """The intercept, then the slopes."""
    layer = posterior.mean["network"]["layers"][0]
    return np.concatenate([layer["bias"], layer["kernel"][:, 0]])


def test_poisson_is_the_mode_and_its_precision_under_the_documented_prior() -> None:
    y = RANDOM.poisson(np.exp(F))
    posterior = lamu.regression(X, y, likelihood="poisson")
    design, scale = np.column_stack([np.ones(120), Z]), np.array([10.0, 2.5, 2.5])

    def loss(w: np.ndarray) -> float:
        f = design @ w
        return float(np.sum(np.exp(f) - y * f) + np.sum((w / scale) ** 2) / 2)

    mode = minimize(loss, np.zeros(3), tol=1e-10).x
    np.testing.assert_allclose(flat(posterior), mode, atol=2e-3)
    precision = posterior.belief.factors["network"].precision.dense(posterior.mean["network"])
    expected = design.T @ (np.exp(design @ mode)[:, None] * design) + np.diag(scale**-2)
    np.testing.assert_allclose(precision, expected, rtol=5e-3, atol=0.05)
    assert np.isfinite(float(posterior.evidence))


def test_gaussian_targets_are_exact() -> None:
    y = 20.0 + 5.0 * F + 2.0 * RANDOM.normal(size=120)
    learned = lamu.regression(X, y)
    assert isinstance(learned.predict(X), StudentPredictive)
    np.testing.assert_allclose(np.sqrt(float(np.mean(learned.predict(X).aleatoric))), 2.0, rtol=0.2)
    given = lamu.regression(X, y, lamu.likelihoods.Gaussian(0.5))
    design, scale = np.column_stack([np.ones(120), Z]), np.array([10.0, 2.5, 2.5])
    precision = design.T @ design / 0.25 + np.diag(scale**-2)
    mean = np.linalg.solve(precision, design.T @ ((y - y.mean()) / y.std()) / 0.25)
    np.testing.assert_allclose(flat(given), mean, atol=1e-4)


def test_draws_on_request_agree_with_laplace() -> None:
    y = RANDOM.poisson(np.exp(F))
    near = lamu.regression(X, y, "poisson")
    draws = lamu.regression(X, y, "poisson", algorithm=lamu.mcmc.nuts(chains=2, warmup=200, draws=400), seed=1)
    layer = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(800, -1), draws.samples["network"]["layers"][0])
    table = np.concatenate([layer["bias"], layer["kernel"]], axis=1)
    # Of 800 draws, an eighth of them independent at worst, a mean is within 0.1 sd but for 4 standard errors of 0.1.
    np.testing.assert_array_less(np.abs(table.mean(axis=0) - flat(near)) / table.std(axis=0), 0.4)


def test_frames_are_matched_by_name_and_truth_values_are_numbers() -> None:
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": RANDOM.random(120) < 0.5})
    y = RANDOM.binomial(9, special.expit(F))
    posterior = lamu.regression(frame, {"value": y, "trials": np.full(120, 9)}, "binomial")
    turned = frame[["c", "b", "a"]]
    mine, theirs = (posterior.predict({"x": x, "trials": 9}).mean for x in (frame, turned))
    np.testing.assert_allclose(mine, theirs)
    assert abs(float(np.mean(mine)) - y.mean()) < 0.2


def test_ordered_classes_are_counted() -> None:
    y = np.digitize(F + RANDOM.logistic(size=120), [-0.5, 1.0])
    assert lamu.regression(X, y, "ordinal").predict(X).mean.shape == (120, 3)


def test_rare_events_are_warned_of() -> None:
    """Of one in 120 rows the mean probability is five times the frequency."""
    with pytest.warns(FewRows, match=r"class 1 has 1 in 120 rows, .*take algorithm=lamu.mcmc.nuts\(\)"):
        rare = lamu.regression(X, np.arange(120) == 7, "logit")
    assert float(np.mean(rare.predict(X).mean)) > 2 / 120
    with pytest.warns(FewRows, match="the counts sum to 3 in 120 rows"):
        lamu.regression(X, 3 * (np.arange(120) == 7), "poisson")
    with pytest.warns(FewRows, match="class 1 has 2 in 121 rows"):
        lamu.regression(X, np.arange(120) == 7, "logit", weight=1.0 + (np.arange(120) == 7))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lamu.regression(X, np.arange(120) % 8 == 0, "logit")
        lamu.regression(X, np.arange(120) == 7, "logit", weight=1.0 + 19.0 * (np.arange(120) == 7))


def test_mistakes_are_told_in_one_sentence() -> None:
    frame = pd.DataFrame({"a": X[:, 0], "sex": ["m", "f"] * 60})
    for arguments, words in (
        ((X, F, "poison"), "there is no likelihood 'poison'; did you mean 'poisson'"),
        ((X, F, "lognormal"), "there is no likelihood 'lognormal'; did you mean 'gamma'"),
        ((X, F, "Bernoulli"), "there is no likelihood 'Bernoulli'; did you mean 'logit'"),
        ((X[:, 0], F), r"x has the shape \(120,\); give \[rows, columns\]"),
        ((frame, F), r"the column 'sex' holds \['m'\], which is not a number; code it"),
        ((X, F, "poisson"), "Poisson takes whole numbers from 0"),
        ((X, np.array(["a", "b"] * 60), "categorical"), "encode the classes"),
    ):
        with pytest.raises(ValueError, match=words):
            lamu.regression(*arguments)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "y"),
    [
        ("von_mises", np.sin(X[:, 0])),
        ("zero_inflated_negative_binomial", np.arange(120) % 5),
        ("poisson_square_root", np.arange(120) % 5),
        ("gamma_reciprocal", 1.0 + np.arange(120) % 5),
    ],
)
def test_names_of_further_links_and_supports_have_a_posterior(name: str, y: np.ndarray) -> None:
    pred = lamu.regression(X, y, name, algorithm=lamu.algorithms.adam()).predict(X[:3])
    assert pred.mean.shape == (3,)
    assert np.isfinite(pred.log_prob(y[:3])).all()


def test_every_name_is_a_likelihood_of_its_task() -> None:
    for name, (task, make) in LIKELIHOODS.items():
        assert make(3).task == task, name


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
def test_a_weight_of_two_is_the_row_written_twice(likelihood: str) -> None:
    counts = RANDOM.integers(0, 4, 120)
    y = RANDOM.poisson(np.exp(F)).astype(float)
    once = lamu.regression(X, y, likelihood, weight=counts)
    written = lamu.regression(np.repeat(X, counts, axis=0), np.repeat(y, counts), likelihood)
    ours, theirs = once.predict(X), written.predict(X)
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-4)
    np.testing.assert_allclose(ours.std, theirs.std, rtol=1e-3)
    np.testing.assert_allclose(once.evidence, written.evidence, rtol=1e-4)


def test_an_exposure_is_an_offset_of_fit_and_prediction() -> None:
    exposure = RANDOM.uniform(0.5, 20.0, 120)
    y = RANDOM.poisson(exposure * np.exp(F))
    posterior = lamu.regression(X, y, "poisson", offset=np.log(exposure))
    design = np.column_stack([np.ones(120), Z])
    loss = lambda w: float(
        np.sum(exposure * np.exp(design @ w) - y * (design @ w)) + np.sum((w / [10, 2.5, 2.5]) ** 2) / 2
    )
    np.testing.assert_allclose(flat(posterior), minimize(loss, np.zeros(3), tol=1e-10).x, atol=2e-3)
    told = posterior.predict(X, offset=np.log(exposure))
    np.testing.assert_allclose(told.mean, exposure * np.asarray(posterior.predict(X).mean), rtol=1e-4)
    brought = posterior.predict({"x": X, "offset": np.log(exposure)})
    np.testing.assert_array_equal(brought.mean, told.mean)
    with pytest.raises(ValueError, match="give one of them"):
        posterior.predict({"x": X, "offset": np.log(exposure)}, offset=np.log(exposure))


def test_an_offset_of_a_gaussian_is_a_known_part_of_its_mean() -> None:
    y = 20.0 + 5.0 * F + 2.0 * RANDOM.normal(size=120)
    part = RANDOM.normal(size=120)  # in standard deviations of the target, the units of f
    plain, known = (
        lamu.regression(X, y),
        lamu.regression(X, y + y.std() * part, offset=part * y.std() / (y + y.std() * part).std()),
    )
    told = known.predict(X[:5], offset=(part * y.std() / (y + y.std() * part).std())[:5])
    np.testing.assert_allclose(told.mean, np.asarray(plain.predict(X[:5]).mean) + (y.std() * part)[:5], rtol=1e-3)
    np.testing.assert_allclose(told.std, plain.predict(X[:5]).std, rtol=2e-2)  # the prior's scale has other units
