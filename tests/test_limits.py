"""Limits of wide networks beside networks: the kernel, exact regression, and the share of the largest unit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from lamu.limits import EXPECTATIONS, NNGP, GaussianRegression, StableProcess
from lamu.networks import MLP
from lamu.networks.multilayer import ACTIVATIONS
from lamu.priors import Cauchy, FanIn, Normal
from tests.for_each import for_each

rng = np.random.default_rng(0)
X = jnp.asarray(rng.normal(size=(4, 3)))
GAIN, BIAS = 1.3, 0.4
WIDTH = 4096


def hidden(network: MLP, prior: Any, seed: int, x: Any = X) -> tuple[Any, Any]:
    """The activations of the last hidden layer of a network drawn from its prior, and its weights after them."""
    key = jax.random.key(seed)
    params = jax.eval_shape(lambda: network.init(jax.random.key(0), x, 1)[0])
    draw = prior.sample(key, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), params))
    h = x
    for layer in range(len(network.widths)):
        at = draw["layers"][layer]
        h = ACTIVATIONS[network.activation](h @ at["kernel"] + at["bias"][None])
    return h, draw["layers"][len(network.widths)]["kernel"][:, 0]


@pytest.mark.parametrize("name", EXPECTATIONS)
def test_expectations_are_quadratures(name: str) -> None:
    one, other = 1.7, 0.6
    activation = {"relu": lambda u: max(u, 0.0), "erf": special.erf}[name]
    for correlation in (-0.9, 0.0, 0.5):
        covariance = correlation * np.sqrt(one * other)
        density = stats.multivariate_normal([0, 0], [[one, covariance], [covariance, other]]).pdf
        low = 0.0 if name == "relu" else -12.0
        expected, _ = integrate.dblquad(
            lambda u, v, p=density: activation(u) * activation(v) * p((u, v)), low, 12, low, 12, epsabs=1e-7
        )
        found = EXPECTATIONS[name](*map(jnp.asarray, (covariance, one, other)))
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("activation", "depth"), [("relu", 1), ("erf", 1), pytest.param("relu", 2, marks=pytest.mark.stress)]
)
def test_the_kernel_is_that_of_wide_networks(activation: str, depth: int) -> None:
    """Width 4,096, the mean of 64 networks, all entries within 3 % of the largest.

    An entry of one network has a standard error of at most 2.5 / sqrt(4,096) = 3.9 % of it a layer (rectifiers), hence
    the mean one of 0.5 % to 0.7 %: four of them are less than 3 %, a false alarm below 1e-3 over the ten entries.
    """
    network, prior = MLP((WIDTH,) * depth, activation), Normal(FanIn(GAIN, BIAS))
    draw = jax.jit(lambda seed: _gram(hidden(network, prior, seed)[0]))
    draws = [draw(seed) for seed in range(64)]
    found = BIAS**2 + GAIN**2 * np.mean(draws, axis=0)
    expected = NNGP(depth, activation, GAIN, BIAS).kernel(X)
    assert np.abs(found - expected).max() < 0.03 * np.abs(expected).max()


def _gram(h: Any) -> Any:
    return h @ h.T / h.shape[1]


def test_depth_and_the_order_of_bias_and_gain() -> None:
    """By hand for one input, where the rectifier halves a variance and the error function is an arcsine."""
    x, first = jnp.array([[2.0, 0.0]]), BIAS**2 + GAIN**2 * 2.0
    second = BIAS**2 + GAIN**2 * first / 2
    np.testing.assert_allclose(NNGP(2, "relu", GAIN, BIAS).kernel(x), [[BIAS**2 + GAIN**2 * second / 2]], rtol=1e-12)
    arcsine = BIAS**2 + GAIN**2 * 2 / np.pi * np.arcsin(2 * first / (1 + 2 * first))
    np.testing.assert_allclose(NNGP(1, "erf", GAIN, BIAS).kernel(x), [[arcsine]], rtol=1e-12)


@pytest.mark.stress
def test_the_kernel_is_positive_and_its_diagonal_is_the_variance() -> None:
    for dtype, tolerance in ((jnp.float64, 1e-9), (jnp.float32, 1e-5)):
        x = X.astype(dtype)
        for process in (NNGP(3), NNGP(3, "erf")):
            kernel = process.kernel(x)
            assert kernel.dtype == dtype
            np.testing.assert_allclose(jnp.diagonal(kernel), process.variance(x), rtol=tolerance)
            assert np.linalg.eigvalsh(kernel).min() > 0
            np.testing.assert_allclose(process.kernel(x, x[:2]), kernel[:, :2], rtol=tolerance)


def test_regression_is_scikit_learns() -> None:
    """With the kernel given as a linear one of its root, whose exact posterior is that of Bayesian ridge regression."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import DotProduct

    y, z, noise = jnp.asarray(rng.normal(size=4)), jnp.asarray(rng.normal(size=(6, 3))), 0.3
    process = NNGP(2, "erf", GAIN, BIAS)
    posterior = process.regression(X, y, noise)
    assert isinstance(posterior, GaussianRegression)
    root = np.linalg.cholesky(np.asarray(process.kernel(jnp.concatenate([X, z]))))
    theirs = GaussianProcessRegressor(DotProduct(1e-10, "fixed"), alpha=noise**2, optimizer=None).fit(root[:4], y)
    mean, deviation = theirs.predict(root[4:], return_std=True)
    found_mean, found_variance = posterior.predict(z)
    np.testing.assert_allclose(found_mean, mean, rtol=1e-7)
    np.testing.assert_allclose(np.sqrt(found_variance), deviation, rtol=1e-7)
    np.testing.assert_allclose(posterior.evidence, theirs.log_marginal_likelihood_value_, rtol=1e-9)
    both = process.regression(X, jnp.stack([y, 2 * y], axis=1), noise)
    np.testing.assert_allclose(both.predict(z)[0], jnp.stack([found_mean, 2 * found_mean], axis=1), rtol=1e-10)
    single = [process.regression(X, each * y, noise).evidence for each in (1.0, 2.0)]
    np.testing.assert_allclose(both.evidence, sum(single), rtol=1e-10)


