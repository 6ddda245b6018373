"""The references of `lamu verify` and of `benchmarks.truth` against closed forms and quadrature of their own."""

from __future__ import annotations

import numpy as np
import pytest

from lamu_verification import fixed_points, problems, references
from lamu_verification.fixed_points import bernoulli, gaussian, gaussian_fixed_point, squared_gradient
from lamu_verification.problems import posterior_moments


@pytest.mark.parametrize("full", [False, True])
def test_the_fixed_point_of_linear_regression_is_its_closed_form(full: bool) -> None:
    problem = problems.regression()
    found = gaussian_fixed_point(gaussian(problem.scale), problem.design, problem.y, problem.precision, full=full)
    mean, precision, evidence = references.linear_regression(
        problem.design, problem.y, problem.scale, problem.precision
    )
    expected = np.linalg.inv(precision) if full else np.diag(1 / np.diagonal(precision))
    np.testing.assert_allclose(found.mean, mean, atol=1e-8)
    np.testing.assert_allclose(found.covariance, expected, atol=1e-8)
    # With the posterior's own family the bound is the evidence; mean field falls short of it.
    assert (abs(found.bound - evidence) < 1e-8) if full else (found.bound < evidence)


def test_the_mean_field_fixed_point_of_logistic_regression_has_the_highest_bound() -> None:
    problem = problems.logistic()
    rows = (bernoulli, problem.design, problem.y, problem.precision)
    found = gaussian_fixed_point(*rows)
    for index in range(len(found.mean)):
        for step in (-1e-3, 1e-3):
            moved = found.mean + step * np.eye(len(found.mean))[index]
            assert fixed_points.bound(*rows, moved, found.covariance) < found.bound
            wider = found.covariance * np.exp(step * np.eye(len(found.mean))[index])
            assert fixed_points.bound(*rows, found.mean, wider) < found.bound


def test_squared_gradients_have_the_curvature_of_the_residuals() -> None:
    problem = problems.regression()
    rows = (gaussian(problem.scale), problem.design, problem.y, problem.precision)
    found = gaussian_fixed_point(*rows, stand_in=squared_gradient)
    spread = np.einsum("ij,jk,ik->i", problem.design, found.covariance, problem.design)
    residual = (problem.y - problem.design @ found.mean) ** 2 + spread
    expected = (residual / problem.scale**4) @ problem.design**2 + problem.precision
    np.testing.assert_allclose(1 / np.diagonal(found.covariance), expected, rtol=1e-8)


def test_posterior_moments_are_those_of_the_closed_form_and_of_a_grid() -> None:
    problem = problems.regression()
    found = posterior_moments(gaussian(problem.scale), problem.design, problem.y, problem.precision)
    mean, precision, evidence = references.linear_regression(
        problem.design, problem.y, problem.scale, problem.precision
    )
    # Five standard errors of 1/√ess; that of a variance is about √2 of it.
    error = 5 / np.sqrt(found.ess)
    sd = np.sqrt(np.diagonal(np.linalg.inv(precision)))
    assert np.max(np.abs(found.mean - mean) / sd) < error
    assert np.max(np.abs(found.sd / sd - 1)) < error
    assert abs(found.log_evidence - evidence) < error

    logistic = problems.logistic()
    design = logistic.design[:, :2]
    grid = np.linspace(-6.0, 6.0, 401)
    theta = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    log_joint = -bernoulli(theta @ design.T, logistic.y[None].astype(float))[0].sum(axis=1)
    log_joint += np.log(logistic.precision / (2 * np.pi)) - logistic.precision / 2 * (theta**2).sum(axis=1)
    top, cell = log_joint.max(), (grid[1] - grid[0]) ** 2
    weights = np.exp(log_joint - top)
    evidence = top + np.log(weights.sum() * cell)
    mean = weights @ theta / weights.sum()
    found = posterior_moments(bernoulli, design, logistic.y, logistic.precision)
    assert np.max(np.abs(found.mean - mean) / found.sd) < 5 / np.sqrt(found.ess)
    assert abs(found.log_evidence - evidence) < 5 / np.sqrt(found.ess)
