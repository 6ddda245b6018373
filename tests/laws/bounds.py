"""Laws of the bounds on the log density of a row, on a linear-Gaussian model whose log density is known.

One latent z ~ N(0, 1), y = a z + N(0, s²) in three coordinates. The expected value of a bound and its gradient are
integrals over the noise of one or two draws, taken here by Gauss–Hermite quadrature from the formula of the paper. A
row gives it as `value(log_likelihoods, log_ratios, divergence)`, with log p(y | z) and log p(z) − log q(z) of each
draw. The failure rate of an assertion within 4 standard errors is 6e-5 a number, and the keys are fixed.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.families import Gaussian
from lamu.latent import (
    ELBO,
    DoublyReparameterised,
    FreeBits,
    Importance,
    Renyi,
    RowJoint,
    StickingTheLanding,
    WarmUp,
)
from lamu.operators import Diagonal
from lamu.record import record
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("bounds", "multisample landing exact")

Y, NOISE = jnp.array([1.3, -0.4, 0.9]), 0.8
PARAMETERS = {"a": jnp.array([0.9, -0.5, 0.3]), "mean": jnp.array([0.9]), "log_scale": jnp.array([-0.2])}
COUNT = 4000
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def keys() -> Any:
    return jax.random.split(jax.random.key(7), COUNT)


def log_likelihood(a: Any, z: Any) -> Any:
    away = Y - a * z[0]
    return -0.5 * jnp.sum((away / NOISE) ** 2) - Y.size * jnp.log(NOISE * jnp.sqrt(2 * jnp.pi))


def belief_of(parameters: Any) -> Gaussian:
    return Gaussian(parameters["mean"], Diagonal(jnp.exp(-2 * parameters["log_scale"])))


def joint_of(parameters: Any) -> RowJoint:
    prior = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
    return RowJoint(prior, lambda z: log_likelihood(parameters["a"], z))


def exact(parameters: Any) -> tuple[float, Any]:
    """Returns log p(y) and the parameters at which q is the posterior."""
    a = np.asarray(parameters["a"])
    covariance = np.outer(a, a) + NOISE**2 * np.eye(3)
    y = np.asarray(Y)
    log_p = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    precision = 1 + a @ a / NOISE**2
    mean = (a @ y) / NOISE**2 / precision
    at = {"mean": jnp.array([mean]), "log_scale": jnp.array([-0.5 * np.log(precision)])}
    return float(log_p), {**parameters, **at}


def values(bound: Any, parameters: Any) -> Any:
    return jax.jit(jax.vmap(lambda key: bound.of_row(key, joint_of(parameters), belief_of(parameters)), in_axes=0))(
        keys()
    )


def gradients(bound: Any, parameters: Any) -> Any:
    of_key = lambda key, p: bound.of_row(key, joint_of(p), belief_of(p))
    return jax.jit(jax.vmap(jax.grad(of_key, argnums=1), in_axes=(0, None)))(keys(), parameters)


def integral(value: Any, draws: int, parameters: Any) -> Any:
    """The expected bound, by quadrature over the noise of its draws."""
    mean, scale = parameters["mean"][0], jnp.exp(parameters["log_scale"][0])
    grid = jnp.asarray(list(itertools.product(NODES, repeat=draws)))
    weights = jnp.asarray([np.prod(w) for w in itertools.product(WEIGHTS, repeat=draws)])
    divergence = 0.5 * (scale**2 + mean**2 - 1) - jnp.log(scale)

    def at(noise: Any) -> Any:
        z = mean + scale * noise
        likelihoods = jax.vmap(lambda one: log_likelihood(parameters["a"], one[None]))(z)
        ratios = -0.5 * z**2 + 0.5 * noise**2 + jnp.log(scale)
        return value(likelihoods, ratios, divergence)

    return jnp.sum(weights * jax.vmap(at)(grid))


def mean_value(likelihoods: Any, ratios: Any, divergence: Any) -> Any:
    del ratios
    return jnp.mean(likelihoods) - divergence


def renyi_value(alpha: float) -> Any:
    def value(likelihoods: Any, ratios: Any, divergence: Any) -> Any:
        del divergence
        return jnp.log(jnp.mean(jnp.exp((1 - alpha) * (likelihoods + ratios)))) / (1 - alpha)

    return value


elbo = row("bounds", "ELBO", ELBO(), "", value=mean_value, draws=1)
landing = row("bounds", "StickingTheLanding", StickingTheLanding(), "landing exact", value=mean_value, draws=1)
importance = row(
    "bounds", "Importance", Importance(2), "multisample exact", value=renyi_value(0.0), draws=2, more=Importance(10)
)
doubly = row(
    "bounds",
    "DoublyReparameterised",
    DoublyReparameterised(2),
    "multisample landing exact",
    value=renyi_value(0.0),
    draws=2,
    more=DoublyReparameterised(10),
)
renyi = row("bounds", "Renyi", Renyi(0.5, 2), "multisample exact", value=renyi_value(0.5), draws=2, more=Renyi(0.5, 10))
row(
    "bounds",
    "FreeBits",
    FreeBits(0.4),
    "",
    value=lambda likelihoods, ratios, divergence: likelihoods[0] - jnp.maximum(divergence, 0.4),
    draws=1,
)
row("bounds", "WarmUp", WarmUp(ELBO(), 10), "", value=mean_value, draws=1)


@law("bounds")
def its_mean_is_the_published_formula(row: Row) -> None:
    found = np.asarray(values(row.subject, PARAMETERS))
    expected = float(integral(row.extras["value"], row.extras["draws"], PARAMETERS))
    assert abs(found.mean() - expected) <= 4 * found.std() / np.sqrt(found.size) + 1e-12


@law("bounds")
def it_is_below_the_log_density(row: Row) -> None:
    log_p, at_posterior = exact(PARAMETERS)
    for parameters in (PARAMETERS, at_posterior):
        found = np.asarray(values(row.subject, parameters))
        assert found.mean() <= log_p + 4 * found.std() / np.sqrt(found.size) + 1e-12


@law("bounds", when="exact")
def at_the_exact_posterior_every_draw_gives_the_log_density(row: Row) -> None:
    log_p, at_posterior = exact(PARAMETERS)
    np.testing.assert_allclose(values(row.subject, at_posterior), log_p, rtol=1e-10)


@law("bounds", when="multisample")
def more_draws_are_tighter(row: Row) -> None:
    """By ten standard errors, at a belief that is off: both estimates are of the same row."""
    off = {**PARAMETERS, "mean": jnp.array([-0.8])}
    few, many = (np.asarray(values(bound, off)) for bound in (row.subject, row.extras["more"]))
    assert many.mean() - few.mean() > 10 * np.hypot(few.std(), many.std()) / np.sqrt(few.size)


@law("bounds")
def its_mean_gradient_is_that_of_the_integral(row: Row) -> None:
    """Within 4 standard errors in each of 5 coordinates: a false alarm in 3 of 10,000 sets of keys."""
    found = gradients(row.subject, PARAMETERS)
    expected = jax.jit(jax.grad(lambda p: integral(row.extras["value"], row.extras["draws"], p)))(PARAMETERS)
    for name in PARAMETERS:
        mean, error = (np.asarray(found[name]).mean(0), np.asarray(found[name]).std(0) / np.sqrt(COUNT))
        assert np.all(np.abs(mean - np.asarray(expected[name])) <= 4 * error + 1e-10), name


@law("bounds", when="landing")
def at_the_exact_posterior_no_draw_moves_the_belief(row: Row) -> None:
    found = gradients(row.subject, exact(PARAMETERS)[1])
    for name in ("mean", "log_scale"):
        np.testing.assert_allclose(found[name], 0.0, atol=1e-10)


@law("bounds")
def the_weight_is_the_divergences_alone(row: Row) -> None:
    """At weight zero the value does not depend on the prior, whose mean is moved here."""
    belief = belief_of(PARAMETERS)
    of = lambda n: RowJoint(Gaussian(jnp.full(1, n), Diagonal(jnp.ones(1))), joint_of(PARAMETERS).likelihood)
    first, second = (row.subject.of_row(jax.random.key(0), of(n), belief, 0.0) for n in (0.0, 2.0))
    np.testing.assert_allclose(first, second, rtol=1e-12)


@record
class Broken(ELBO):
    """An evidence bound with a fault in its terms."""

    likelihood: float = 1.0
    divergence: float = 1.0
    constant: float = 0.0
    always: float = 0.0

    def of_row(self, key: Any, joint: Any, belief: Any, weight: Any = 1.0) -> Any:
        divergence = joint.divergences(belief).sum()
        value = self.likelihood * joint.log_likelihood(belief.sample(key), None) + self.constant
        return value - (self.divergence * weight + self.always) * divergence


@record
class BrokenImportance(Importance):
    """An importance-weighted bound with a fault in its weights."""

    def of_row(self, key: Any, joint: Any, belief: Any, weight: Any = 1.0) -> Any:
        split = jax.random.split(key, self.samples)
        return jnp.mean(jax.vmap(lambda k: ELBO().of_row(k, joint, belief, weight))(split))


@record
class SumOfWeights(Importance):
    """The log of the sum of the weights, not of their mean."""

    def of_row(self, key: Any, joint: Any, belief: Any, weight: Any = 1.0) -> Any:
        return super().of_row(key, joint, belief, weight) + np.log(self.samples)


@record
class HeldTwice(DoublyReparameterised):
    """The score of q dropped, and the paths weighed once."""

    def of_row(self, key: Any, joint: Any, belief: Any, weight: Any = 1.0) -> Any:
        draws = jax.vmap(belief.sample)(jax.random.split(key, self.samples))
        held = jax.lax.stop_gradient(belief)
        weights = jax.vmap(lambda z: joint.log_likelihood(z, None) + joint.log_prior(z) - held.log_prob(z))(draws)
        return jax.nn.logsumexp(weights) - np.log(self.samples) + 0.0 * weight


@record
class WithScore(ELBO):
    """The evidence bound with a sampled divergence, whose score stays in the gradient."""

    def of_row(self, key: Any, joint: Any, belief: Any, weight: Any = 1.0) -> Any:
        z = belief.sample(key)
        return joint.log_likelihood(z, None) + weight * (joint.log_prior(z) - belief.log_prob(z))


both = "its_mean_is_the_published_formula its_mean_gradient_is_that_of_the_integral"
twin(elbo, "the divergence added", f"{both} it_is_below_the_log_density", Broken(divergence=-1.0))
constant = 0.5 * float(np.log(2 * np.pi))
twin(
    elbo,
    "a missing half log 2 pi",
    "its_mean_is_the_published_formula it_is_below_the_log_density",
    Broken(constant=constant),
)
twin(elbo, "the divergence twice", both, Broken(divergence=2.0))
twin(elbo, "a weight that never reaches the prior", "the_weight_is_the_divergences_alone", Broken(always=1.0))
twin(landing, "the score kept", "at_the_exact_posterior_no_draw_moves_the_belief", WithScore())
twin(
    landing,
    "a missing half log 2 pi",
    "at_the_exact_posterior_every_draw_gives_the_log_density",
    Broken(constant=constant),
)
twin(importance, "the mean of the logarithms", "more_draws_are_tighter", BrokenImportance(2), more=BrokenImportance(10))
twin(importance, "the sum of the weights", "it_is_below_the_log_density", SumOfWeights(2))
twin(doubly, "paths weighed once", "its_mean_gradient_is_that_of_the_integral", HeldTwice(2))
twin(renyi, "another order", both, Renyi(0.9, 2))
