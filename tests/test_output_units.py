"""Outputs about a constant in units: predictions of positive targets do not depend on their unit under any link."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.folds import centred, in_units
from lamu.likelihoods import Gamma, PerPosition, Poisson, RightCensored, Weibull, ZeroInflated, links
from lamu.running.training_fit import constant_of

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 2))
Y = RANDOM.gamma(4.0, 1 / (4 * (1 + 0.25 * np.tanh(X[:, 0]))))
ROOTS, INVERSE = Poisson(links.SquareRoot()), Gamma(link=links.Reciprocal())


def quantiles(fitted: Any) -> np.ndarray:
    pred = fitted.predict(X[:5])
    return np.stack([pred.mean, *pred.interval(0.9)])


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_regression_under_a_reciprocal_link_does_not_depend_on_the_unit(scale: float) -> None:
    # Under the prior N(0, 10²) of 1/μ, targets of 1e-3 had predictions 24 times the mean.
    of = lambda y: quantiles(lamu.regression(X, y, INVERSE))
    np.testing.assert_allclose(of(scale * Y), scale * of(Y), rtol=1e-2)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_members_under_a_reciprocal_link_do_not_depend_on_the_unit(scale: float) -> None:
    def of(y: np.ndarray) -> np.ndarray:
        model = lamu.Model(lamu.networks.Linear(), INVERSE).standardised(X, y)
        model, adam = centred(model, (X, y)), lamu.algorithms.adam(0.05)
        return quantiles(lamu.fit_folds(model, (X, y), adam, folds=2, epochs=3).posterior)

    np.testing.assert_allclose(of(scale * Y), scale * of(Y), rtol=1e-3)


def test_a_table_under_a_reciprocal_link_does_not_depend_on_the_unit() -> None:
    of = lambda y: quantiles(lamu.fit_table(X, y, INVERSE, folds=2, steps=30).posterior)
    np.testing.assert_allclose(of(1e-3 * Y), 1e-3 * of(Y), rtol=1e-3)


def test_a_unit_is_a_step_of_one_in_the_log_mean() -> None:
    for link, mean, unit in ((links.Reciprocal(), 1e3, 1e-3), (links.SquareRoot(), 400.0, 10.0)):
        f = link.forward(jnp.asarray([mean]))
        np.testing.assert_allclose(link.unit(f), [unit], rtol=1e-6)
        np.testing.assert_allclose(jnp.abs(link.log_slope(f)) * link.unit(f), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(links.SquareRoot().unit(jnp.array([0.0, 1e-3])), 0.5)  # no count, no narrow prior
    for link in (links.Log(), links.Identity(), links.Logit()):
        np.testing.assert_array_equal(link.unit(jnp.array([-3.0, 7.0])), 1.0)


def test_wrappers_have_the_units_of_their_base() -> None:
    f = jnp.array([30.0, -1.0])
    assert ZeroInflated(ROOTS).output_units(f).tolist() == [15.0, 1.0]
    assert ZeroInflated(ROOTS).output_start(jnp.array(900.0), jnp.zeros(2)).tolist() == [30.0, 0.0]
    maps = PerPosition(ROOTS, (2,))
    assert maps.output_start(jnp.array([900.0, 4.0]), jnp.zeros(2)).tolist() == [30.0, 2.0]
    assert maps.output_units(jnp.array([30.0, 2.0])).tolist() == [15.0, 1.0]
    assert RightCensored(INVERSE).output_units(jnp.array([5.0])).tolist() == [5.0]


@pytest.mark.parametrize(("likelihood", "y"), [(INVERSE, 1e3 * Y), (INVERSE, 1e-3 * Y), (ROOTS, np.round(1e3 * Y))])
def test_the_constant_of_a_link_with_units_is_the_mean(likelihood: Any, y: np.ndarray) -> None:
    batch = lamu.Model(lamu.networks.Linear(), likelihood).rows((X, y)).example(60)
    level, _ = constant_of(likelihood, batch)
    np.testing.assert_allclose(likelihood.link.inverse(jnp.asarray(level)), y.mean(), rtol=1e-3)


def test_logarithms_have_no_unit() -> None:
    model = lamu.Model(lamu.networks.Linear(), Gamma()).standardised(X, Y)
    network: Any = centred(model, (X, Y)).network
    assert network.unit is None
    assert in_units(model, (X, Y)) is model


def test_a_unit_scales_the_prior_of_the_weights(tmp_path: Any) -> None:
    y = RANDOM.poisson(400 * np.exp(0.3 * X[:, 0]))
    level, unit = np.array([20.0]), np.array([10.0])
    network = lamu.networks.Standardised(lamu.networks.Linear(), X.mean(axis=0), X.std(axis=0), level)
    plain = lamu.Model(network, ROOTS, lamu.priors.Normal(5.0))
    scaled = lamu.Model(replace(network, unit=unit), ROOTS, lamu.priors.Normal(0.5))
    newton = lamu.algorithms.laplace(lamu.algorithms.newton())
    found = [lamu.fit(model, (X, y), newton, steps=20, batch_size=60).posterior for model in (plain, scaled)]
    np.testing.assert_allclose(quantiles(found[1]), quantiles(found[0]), rtol=1e-6)
    again = lamu.load(found[1].save(tmp_path / "posterior"))
    np.testing.assert_array_equal(quantiles(again), quantiles(found[1]))


def test_the_mean_under_a_normal_belief_about_a_reciprocal_is_that_of_its_logarithm() -> None:
    # Nodes of a quadrature at 1/μ below zero, with a mean of a million each, were up to 2e5 times the mean.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pred = lamu.regression(X, Y, INVERSE).predict(X)
    assert (pred.mean / pred.quantile(0.5) < 1.3).all()
    f, step = jnp.array([2.0, 1e-9]), jnp.array([-1.0, -1.0])
    np.testing.assert_allclose(INVERSE.displaced(f, step), [2 * np.exp(-0.5), 1e-9 - 1.0])


def test_rows_without_a_mean_are_told() -> None:
    posterior = lamu.regression(X, Y, INVERSE)
    with pytest.warns(UserWarning, match="1 of 2 rows have outputs that are not above zero, where Gamma has no mean"):
        posterior.predict(np.array([[0.0, 0.0], [-100.0, 0.0]]))


@pytest.mark.parametrize(
    ("likelihood", "scale"), [(INVERSE, 1e7), (Gamma(), 1e15), (Weibull(), 1e15), (Gamma(), 1e-15)]
)
def test_targets_beyond_a_link_are_refused(likelihood: Any, scale: float) -> None:
    # Sixty Weibull durations of 1e15 were predicted to be about one.
    with pytest.raises(
        ValueError, match=r"about which \w+ has no means under \w+\(\); give them in other units, y / 1e"
    ):
        lamu.Model(lamu.networks.Linear(), likelihood).read((X, scale * Y))


@pytest.mark.parametrize("likelihood", [Gamma(), Weibull(), Poisson()])
def test_the_constant_of_targets_far_from_one_is_found(likelihood: Any) -> None:
    # A search from zero ended 5.8 from the log mean of gamma targets of 1e12, and 26 from that of Weibull ones.
    y, scale = np.ceil(Y * 1e3), 1e9
    constant = lambda y: constant_of(
        likelihood, lamu.Model(lamu.networks.Linear(), likelihood).rows((X, y)).example(60)
    )
    np.testing.assert_allclose(constant(scale * y)[0], constant(y)[0] + np.log(scale), atol=0.01)
