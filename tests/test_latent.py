"""Deep latent-variable models: bounds, their noise, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from lamu.families import Gaussian
from lamu.latent import (
    ELBO,
    Bound,
    Coupling,
    DoublyReparameterised,
    Flow,
    Flowed,
    FreeBits,
    Importance,
    InverseAutoregressive,
    Joint,
    Planar,
    Radial,
    Renyi,
    RowJoint,
    WarmUp,
)
from lamu.operators import Diagonal, Scalar
from lamu.scores import annealed_importance
from tests.laws import bounds as linear_gaussian


def test_the_noise_of_a_doubly_reparameterised_gradient_is_lower() -> None:
    """At 16 draws and a belief near the posterior: at most half of the variance, of 0.1 that is typical; fixed keys."""
    near = linear_gaussian.exact(linear_gaussian.PARAMETERS)[1]
    near = {**near, "mean": near["mean"] + 0.2, "log_scale": near["log_scale"] + 0.1}
    once, twice = (linear_gaussian.gradients(bound(16), near) for bound in (Importance, DoublyReparameterised))
    for name in ("mean", "log_scale"):
        assert np.var(np.asarray(twice[name])) < 0.5 * np.var(np.asarray(once[name])), name


def test_renyis_order_zero_is_the_importance_weighted_bound() -> None:
    joint, belief = (f(linear_gaussian.PARAMETERS) for f in (linear_gaussian.joint_of, linear_gaussian.belief_of))
    first, second = (bound.of_row(jax.random.key(1), joint, belief) for bound in (Renyi(0.0, 5), Importance(5)))
    np.testing.assert_allclose(first, second, rtol=1e-12)


def test_a_divergence_without_a_closed_form_is_estimated() -> None:
    """By draws of the flow itself, within 4 standard errors of the bound by quadrature of its density."""
    params = Planar().init(jax.random.key(0), 1, 0, float)
    params = {**params, "bias": jnp.array([1.0, 1.5, 0.3])}
    belief = Flowed(Gaussian(jnp.zeros(1), Scalar(jnp.asarray(2.0))), (Planar(),), (params,), jnp.zeros(0))
    joint = linear_gaussian.joint_of(linear_gaussian.PARAMETERS)
    assert joint.divergences(belief) is None
    keys = jax.random.split(jax.random.key(1), 4000)
    found = np.asarray(jax.jit(jax.vmap(lambda key: ELBO().of_row(key, joint, belief)))(keys))
    grid = np.linspace(-8, 8, 4001)
    density = jax.jit(jax.vmap(lambda z: belief.log_prob(z[None])))(jnp.asarray(grid))
    target = jax.vmap(lambda z: joint.likelihood(z[None]) + joint.log_prior(z[None]))(jnp.asarray(grid))
    expected = np.trapezoid(np.exp(density) * np.asarray(target - density), grid)
    assert abs(found.mean() - expected) < 4 * found.std() / np.sqrt(found.size)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_dtypes_are_kept(dtype) -> None:
    prior = Gaussian(jnp.zeros(2, dtype), Diagonal(jnp.ones(2, dtype)))
    joint = RowJoint(prior, lambda z: -jnp.sum(z**2))
    bounds = (ELBO(2), Importance(2), DoublyReparameterised(2), Renyi(0.5, 2), FreeBits(0.1), WarmUp(ELBO(), 3))
    for bound in bounds:
        assert isinstance(bound, Bound)
        assert bound.of_row(jax.random.key(0), joint, prior).dtype == dtype
    for flow in (Planar(), Coupling((4,)), InverseAutoregressive((4,))):
        assert isinstance(flow, Flow)
        params = flow.init(jax.random.key(0), 2, 0, dtype)
        z, log_det = flow.forward(params, jnp.ones(2, dtype), jnp.zeros(0, dtype))
        assert z.dtype == log_det.dtype == dtype


def test_what_cannot_be_a_bound() -> None:
    with pytest.raises(ValueError, match="Importance has samples=0; give a whole number from 1"):
        Importance(0)
    with pytest.raises(ValueError, match=r"alpha=-0\.5 is negative"):
        Renyi(-0.5, 5)
    with pytest.raises(ValueError, match=r"use ELBO\(samples\)"):
        Renyi(1.0, 5)
    with pytest.raises(ValueError, match=r"nats=-1\.0 must not be negative"):
        FreeBits(-1.0)
    with pytest.raises(ValueError, match="steps=0; give a whole number from 1"):
        WarmUp(ELBO(), 0)
    with pytest.raises(ValueError, match="has no halves"):
        Coupling((4,)).init(jax.random.key(0), 1, 0, float)


class Blind(Joint):
    """A joint density whose divergence is not known."""

    def log_likelihood(self, z, key):
        return -jnp.sum(z)

    def log_prior(self, z):
        return -jnp.sum(z**2)


def test_free_bits_need_a_divergence() -> None:
    with pytest.raises(TypeError, match="FreeBits needs the divergence of Gaussian"):
        FreeBits(0.1).of_row(jax.random.key(0), Blind(), Gaussian(jnp.zeros(1), Scalar(1.0)))


def test_annealing_finds_the_log_density() -> None:
    """Three rows of a linear-Gaussian model: within 4 standard errors and 0.02 nats; fixed keys, 1 in 16,000 fails."""
    prior = Gaussian(jnp.zeros(2), Scalar(jnp.asarray(1.0)))
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)))
    rows = np.random.default_rng(1).normal(size=(3, 5)) * 2.0
    covariance = np.asarray(weights @ weights.T) + 0.25 * np.eye(5)
    for number, y in enumerate(rows):
        likelihood = Gaussian(jnp.asarray(y), Scalar(jnp.asarray(4.0)))
        joint = RowJoint(prior, lambda z, likelihood=likelihood: likelihood.log_prob(weights @ z))
        found = annealed_importance(joint, prior, jax.random.key(number), temperatures=150, chains=16)
        expected = stats.multivariate_normal(np.zeros(5), covariance).logpdf(y)
        assert abs(found.value - expected) < 4 * found.error + 0.02
        assert found.error < 0.3


def test_annealing_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match="chains=1 is not possible; give a whole number of at least 2"):
        annealed_importance(Blind(), Gaussian(jnp.zeros(1), Scalar(1.0)), jax.random.key(0), chains=1)


def by_hand(z: np.ndarray, mean: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """log w and ∂ log w/∂z of one coordinate: z ~ N(0, 1), y = 1.3 seen with sd 0.5, q = N(mean, scale²)."""
    log_w = stats.norm(z, 0.5).logpdf(1.3) + stats.norm.logpdf(z) - stats.norm(mean, scale).logpdf(z)
    return log_w, (1.3 - z) / 0.25 - z + (z - mean) / scale**2


def one_coordinate(bound: Bound, mean: float, scale: float, key: jax.Array) -> jax.Array:
    prior = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
    joint = RowJoint(prior, lambda z: -2.0 * jnp.sum((1.3 - z) ** 2) - jnp.log(0.5) - jnp.log(2 * jnp.pi) / 2)
    return bound.of_row(
        jax.random.clone(key), joint, Gaussian(jnp.reshape(mean, 1), Diagonal(jnp.reshape(1 / scale**2, 1)))
    )


def draws_of(bound: Bound, mean: float, scale: float, key: jax.Array, k: int) -> np.ndarray:
    """The draws of a bound, by the function that it draws with."""
    from lamu.latent.bounds import over_samples

    belief, key = Gaussian(jnp.full(1, mean), Diagonal(jnp.full(1, 1 / scale**2))), jax.random.clone(key)
    if isinstance(bound, DoublyReparameterised):
        return np.asarray(over_samples(jax.random.split(key)[0], k, belief.sample))[:, 0]
    return np.asarray(over_samples(key, k, lambda key: belief.sample(jax.random.split(key)[0])))[:, 0]


def test_a_doubly_reparameterised_gradient_squares_the_weights() -> None:
    """Σ w̃² ∂log w/∂z ∂z/∂φ by hand, of the same draws: ∂z/∂m = 1 and ∂z/∂s = (z − m)/s."""
    bound, mean, scale, key = DoublyReparameterised(6), 0.3, 0.8, jax.random.key(3)
    value, found = jax.value_and_grad(lambda m, s: one_coordinate(bound, m, s, key), argnums=(0, 1))(mean, scale)
    z = draws_of(bound, mean, scale, key, 6)
    log_w, slope = by_hand(z, mean, scale)
    shares = np.exp(log_w) / np.exp(log_w).sum()
    np.testing.assert_allclose(value, np.log(np.exp(log_w).mean()), rtol=1e-6)
    np.testing.assert_allclose(found[0], np.sum(shares**2 * slope), rtol=1e-5)
    np.testing.assert_allclose(found[1], np.sum(shares**2 * slope * (z - mean) / scale), rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 2.0])
def test_renyis_bound_is_its_formula(alpha: float) -> None:
    bound, mean, scale, key = Renyi(alpha, 6), 0.3, 0.8, jax.random.key(3)
    log_w, _ = by_hand(draws_of(bound, mean, scale, key, 6), mean, scale)
    expected = np.log(np.mean(np.exp((1 - alpha) * log_w))) / (1 - alpha)
    np.testing.assert_allclose(one_coordinate(bound, mean, scale, key), expected, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_a_radial_flows_determinant_is_that_of_its_jacobian(size: int) -> None:
    flow = Radial()
    params = jax.tree.map(lambda leaf: leaf + 0.7, flow.init(jax.random.key(0), size, 0, float))
    z = jnp.linspace(-1.0, 2.0, size)
    _, found = flow.forward(params, z, jnp.zeros(0))
    jacobian = jax.jacobian(lambda z: flow.forward(params, z, jnp.zeros(0))[0])(z)
    assert abs(float(found)) > 0.05
    np.testing.assert_allclose(found, np.linalg.slogdet(np.asarray(jacobian))[1], rtol=1e-6)