@pytest.mark.parametrize("activation", EXPECTATIONS)
def test_the_evidence_has_a_gradient_in_its_scales(activation: str) -> None:
    """Also through the diagonal, where the angle of the arc-cosine kernel is zero."""
    y = jnp.asarray(rng.normal(size=4))
    evidence = lambda gain: NNGP(2, activation, gain, BIAS).regression(X, y, 0.3).evidence
    slope, step = jax.jit(jax.grad(evidence))(GAIN), 1e-5
    np.testing.assert_allclose(slope, (evidence(GAIN + step) - evidence(GAIN - step)) / (2 * step), rtol=1e-5)


def share(network: MLP, prior: Any, seed: int) -> float:
    """The largest unit's share of the output's variance over the last kernel: v_j² Σ_n h_nj² of their sum."""
    h, weights = hidden(network, prior, seed)
    parts = np.asarray(weights**2 * jnp.sum(h**2, axis=0))
    return float(parts.max() / parts.sum())


@pytest.mark.stress
def test_no_unit_stands_out_under_normal_weights_and_some_do_under_cauchy_weights() -> None:
    """Medians of 20 networks. Of H normal weights the largest square is about 2 log H of a sum of H, here some 1 %;
    that of Cauchy weights keeps its law, of which 20 draws have a median below a quarter once in 1e5 seeds.
    """
    median = lambda width, prior: np.median([share(MLP((width,), "tanh"), prior, seed) for seed in range(20)])
    normal, cauchy = Normal(FanIn(GAIN, BIAS)), lambda width: Cauchy({"layers/1/kernel": 1 / width, "*": 1.0})
    assert median(WIDTH, normal) < 0.02 < 0.5 * median(64, normal)
    assert median(64, cauchy(64)) > 0.25
    assert median(WIDTH, cauchy(WIDTH)) > 0.25


@pytest.mark.parametrize("index", [0.8, 1.0, 1.5])
def test_the_outputs_of_the_process_are_stable(index: float) -> None:
    """Steep units have the size one: then f(x) has the index and the scale of the law, also without its constant's
    formula. A Kolmogorov-Smirnov test of 1,000 draws at the level 1e-3 rejects a scale wrong by a fifth.
    """
    process = StableProcess(index, "erf", scale=2.0, weight=1e4, bias=1e4)
    f, shares = process.sample(jax.random.key(3), 1000, jnp.array([[0.3]]), terms=1500)
    law = stats.cauchy(scale=2.0).cdf if index == 1.0 else None
    if law is None:
        with np.errstate(all="ignore"):
            grid = np.linspace(-60, 60, 401)
            values = stats.levy_stable.cdf(grid, index, 0.0, scale=2.0)
        law = lambda y: np.interp(y, grid, values)
    assert stats.kstest(np.asarray(f)[:, 0], law).pvalue > 1e-3
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-9)


def test_the_process_is_the_limit_of_cauchy_networks() -> None:
    """300 draws of each at one input: a two-sample test at the level 1e-3."""
    x, width = jnp.array([[0.7]]), 1024
    network, prior = MLP((width,), "tanh"), Cauchy({"layers/1/kernel": 1 / width, "*": 1.0})
    normal = Normal(1.0)

    def output(seed: Any) -> Any:
        h, _ = hidden(network, normal, seed, x)
        return jnp.sum(h[0] * hidden(network, prior, seed + 1000, x)[1])

    finite = [float(each) for each in jax.lax.map(jax.jit(output), jnp.arange(300))]
    limit, _ = StableProcess(1.0, "tanh").sample(jax.random.key(5), 300, x)
    assert stats.ks_2samp(finite, np.asarray(limit)[:, 0]).pvalue > 1e-3


@for_each(
    "make, words",
    [
        (lambda: NNGP(0), "depth=0 is not a number"),
        (lambda: NNGP(activation="tanh"), "activation 'tanh'; choose 'relu' or 'erf'"),
        (lambda: NNGP(gain=-1.0), "the gain -1.0 is not positive"),
        (lambda: NNGP().kernel(X[0]), r"shape \(3,\); give rows"),
        (lambda: NNGP().kernel(X, X[:, 1:]), "have 3 and 2 features"),
        (lambda: NNGP().regression(X, jnp.zeros(3), 0.1), r"shape \(3,\) for 4 inputs"),
        (lambda: NNGP().regression(X, jnp.zeros(4), 0.0), "the noise 0.0 is not positive"),
        (
            lambda: NNGP().regression(jnp.ones((9, 3), jnp.float32), jnp.zeros(9), 1e-9),
            "not positive definite in float32",
        ),
        (lambda: StableProcess(2.0), "index=2.0 is not between 0 and 2"),
        (lambda: StableProcess(activation="step"), "unknown activation 'step'"),
        (lambda: StableProcess(scale=0.0), "the scale 0.0 is not positive"),
    ],
)
def test_mistakes_are_said_in_a_sentence(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
