"""Gamma beliefs about the scales of a prior beside a Gaussian one about the weights: exact messages, step by step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special

import lamu
from lamu import Model, fit
from lamu.algorithms import adam, conjugate, conjugate_scales, ivon, von
from lamu.algorithms.variational.conjugate_scales import scale_messages
from lamu.expectations import Exact
from lamu.families import Gamma
from lamu.likelihoods import Gaussian
from lamu.networks import MLP, Linear
from lamu.operators import Diagonal
from lamu.priors import (
    ARD,
    GammaVariance,
    HalfCauchyScale,
    Hierarchical,
    Horseshoe,
    InverseGammaVariance,
    Laplace,
    Normal,
    RegularisedHorseshoe,
    Scale,
)
from tests.for_each import for_each

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 5))
Y = 2.0 * X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=60)
NOISE = 0.5


def coordinate_ascent(law: Any, temperature: float, sweeps: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Mean-field regression without an intercept and a precision a weight, in NumPy; from Bishop (2006), 10.3.

    Every factor's natural parameters are divided by T. The auxiliary η of a half-Cauchy has none of log η, as ½ and −½
    cancel, so that q(η) = Gamma(1, (1/s² + E[precision])/T).
    """
    gram, cross = X.T @ X / NOISE**2, X.T @ Y / NOISE**2
    mean, precision = np.zeros(5), np.ones(5)
    for _ in range(sweeps):
        variance = temperature / (np.diagonal(gram) + precision)
        for j in range(5):
            rest = cross[j] - gram[j] @ mean + gram[j, j] * mean[j]
            mean[j] = rest / (gram[j, j] + precision[j])
        if isinstance(law, HalfCauchyScale):
            a, b = 0.5, temperature / (1 / law.scale**2 + precision)
        else:
            a, b = law.shape, law.rate
        precision = (a - 0.5 + temperature) / (b + (mean**2 + variance) / 2)
    return mean, precision


@pytest.mark.parametrize("law", [InverseGammaVariance(1.5, 0.2), HalfCauchyScale(0.7)], ids=["inverse gamma", "cauchy"])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_the_fixed_point_is_that_of_coordinate_ascent(law: Any, temperature: float) -> None:
    """A precision a weight, by exact expectations: at two temperatures, so that N and T enter once."""
    prior = ARD(by="weight", law=law)
    algorithm = conjugate_scales(von(0.3, Diagonal, Exact()))
    model = Model(Linear(bias=False), Gaussian(NOISE), prior)
    run = fit(model, (X, Y), algorithm, steps=300, batch_size=60, temperature=temperature)
    mean, precision = coordinate_ascent(law, temperature)
    np.testing.assert_allclose(run.posterior.mean["network"]["layers"][0]["kernel"][:, 0], mean, rtol=1e-6)
    np.testing.assert_allclose(run.state.precisions[0].mean["layers/0/kernel"][:, 0], precision, rtol=1e-6)
    scale = run.posterior.model.prior.scale["layers"][0]["kernel"]
    np.testing.assert_allclose(scale[:, 0], precision**-0.5, rtol=1e-6)


@pytest.mark.parametrize("law", [InverseGammaVariance(1.5, 0.2), HalfCauchyScale(0.7)], ids=["inverse gamma", "cauchy"])
@pytest.mark.parametrize("temperature", [0.1, 0.5, 1.0, 3.0])
def test_messages_climb_the_tempered_bound(law: Any, temperature: float) -> None:
    r"""Of one weight of known size, where messages end \(E[\log p]/T + H\) is largest over q(1/τ²) and q(1/ν).

    The bound is written out and climbed by SciPy, with no formula of a message.
    """
    square = 0.5
    precisions = (Gamma({"w": jnp.ones(1)}, {"w": jnp.ones(1)}),)
    prior = ARD(by="weight", law=law, leaves="*")
    for _ in range(100):
        precisions = scale_messages(prior, precisions, {"w": jnp.full(1, square)}, temperature)

    def moments(shape: float, rate: float) -> tuple[float, float, float]:
        """E[x], E[log x] and the entropy of a Gamma."""
        entropy = shape - np.log(rate) + special.gammaln(shape) + (1 - shape) * special.digamma(shape)
        return shape / rate, special.digamma(shape) - np.log(rate), entropy

    def loss(logarithms: np.ndarray) -> float:
        shape, rate, *auxiliary = np.exp(logarithms)
        mean, log, entropy = moments(shape, rate)
        likelihood = 0.5 * log - 0.5 * square * mean
        if isinstance(law, InverseGammaVariance):
            return -(likelihood + (law.shape - 1) * log - law.rate * mean) / temperature - entropy
        eta, log_eta, entropy_eta = moments(*auxiliary)
        conditional = 0.5 * log_eta - 0.5 * log - eta * mean  # of the precision given η, Gamma(½, η)
        prior_of_eta = -0.5 * log_eta - eta / law.scale**2  # Gamma(½, 1/s²)
        return -(likelihood + conditional + prior_of_eta) / temperature - entropy - entropy_eta

    found = optimize.minimize(loss, np.zeros(2 if isinstance(law, InverseGammaVariance) else 4), tol=1e-12)
    expected = np.exp(found.x[:2])
    np.testing.assert_allclose([precisions[0].shape["w"][0], precisions[0].rate["w"][0]], expected, rtol=1e-4)


