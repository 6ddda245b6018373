"""Beliefs of algorithms without arguments, on small problems, beside references that do not know the library."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

import lamu
from lamu.convergence import Unconverged
from lamu.expectations import FenchelRelaxation
from lamu.geometry import Straight
from lamu.objective.curvature import Damped, RootScaledGradient, SquaredGradient
from lamu.update_rules import PlainAverage
from lamu_verification import problems
from lamu_verification.fixed_points import bernoulli, bound, gaussian_fixed_point, product_of_signs
from lamu_verification.problems import flat
from lamu_verification.references import linear_regression

pytestmark = pytest.mark.measured

A = lamu.algorithms
LOGISTIC = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli(), lamu.priors.Normal(1.0))


def weights(posterior: lamu.Posterior) -> tuple[np.ndarray, np.ndarray]:
    """Mean and precision of a diagonal Gaussian belief about the weights."""
    belief = posterior.belief.factors["network"]
    return flat(belief.mean), flat(belief.precision.diagonal(belief.mean))


def skewed(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of three scales, and labels of which a fifth are ones."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(rows, 3)) * [0.3, 1.0, 2.0] + [0.0, 0.5, 0.0]
    chance = 1 / (1 + np.exp(2.0 - x @ [1.0, -1.0, 0.5]))
    return x.astype(np.float32), (rng.uniform(size=rows) < chance).astype(np.int32)


@pytest.mark.parametrize("rows", [12, 150])
def test_bsam_equals_the_mean_field_by_quadrature(rows: int) -> None:
    """Also where few rows leave the mean half a standard deviation from the mode."""
    x, y = skewed(rows)
    design = np.column_stack([np.ones(rows), x]).astype(np.float64)
    point = gaussian_fixed_point(bernoulli, design, y, 1.0)
    fit = lamu.fit(LOGISTIC, (x, y), A.bsam())
    mean, precision = weights(fit.posterior)
    np.testing.assert_allclose((mean - point.mean) / point.sd, 0.0, atol=0.15)
    ratio = precision**-0.5 / point.sd
    np.testing.assert_allclose(ratio, 1.0, atol=0.12)  # Price's identity by one draw a step: a run is that noisy
    np.testing.assert_allclose(np.mean(np.log(ratio)), 0.0, atol=0.06)
    found = bound(bernoulli, design, y, 1.0, mean.astype(np.float64), np.diag(1 / precision))
    assert abs(found - point.bound) < 0.1
    assert fit.convergence.converged


def test_bsam_keeps_the_prior_where_inputs_say_nothing() -> None:
    rng = np.random.default_rng(0)
    x, y = (1e-3 * rng.normal(size=(300, 6))).astype(np.float32), rng.integers(0, 2, 300)
    model = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Bernoulli(), lamu.priors.Normal(0.5))
    mean, precision = weights(lamu.fit(model, (x, y), A.bsam()).posterior)
    np.testing.assert_allclose(precision, 4.0, rtol=0.02)
    np.testing.assert_allclose(mean, 0.0, atol=0.05)


def test_the_damping_of_bsam_is_no_precision_of_the_belief() -> None:
    """One step: the precision is the same, the mean's step is shorter."""
    problem = problems.logistic()
    batch, states = problem.batches(16)[0], []
    for damping in (0.0, 50.0):
        algorithm = A.bsam(0.3, damping=damping, max_step=None)
        start = algorithm.init(jax.random.key(4), problem.objective, batch)
        states.append(algorithm.step(jax.random.key(5), start, batch, problem.objective)[0])
    np.testing.assert_array_equal(*(flat(state.precision.values) for state in states))
    lengths = [np.linalg.norm(flat(state.mean) - flat(start.mean)) for state in states]
    assert 0 < lengths[1] < 0.05 * lengths[0]


@pytest.mark.parametrize("curvature", [Damped(RootScaledGradient(), 0.1), SquaredGradient()], ids=["paper", "squared"])
def test_a_curvature_that_is_no_estimate_of_the_hessian_is_measured_beside_one(curvature: object) -> None:
    """Measured by itself it was converged, with precisions of N/10 on inputs that say nothing."""
    rng = np.random.default_rng(0)
    x, y = (1e-3 * rng.normal(size=(300, 3))).astype(np.float32), rng.integers(0, 2, 300)
    of_paper = A.bsam(
        0.5,
        b2=0.999,
        radius=0.01,
        hess_init=1.0,
        max_step=None,
        curvature=curvature,
        geometry=Straight(),
        expectation=FenchelRelaxation,
        momentum=PlainAverage(0.9),
    )
    with pytest.warns(
        Unconverged, match=r"precisions are off by a median factor of .*not an unbiased estimate.*curvature="
    ):
        fit = lamu.fit(LOGISTIC, (x, y), of_paper, epochs=30)
    assert not fit.convergence.converged


def signs(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 6)).astype(np.float32)
    chance = 1 / (1 + np.exp(-x @ np.array([1, -1, 1, 1, -1, 1])))
    return x, (rng.uniform(size=rows) < chance).astype(np.int32)


@pytest.mark.parametrize(("rows", "seed"), [(25, 3), (10, 5)])
def test_bayesbinn_equals_the_mean_field_of_all_corners(rows: int, seed: int) -> None:
    """With relaxed draws the fourth mean of the first was .285, and its best is .726."""
    x, y = signs(rows, seed)
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=6)))
    f = corners @ x.T.astype(np.float64)
    mean = product_of_signs(corners, (np.logaddexp(0.0, f) - y * f).sum(axis=1))
    model = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Bernoulli(), lamu.priors.Discrete(0.5))
    found = lamu.fit(model, (x, y), A.bayesbinn()).posterior.belief.factors["network"].mean
    assert np.any(np.abs(mean) < 0.8)
    assert np.any(np.abs(mean) > 0.9)
    np.testing.assert_allclose(flat(found), mean, atol=0.04)


def test_a_variational_head_equals_regression_in_closed_form() -> None:
    """At a rate that stayed, deviations and means jittered about it."""
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(200, 4)) * [1.0, 2.0, 0.5, 1.0]).astype(np.float32)
    y = (x @ [1.0, -1.0, 0.5, 0.0] + 0.7 * rng.normal(size=200)).astype(np.float32)
    design = np.column_stack([np.ones(200), x]).astype(np.float64)
    mean, precision, evidence = linear_regression(design, y.astype(np.float64), 0.7, 1.0)
    sd = np.sqrt(np.diagonal(np.linalg.inv(precision)))
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.7), lamu.priors.Normal(1.0))
    posterior = lamu.fit(model, (x, y), A.variational_head()).posterior
    belief = posterior.belief.factors["network"]
    covariance = np.linalg.inv(np.asarray(belief.precision.dense(belief.mean), np.float64))
    np.testing.assert_allclose((flat(belief.mean) - mean) / sd, 0.0, atol=0.1)
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance)) / sd, 1.0, atol=0.05)
    assert abs(float(posterior.evidence) - evidence) < 0.2
