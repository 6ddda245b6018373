"""The invariant mode: the same distribution of the data whatever the parameters, where the plain mode moves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lamu
from lamu.algorithms import map_estimate
from lamu.algorithms.optimisers import InvariantMap, invariant_map, log_volume
from lamu.data import Batch
from lamu.likelihoods import Bernoulli, Gaussian
from lamu.networks import Linear
from lamu.objective import Objective
from lamu.priors import Normal, Prior
from lamu.record import record, static

COINS = np.array([1, 1, 0, 1, 1, 0, 1, 1, 1, 0], np.int32)  # seven of ten
A, B = 2.0, 3.0  # of the Beta prior
BLANK = np.ones((10, 1))
NEWTON = optax.lbfgs(1.0, linesearch=None)  # whole steps, quick to compile


@record
class Written:
    """A linear map whose weights are a function of what is moved."""

    weights: Any = static()
    start: Any = static()

    linear = False
    head = "*"

    def init(self, key: Any, x: Any, outputs: int) -> Any:
        return {"phi": jnp.asarray(self.start)}, {}

    def apply(self, params: Any, state: Any, x: Any, key: Any, train: bool) -> Any:
        return (x @ self.weights(params["phi"]))[:, None], state


@record
class Density(Prior):
    """A prior by its log density."""

    of: Any = static()

    def check(self, params: Any) -> None:
        pass

    def log_prob(self, params: Any) -> Any:
        return self.of(params["phi"])

    def gaussian(self, params: Any) -> None:
        return None

    def sample(self, key: Any, params: Any) -> Any:
        raise NotImplementedError


def beta(p: Any) -> Any:
    return (A - 1) * jnp.log(p[0]) + (B - 1) * jnp.log1p(-p[0])


# The probability, its logit, and the angle of constant Fisher information, each with its Jacobian's factor.
COORDINATES = {
    "probability": ((0.5,), lambda p: jnp.log(p) - jnp.log1p(-p), beta, lambda p: p),
    "logit": (
        (0.0,),
        lambda t: t,
        lambda t: beta(jax.nn.sigmoid(t)) - jax.nn.softplus(t[0]) - jax.nn.softplus(-t[0]),
        jax.nn.sigmoid,
    ),
    "angle": (
        (0.8,),
        lambda a: 2 * jnp.log(jnp.tan(a)),
        lambda a: beta(jnp.sin(a) ** 2) + jnp.log(jnp.sin(2 * a[0])),
        lambda a: jnp.sin(a) ** 2,
    ),
}


def fitted(network: Any, prior: Any, algorithm: Any, data: Any = (BLANK, COINS), steps: int = 30) -> Any:
    model = lamu.Model(network, Bernoulli(), prior)
    return lamu.fit(model, data, algorithm, steps=steps, batch_size=len(data[0])).posterior.mean["network"]["phi"]


@pytest.mark.stress
def test_a_coin_has_one_invariant_mode_and_as_many_plain_ones_as_coordinates() -> None:
    """In closed form: (k + a − 1/2)/(n + a + b − 1), and (k + a − 1)/(n + a + b − 2) in p, (k + a)/(n + a + b) in the
    logit, the invariant one in the angle, in which Jeffreys' measure is flat."""
    k, n = 7, 10
    invariant = (k + A - 0.5) / (n + A + B - 1)
    plain = {"probability": (k + A - 1) / (n + A + B - 2), "logit": (k + A) / (n + A + B), "angle": invariant}
    for name, (start, to_logit, log_prior, to_probability) in COORDINATES.items():
        network, prior = Written(to_logit, start), Density(log_prior)
        found = to_probability(fitted(network, prior, invariant_map(optax.lbfgs())))
        np.testing.assert_allclose(found, invariant, rtol=0, atol=1e-8, err_msg=name)
        moved = to_probability(fitted(network, prior, map_estimate(optax.lbfgs())))
        np.testing.assert_allclose(moved, plain[name], rtol=0, atol=1e-8, err_msg=name)
    assert plain["logit"] < invariant - 1e-3 or plain["logit"] > invariant + 1e-3


def test_logistic_regression_in_bent_coordinates_has_the_same_invariant_mode() -> None:
    """Two weights, bent and sheared, so that the determinant's off-diagonal part counts."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(40, 2)) @ np.array([[1.0, 0.7], [0.0, 0.6]])
    y = (generator.random(40) < 1 / (1 + np.exp(-x @ np.array([1.2, -0.8])))).astype(np.int32)
    normal = lambda w: -jnp.sum(w**2) / 2
    bend = lambda phi: jnp.stack([phi[0] + 0.5 * jnp.sinh(phi[1]), phi[1] + 0.3 * phi[0]])
    factor = lambda phi: jnp.linalg.slogdet(jax.jacfwd(bend)(phi))[1]
    ways = (
        (Written(lambda w: w, (0.0, 0.0)), Density(normal), lambda w: w),
        (Written(bend, (0.0, 0.0)), Density(lambda phi: normal(bend(phi)) + factor(phi)), bend),
    )
    one, other = (back(fitted(network, prior, invariant_map(NEWTON), (x, y))) for network, prior, back in ways)
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-8)
    first, second = (back(fitted(n, prior, map_estimate(NEWTON), (x, y))) for n, prior, back in ways)
    assert np.max(np.abs(np.asarray(first - second))) > 1e-3


def test_the_volume_is_the_informations_determinant() -> None:
    """Linear regression with learned noise, by NumPy: XᵀX/σ² for the weights, 2N for log σ."""
    generator = np.random.default_rng(2)
    x = generator.normal(size=(15, 2))
    model = lamu.Model(Linear(), Gaussian(), Normal(1.0))
    batch = Batch.of(x, generator.normal(size=15)).padded(20)
    params, state = model.init(jax.random.key(0), batch)
    sigma = float(jnp.exp(params["likelihood"]["log_scale"][0]))
    design = np.column_stack([np.ones(15), x])
    expected = np.linalg.slogdet(design.T @ design / sigma**2)[1] + np.log(2 * 15)
    np.testing.assert_allclose(log_volume(Objective(model, 15), batch, state, params), expected, rtol=1e-12)


def test_what_the_data_do_not_tell_apart_is_refused_with_the_reason() -> None:
    """Two weights that only their sum matters of."""
    network = Written(lambda phi: jnp.sum(phi, keepdims=True), (0.1, 0.2))
    with pytest.raises(lamu.Diverged, match="Fisher information"):
        fitted(network, Density(lambda phi: -jnp.sum(phi**2)), invariant_map(), steps=3)
    with pytest.raises(TypeError, match="not an optax optimiser"):
        invariant_map(3)
    assert isinstance(invariant_map(), InvariantMap)
    assert invariant_map().choices.departures[0].startswith("half the log-determinant")
