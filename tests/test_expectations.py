"""What expectations refuse, in one sentence that names the way out."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lamu import likelihoods, networks
from lamu.expectations import (
    Analytic,
    Antithetic,
    ConstantBaseline,
    Control,
    Delta,
    Enumeration,
    Exact,
    GaussHermite,
    LatinHypercube,
    LeaveOneOut,
    MonteCarlo,
    MovingAverageBaseline,
    Quadrature,
    QuasiMonteCarlo,
    Regression,
    Relaxed,
    Reparameterised,
    ScoreFunction,
)
from lamu.expectations.pathwise import inverse_fisher
from lamu.expectations.samplers import _slices
from lamu.families import (
    Bernoulli,
    Beta,
    Categorical,
    Gamma,
    Gaussian,
    NormalGamma,
    NormalWishart,
    Point,
    Poisson,
    VonMises,
    Wishart,
)
from lamu.model import Model
from lamu.objective import AllParameters
from lamu.objective.curvature import GaussNewton, Hessian, Price
from lamu.operators import Dense, Scalar
from tests.for_each import for_each
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
        evaluate(expectation, Case(LINEAR.model, space=AllParameters()))


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
    with pytest.raises(ValueError, match=f"samples={count} cannot be averaged"):
        MonteCarlo(samples=count)
    with pytest.raises(ValueError, match=f"points={count} has no curvature"):
        Quadrature(points=count)


KEY, COINS_BELIEF, RATE = jax.random.key(0), Bernoulli(jnp.zeros(20)), Gamma(2.0, 3.0)


@for_each(
    "made, message",
    [
        (lambda: MonteCarlo(3, Antithetic()), "3 is odd; ask for 4 draws"),
        (lambda: MonteCarlo(6, QuasiMonteCarlo()), "not 6; ask for 4 or 8"),
        (lambda: MonteCarlo(12, LatinHypercube()), "not 12; ask for 8 or 16"),
        (lambda: MonteCarlo(1 << 17, LatinHypercube()), "at most 65536, not 131072"),
        (lambda: ScoreFunction(1, LeaveOneOut()), "needs two or more, not 1"),
        (lambda: ScoreFunction(1, Regression()), "needs two or more, not 1"),
        (lambda: ScoreFunction(4, LeaveOneOut(), Antithetic()), r"not for those of Antithetic\(\)"),
        (lambda: Reparameterised(0), "samples=0 cannot be averaged"),
        (lambda: Relaxed(0.0), "temperature 0.0 of a relaxation is not positive"),
        (lambda: MovingAverageBaseline(1.0), r"decay 1.0 of a moving average is outside \[0, 1\)"),
        (lambda: Regression(0.0), "ridge 0.0 of a regression is not positive"),
        (lambda: GaussHermite(0), "points=0 is not possible"),
        (lambda: GaussHermite().gradient(KEY, Gaussian(jnp.zeros(3), Scalar(1.0)), jnp.sum), "two dimensions, not 3"),
        (lambda: Enumeration().gradient(KEY, COINS_BELIEF, jnp.sum), "1.04858e[+]06 points is too large"),
        (
            lambda: QuasiMonteCarlo().draw(KEY, Gaussian(jnp.zeros(21_202), Scalar(1.0)), 0, 2),
            r"21201 dimensions, and this belief has 21202; use LatinHypercube",
        ),
    ],
)
def test_numbers_that_cannot_be_are_refused(made, message) -> None:
    with pytest.raises(ValueError, match=message):
        made()


@for_each(
    "estimator, belief, message",
    [
        (MonteCarlo(2), RATE, r"MonteCarlo\(\) draws around the mean of a Gaussian, not of a Gamma"),
        (Reparameterised(2, Antithetic()), RATE, r"Antithetic\(\) draws around the mean of a Gaussian"),
        (Reparameterised(2, QuasiMonteCarlo()), RATE, r"QuasiMonteCarlo\(\) draws around the mean of a Gaussian"),
        (Reparameterised(2, LatinHypercube()), RATE, r"LatinHypercube\(\) draws around the mean of a Gaussian"),
        (Reparameterised(2), COINS_BELIEF, "those of a Bernoulli do not; use ScoreFunction"),
        (Relaxed(), RATE, "Bernoulli, Binary and Categorical beliefs, not Gamma"),
        (Enumeration(), RATE, "Bernoulli, Binary and Categorical beliefs, not Gamma"),
        (GaussHermite(), RATE, "over a Gaussian, not over a Gamma"),
        *((made, Point(1.0), "not a Point") for made in (Analytic(), Delta(), ScoreFunction(2), Reparameterised(2))),
    ],
)
def test_beliefs_that_an_estimator_is_not_for_are_refused(estimator, belief, message) -> None:
    with pytest.raises(TypeError, match=message):
        estimator.gradient(KEY, belief, jnp.sum)


@pytest.mark.parametrize("depth", range(1, 17))
def test_latin_slices_are_permutations(depth) -> None:
    """So that the polynomial is irreducible: no two draws of any of 20 coordinates share a slice."""
    count = 1 << depth
    with jax.debug_key_reuse(False):
        slices = jax.jit(jax.vmap(lambda i: _slices(jax.random.key(depth), i, count, 20)))(jnp.arange(count))
    np.testing.assert_array_equal(np.sort(slices, axis=0), np.broadcast_to(np.arange(count)[:, None], (count, 20)))


def test_a_moving_average_is_corrected_at_its_start() -> None:
    control = MovingAverageBaseline(decay=0.9)
    assert float(control.average) == 0.0
    for value in (4.0, 1.0):
        control = control.updated(value)
    np.testing.assert_allclose(control.average, (0.9 * 4.0 + 1.0) / 1.9)
    assert isinstance(control, Control)
    weights = ConstantBaseline(control.average).weights(jnp.asarray([3.0]), lambda: jnp.eye(1))
    np.testing.assert_allclose(weights, 3.0 - control.average)


def test_a_regression_fits_without_the_draw_that_it_serves() -> None:
    """Beside S ridge regressions, each of the other draws, for scores of any number."""
    rng = np.random.default_rng(3)
    scores, losses, ridge, S = rng.normal(size=(6, 3)), rng.normal(size=6), 0.7, 6
    fisher = np.diag([0.5, 2.0, 1.0])
    natural = scores @ np.linalg.inv(fisher)
    expected = np.zeros(3)
    for i in range(S):
        kept = np.arange(S) != i
        c = losses[kept].mean()
        gram = scores[kept].T @ scores[kept] + ridge * fisher
        w = np.linalg.solve(gram, scores[kept].T @ (losses[kept] - c))
        expected += ((losses[i] - c - w @ scores[i]) * natural[i] + w) / S
    weights = Regression(ridge).weights(jnp.asarray(losses), lambda: jnp.asarray(scores @ natural.T))
    np.testing.assert_allclose(weights @ natural, expected, rtol=1e-10)


MATRIX = jnp.asarray([[2.0, 0.5], [0.5, 1.0]])
PAIRS = {
    "one number a member": (Poisson(jnp.asarray([0.5, -0.2])), Poisson(jnp.asarray([0.1, 0.3]))),
    "a batch of pairs": (
        Gamma({"a": jnp.ones((2, 2)), "b": 2.0}, 3.0),
        Gamma({"a": 0.5 * jnp.ones((2, 2)), "b": 1.0}, 2.0),
    ),
    "pairs": (Beta(2.0, 3.0), Beta(1.5, 1.0)),
    "vectors": (Categorical(jnp.asarray([[0.2, 0.1, 1.0]])), Categorical(jnp.asarray([[0.0, -0.1, 0.5]]))),
    "a circle": (VonMises(0.3, 2.0), VonMises(-0.5, 1.0)),
    "four statistics": (NormalGamma(0.3, 2.0, 3.0, 1.5), NormalGamma(0.1, 1.0, 2.0, 0.5)),
    "matrices": (Wishart(4.0, MATRIX), Wishart(5.0, jnp.eye(2))),
    "a vector and a matrix": (
        NormalWishart(jnp.asarray([0.2, -0.4]), 2.0, 4.0, MATRIX),
        NormalWishart(jnp.asarray([0.0, 0.3]), 1.0, 5.0, jnp.eye(2)),
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", PAIRS)
def test_the_inverse_fisher_matrix_undoes_the_fisher_matrix(name) -> None:
    """On directions from one belief to another, member by member, matrices in their symmetric coordinates."""
    belief, other = PAIRS[name]
    direction = jax.tree.map(jnp.subtract, other.natural().values, belief.natural().values)
    found = jax.jit(lambda q, d: inverse_fisher(q)(q.fisher_product(d)))(belief, direction)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10), found, direction)