def test_messages_of_two_levels() -> None:
    """A global scale and one an input, with a standardised prior of scale 2, by the formula group by group."""
    prior = Hierarchical(Normal(2.0), (Scale(InverseGammaVariance(3.0, 4.0), "all"), Scale(by="input")))
    squares = {"bias": jnp.ones(2), "kernel": jnp.array([[1.0, 2.0], [3.0, 5.0]])}
    before = (
        Gamma({"all": jnp.array(6.0)}, {"all": jnp.array(2.0)}),
        Gamma({"kernel": jnp.array([[1.0], [2.0]])}, {"kernel": jnp.array([[1.0], [1.0]])}),
    )
    whole, each = scale_messages(prior, before, squares)
    # δ = 1/4; the inputs' mean precisions are 1 and 2.
    np.testing.assert_allclose(whole.shape["all"], 3.0 + 4 / 2)
    np.testing.assert_allclose(whole.rate["all"], 4.0 + (3.0 * 1 + 8.0 * 2) / 4 / 2)
    precision = 5.0 / (4.0 + 19.0 / 8)
    np.testing.assert_allclose(each.shape["kernel"], [[0.5 + 1], [0.5 + 1]])
    expected = 1 / (1 + np.array([1.0, 2.0])) + np.array([3.0, 8.0]) / 4 / 2 * precision
    np.testing.assert_allclose(each.rate["kernel"][:, 0], expected)


@pytest.mark.stress
def test_inputs_that_do_nothing_lose_their_weights_above_a_network() -> None:
    """Under a scale an input, the weights of three idle inputs shrink to a third of what one scale leaves them."""
    model = Model(MLP((8,), "tanh"), Gaussian(NOISE), ARD(leaves="layers/0/kernel"))
    run = fit(model, (X, Y), conjugate_scales(ivon()), steps=600, batch_size=60)
    plain = fit(Model(MLP((8,), "tanh"), Gaussian(NOISE)), (X, Y), ivon(), steps=600, batch_size=60)
    norm = lambda run: np.linalg.norm(run.posterior.mean["network"]["layers"][0]["kernel"], axis=1)
    assert norm(run)[2:].mean() < norm(plain)[2:].mean() / 3
    assert norm(run)[:2].mean() > norm(plain)[:2].mean() / 3
    assert run.posterior.predict(X).mean.shape == (60,)


def test_a_horseshoe_halves_the_weights_of_noise_in_a_regression() -> None:
    """Diabetes beside 40 columns of noise: at most half of the ridge's, and the four largest keep 70 %."""
    x, y = lamu.data.load("diabetes")
    x = np.column_stack([x, np.random.default_rng(0).normal(size=(len(x), 40))])

    def weights(prior: Any, algorithm: Any, **options: Any) -> np.ndarray:
        model = Model(Linear(), Gaussian(0.7), prior).standardised(x, y)
        return np.asarray(fit(model, (x, y), algorithm, **options).posterior.mean["network"]["layers"][0]["kernel"])

    sparse = weights(Horseshoe(), conjugate_scales(von(0.3, Diagonal, Exact())), steps=200, batch_size=len(y))
    ridge = weights(Normal(1.0), conjugate())
    assert np.abs(sparse[10:]).mean() < np.abs(ridge[10:]).mean() / 2
    assert np.all((sparse / ridge)[[1, 2, 3, 8]] > 0.7)


def test_frozen_weights_tell_of_their_scale() -> None:
    """The message of known weights is Gamma(a + n/2, b + sum w^2 / 2)."""
    model = Model(MLP((3,)), Gaussian(NOISE), ARD(law=InverseGammaVariance(3.0, 2.0)))
    params, _ = model.init(jax.random.key(0), lamu.data.Batch.of(jnp.asarray(X), jnp.asarray(Y)))
    run = fit(model.freeze(params, "layers/0/*"), (X, Y), conjugate_scales(), steps=5, batch_size=60)
    precisions, kernel = run.state.precisions[0], params["network"]["layers"][0]["kernel"]
    np.testing.assert_allclose(precisions.shape["layers/0/kernel"], 3.0 + 3 / 2)
    rate = 2.0 + jnp.sum(kernel**2, axis=1, keepdims=True) / 2
    np.testing.assert_allclose(precisions.rate["layers/0/kernel"], rate, rtol=1e-6)
    np.testing.assert_allclose(precisions.shape["layers/1/kernel"], 3.5)


@for_each(
    "prior, algorithm, message",
    [
        (Normal(1.0), ivon(), r"Normal has no conjugate ones; give one of them as the model's prior"),
        (RegularisedHorseshoe(), ivon(), "RegularisedHorseshoe has no conjugate ones"),
        (ARD(weights=Laplace(1.0)), ivon(), "is not normal of mean 0"),
        (ARD(weights=Normal(1.0, loc=0.5)), ivon(), r"loc=0.5.* is not normal of mean 0"),
        (ARD(law=GammaVariance()), ivon(), "GammaVariance is not conjugate"),
        (ARD(), adam(), r"a Point has none; give an algorithm of a Gaussian belief"),
    ],
)
def test_what_has_no_messages_is_one_sentence(prior: Any, algorithm: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        fit(Model(Linear(), Gaussian(NOISE), prior), (X, Y), conjugate_scales(algorithm), steps=1)


def test_a_prior_of_weights_without_their_scales_names_both_ways() -> None:
    with pytest.raises(ValueError, match=r"prior.around\(network\).*conjugate_scales"):
        fit(Model(Linear(), Gaussian(NOISE), ARD()), (X, Y), ivon(), steps=1)
    with pytest.raises(TypeError, match="ARD"):
        fit(Model(Linear(), Gaussian(NOISE), ARD()), (X, Y), conjugate())
