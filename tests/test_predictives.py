"""Predictive rules where they must coincide: linear models, wide draws, members of an ensemble."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from lamu.families import Ensemble, Gaussian, Point, Product
from lamu.geometry import Geometry, Retraction, Straight
from lamu.likelihoods import Bernoulli, Categorical
from lamu.likelihoods import Gaussian as Noise
from lamu.model import Model
from lamu.networks import MLP, Linear, Network
from lamu.operators import Dense
from lamu.predictives import (
    ClosedForm,
    GaussianPredictive,
    Linearised,
    Mixture,
    Pooled,
    Pooling,
    Predictive,
    PredictiveRule,
    Sampled,
)
from lamu.tree import dimension, ravel

KEY = jax.random.key(0)
X = jnp.asarray(np.random.default_rng(0).normal(size=(7, 2)))


def belief_of(model: Model, outputs: int) -> Product:
    weights, _ = model.network.init(jax.random.key(1), X, outputs)
    size = dimension(weights)
    root = np.random.default_rng(2).normal(size=(size, size)) / 2
    precision = Dense(jnp.asarray(root @ root.T + 2 * np.eye(size)))
    return Product({"network": Gaussian(weights, precision), "likelihood": Point({})})


def test_protocols_know_their_own() -> None:
    assert isinstance(Straight(), Geometry)
    assert isinstance(Retraction(), Geometry)
    assert isinstance(MLP((3,)), Network)
    assert all(isinstance(rule, PredictiveRule) for rule in (ClosedForm(), Linearised(), Sampled(), Pooling(Sampled())))


def test_closed_form_is_the_linear_algebra() -> None:
    model = Model(Linear(), Noise(scale=0.5))
    belief = belief_of(model, 1)
    pred = ClosedForm().predict(model, belief, {}, X, 1, KEY)
    assert isinstance(pred, GaussianPredictive)
    gaussian = belief.factors["network"]
    design = np.column_stack([np.ones(7), X])
    covariance = np.linalg.inv(gaussian.precision.matrix)
    np.testing.assert_allclose(pred.mean, design @ ravel(gaussian.mean)[0], rtol=1e-10)
    np.testing.assert_allclose(pred.epistemic, np.einsum("nd,de,ne->n", design, covariance, design), rtol=1e-10)
    np.testing.assert_allclose(pred.aleatoric, 0.25)


def test_closed_form_refuses_what_is_not_linear_and_gaussian() -> None:
    model = Model(Linear(), Bernoulli())
    with pytest.raises(TypeError, match="linear network and a Gaussian likelihood"):
        ClosedForm().predict(model, belief_of(model, 1), {}, X, 1, KEY)


@pytest.mark.parametrize(("likelihood", "outputs"), [(Bernoulli(), 1), (Categorical(3), 3)])
def test_linearised_is_sampled_where_nothing_is_linearised(likelihood, outputs: int) -> None:
    """The mean of 20,000 probabilities has a standard error below 0.0036; five of them, 21 times: 1 in 80,000 runs."""
    model = Model(Linear(), likelihood)
    belief = belief_of(model, outputs)
    one = Linearised().predict(model, belief, {}, X, 20_000, KEY)
    other = Sampled().predict(model, belief, {}, X, 20_000, jax.random.key(5))
    assert isinstance(one, Mixture)
    np.testing.assert_allclose(one.mean, other.mean, atol=5 * np.sqrt(2) * 0.0036)
    np.testing.assert_allclose(one.epistemic, other.epistemic, atol=0.03)


def test_linearised_of_two_outputs_is_jointly_normal() -> None:
    model = Model(MLP((3,), "tanh"), Noise(scale=0.5))
    belief = belief_of(model, 2)
    pred = Linearised().predict(model, belief, {}, X, 1, KEY)
    y = np.random.default_rng(3).normal(size=(7, 2))
    expected = [multivariate_normal(pred.mean[i], pred.covariance[i]).logpdf(y[i]) for i in range(7)]
    np.testing.assert_allclose(pred.log_prob(y), expected, rtol=1e-8)


def test_linearised_refuses_a_belief_that_is_no_gaussian() -> None:
    model = Model(Linear(), Bernoulli())
    with pytest.raises(TypeError, match="needs a Gaussian belief"):
        Linearised().predict(model, Point({"network": {}, "likelihood": {}}), {}, X, 1, KEY)


def test_pooled_is_the_mixture_of_its_members() -> None:
    model = Model(Linear(), Noise(scale=0.5))
    params = [{"network": model.network.init(jax.random.key(s), X, 1)[0], "likelihood": {}} for s in range(3)]
    belief = Ensemble(Point(jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)))
    pred = Pooling(Sampled()).predict(model, belief, {}, X, 3, KEY)
    assert isinstance(pred, Pooled)
    assert isinstance(pred, Predictive)
    f = jnp.stack([model.outputs(p, {}, X)[0] for p in params])
    whole = Mixture.equal(model.likelihood, {}, f)
    y = jnp.linspace(-1.0, 1.0, 7)
    for name in ("mean", "variance", "aleatoric", "epistemic"):
        np.testing.assert_allclose(getattr(pred, name), getattr(whole, name), rtol=1e-10, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(pred.log_prob(y), whole.log_prob(y), rtol=1e-10)
    np.testing.assert_allclose(pred.cdf(y), whole.cdf(y), rtol=1e-10)
    # The mean of 4,000 draws: 7 of them within four standard errors fails once in 2,200 runs.
    drawn = pred.sample(KEY, 4000)
    assert np.all(np.abs(drawn.mean(axis=0) - pred.mean) < 4 * pred.std / np.sqrt(4000))


def test_pooling_refuses_a_single_belief() -> None:
    model = Model(Linear(), Bernoulli())
    with pytest.raises(TypeError, match="averages an ensemble, not a Product"):
        Pooling(Sampled()).predict(model, belief_of(model, 1), {}, X, 1, KEY)
