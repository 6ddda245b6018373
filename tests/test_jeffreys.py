"""Jeffreys' prior: closed forms of one weight, Firth's regression, and what does not change with the coordinates."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.likelihoods import Bernoulli, Gaussian
from lamu.networks import MLP, Linear
from lamu.priors import Jeffreys
from lamu.testing.priors import log_prob_is_a_smooth_scalar

rng = np.random.default_rng(0)


def kernel(values) -> dict:
    return {"layers": {0: {"kernel": jnp.asarray(values)}}}


def mode(x, y, prior) -> np.ndarray:
    model = lamu.Model(Linear(bias=False), Bernoulli(), prior)
    adam = lamu.algorithms.adam(lamu.rate.Annealed(0.1))
    posterior = lamu.fit(model, (x, y), adam, steps=600, batch_size=len(y)).posterior
    return np.asarray(posterior.mean["network"]["layers"][0]["kernel"])[:, 0]


@pytest.mark.parametrize(("successes", "rows"), [(3, 10), (0, 7)])
def test_a_share_under_jeffreys_prior_counts_half_a_row_more_of_each(successes: int, rows: int) -> None:
    """The mode of the logit's density is (k + ½) / (N + 1), also without a success."""
    x, y = np.ones((rows, 1)), (np.arange(rows) < successes).astype(float)
    found = mode(x, y, Jeffreys(Linear(bias=False), Bernoulli(), x))
    np.testing.assert_allclose(1 / (1 + np.exp(-found[0])), (successes + 0.5) / (rows + 1), rtol=1e-5)


def test_separated_classes_have_firths_finite_mode() -> None:
    """Newton's iteration of Firth (1993) in NumPy: the score plus h (½ − p), h the leverages."""
    x = np.column_stack([np.ones(8), np.arange(8.0) - 3.5])
    y = (np.arange(8) >= 4).astype(float)
    beta = np.zeros(2)
    for _ in range(200):
        p = 1 / (1 + np.exp(-x @ beta))
        weight = p * (1 - p)
        inverse = np.linalg.inv(x.T @ (x * weight[:, None]))
        leverage = weight * np.einsum("ni,ij,nj->n", x, inverse, x)
        beta = beta + inverse @ x.T @ (y - p + leverage * (0.5 - p))
    np.testing.assert_allclose(mode(x, y, Jeffreys(Linear(bias=False), Bernoulli(), x)), beta, atol=1e-4)


def test_it_is_the_information_of_a_network() -> None:
    """The expected square of the score, class by class, of a network with a hidden layer."""
    x = jnp.asarray(rng.normal(size=(30, 2)))
    single = MLP((2,), "tanh")
    weights, _ = single.init(jax.random.key(1), x, 1)
    vector, unravel = lamu.tree.ravel(weights)

    def log_probability(theta, target):
        f = single.apply(unravel(theta), {}, x, None, False)[0]
        return Bernoulli().log_prob({}, f, jnp.full(30, target))

    share = jax.nn.sigmoid(single.apply(weights, {}, x, None, False)[0][:, 0])
    expected = jnp.zeros((vector.size, vector.size))
    for target, p in ((0.0, 1 - share), (1.0, share)):
        score = jax.jacfwd(log_probability)(vector, target)
        expected = expected + jnp.einsum("n,ni,nj->ij", p, score, score)
    found = Jeffreys(single, Bernoulli(), x).log_prob(weights)
    np.testing.assert_allclose(found, np.linalg.slogdet(expected)[1] / 2, rtol=1e-8)
    case = (Jeffreys(Linear(), Bernoulli(), x), {"layers": {0: {"bias": jnp.ones(1), "kernel": jnp.ones((2, 1))}}})
    log_prob_is_a_smooth_scalar(case)


def test_a_last_layer_has_its_own_information() -> None:
    """The hidden layer frozen, it is the prior of a linear network of the hidden units."""
    network, x = MLP((2,), "tanh"), jnp.asarray(rng.normal(size=(30, 2)))
    first, last = (network.init(jax.random.key(1), x, 1)[0]["layers"][i] for i in (0, 1))
    nothing = {"bias": None, "kernel": None}
    model = lamu.Model(network, Bernoulli(), Jeffreys(network, Bernoulli(), x))
    model = model.freeze({"network": {"layers": {0: first, 1: last}}}, "layers/0/*")
    free = model.init(jax.random.key(0), lamu.data.Batch.of(x, jnp.zeros(30)))[0]["network"]
    assert lamu.tree.paths(free) == ["layers/1/bias", "layers/1/kernel"]
    hidden = jnp.tanh(x @ first["kernel"] + first["bias"][None])
    expected = Jeffreys(Linear(), Bernoulli(), hidden).log_prob({"layers": {0: last}})
    params = {"network": {"layers": {0: nothing, 1: last}}, "likelihood": {}}
    np.testing.assert_allclose(model.log_prior(params), expected, rtol=1e-8)


def test_a_linear_network_of_gaussian_targets_has_a_flat_prior() -> None:
    x = rng.normal(size=(6, 2))
    prior = Jeffreys(Linear(bias=False), Gaussian(0.5), x)
    found = [float(prior.log_prob(kernel(value))) for value in (np.zeros((2, 1)), 3 * np.ones((2, 1)))]
    np.testing.assert_allclose(found, np.linalg.slogdet(x.T @ x / 0.25)[1] / 2, rtol=1e-10)


def test_weights_that_change_no_output_are_refused() -> None:
    prior = Jeffreys(Linear(bias=False), Bernoulli(), np.ones((5, 2)))
    with pytest.raises(ValueError, match="information of 2 weights at 5 inputs is singular"):
        prior.check(kernel(np.ones((2, 1))))
