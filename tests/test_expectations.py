"""What expectations refuse, in one sentence that names the way out."""

from __future__ import annotations

from dataclasses import replace

import jax
import pytest

from lamu import likelihoods, networks
from lamu.expectations import Exact, MonteCarlo, Quadrature
from lamu.families import Gaussian
from lamu.model import Model
from lamu.objective import Everything
from lamu.objective.curvature import GaussNewton, Hessian, Price
from lamu.operators import Dense, Scalar
from tests.laws.curvature import Case

REGRESSION, BINARY = likelihoods.Gaussian(scale=0.6), likelihoods.Bernoulli()
LINEAR = Case(Model(networks.Linear(), REGRESSION))
BENT = Case(Model(networks.MLP((2,)), REGRESSION))
COINS = Case(Model(networks.Linear(), BINARY))
CLASSES = Case(Model(networks.Linear(), likelihoods.Categorical(3)))


def evaluate(expectation, case, curvature=None, **loss_parts):
    loss, theta = case.loss()
    loss = replace(loss, **loss_parts)
    return expectation.evaluate(jax.random.key(0), Gaussian(theta, Scalar(2.0)), loss, curvature or Hessian(), Dense)


@pytest.mark.parametrize("expectation", [Exact(), Quadrature()], ids=["Exact", "Quadrature"])
def test_linear_expectations_refuse_what_they_cannot_do(expectation) -> None:
    with pytest.raises(TypeError, match="linear in its weights, not MLP"):
        evaluate(expectation, BENT)
    with pytest.raises(TypeError, match=r"Price\(\) would not be used"):
        evaluate(expectation, LINEAR, Price())
    with pytest.raises(TypeError, match="Gaussian prior"):
        evaluate(expectation, LINEAR, conjugate=False)
    with pytest.raises(TypeError, match="weights alone"):
        evaluate(expectation, Case(LINEAR.model, space=Everything()))


def test_exact_needs_a_quadratic_likelihood() -> None:
    with pytest.raises(TypeError, match="quadratic in the outputs, not Bernoulli"):
        evaluate(Exact(), COINS)


def test_quadrature_needs_one_output() -> None:
    with pytest.raises(ValueError, match="the network has 3"):
        evaluate(Quadrature(), CLASSES)


def test_the_hessian_may_be_asked_for_as_gauss_newton() -> None:
    assert evaluate(Exact(), LINEAR, GaussNewton()).value == evaluate(Exact(), LINEAR, Hessian()).value


@pytest.mark.parametrize("count", [0, -1])
def test_counts_are_positive(count) -> None:
    with pytest.raises(ValueError, match=f"{count} draws cannot be averaged"):
        MonteCarlo(draws=count)
    with pytest.raises(ValueError, match=f"{count} nodes sees no curvature"):
        Quadrature(points=count)
