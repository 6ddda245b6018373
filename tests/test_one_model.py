"""The slice: on linear regression conjugate = laplace = von's limit to 1e-6, and nuts within Monte Carlo error.

Every convention is on trial at once: N, the prior's share of a batch, padding rows, temperature, the scaling of the
target.
"""

from __future__ import annotations

import warnings

import jax
import numpy as np
import optax
import pytest

from lamu import tree
from lamu.algorithms import conjugate, laplace, map_estimate, von
from lamu.expectations import Exact
from lamu.likelihoods import Gaussian, Scaled
from lamu.loop import fit
from lamu.mcmc import nuts
from lamu.model import Model
from lamu.networks import Linear, Standardised
from lamu.operators import Dense
from lamu.predictives import ClosedForm, Sampled
from lamu.priors import Normal

NOISE, PRIOR = 0.4, 1.3
SHIFT, SCALE = 12.0, 5.0
CASES = [(rows, temperature, scaled) for rows in (23, 60) for temperature in (1.0, 0.4) for scaled in (False, True)]
# Every value of each with every value of another one; the remaining half is for the long run.
HALF = [(23, 1.0, False), (23, 0.4, True), (60, 1.0, True), (60, 0.4, False)]


def problem(rows: int, scaled: bool):
    """Returns model, training data, test data and the design matrices in the network's own units."""
    generator = np.random.default_rng(11)
    x = generator.normal(size=(rows + 9, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 0.8, -0.3], [0.0, 0.0, 0.5]])
    z = x @ np.array([1.0, -2.0, 0.5]) + 0.7 + NOISE * generator.normal(size=len(x))
    network, likelihood, inputs, targets = Linear(), Gaussian(scale=NOISE), x, z
    if scaled:
        network = Standardised(network, shift=np.full(3, 2.0), scale=np.array([3.0, 0.5, 2.0]))
        likelihood = Scaled(likelihood, shift=np.array(SHIFT), scale=np.array(SCALE))
        inputs, targets = 2.0 + x * np.array([3.0, 0.5, 2.0]), SHIFT + SCALE * z
    design = np.column_stack([np.ones(len(x)), x])
    return Model(network, likelihood, Normal(PRIOR)), inputs, targets, design, z


def textbook(design, z, temperature, scale):
    """Bishop (2006), 3.50 to 3.58, to the power 1/T; evidence by the marginal of z, an independent road at T = 1."""
    precision = (design.T @ design / NOISE**2 + np.eye(design.shape[1]) / PRIOR**2) / temperature
    mean = np.linalg.solve(precision, design.T @ z / NOISE**2 / temperature)
    if temperature == 1.0:
        from scipy.stats import multivariate_normal

        marginal = NOISE**2 * np.eye(len(z)) + PRIOR**2 * design @ design.T
        evidence = multivariate_normal(np.zeros(len(z)), marginal).logpdf(z)
    else:
        from scipy.stats import norm

        joint = norm(design @ mean, NOISE).logpdf(z).sum() + norm(0, PRIOR).logpdf(mean).sum()
        evidence = joint / temperature + len(mean) / 2 * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1] / 2
    return mean, np.linalg.inv(precision), evidence - len(z) * np.log(scale) / temperature


def predictive(design, z, mean, covariance, scale):
    from scipy.stats import norm

    spread = np.sqrt(np.einsum("nd,de,ne->n", design, covariance, design) + NOISE**2)
    return norm(design @ mean, spread).logpdf(z) - np.log(scale)


@pytest.mark.parametrize(
    ("rows", "temperature", "scaled"),
    [pytest.param(*case, marks=[] if case in HALF else [pytest.mark.stress]) for case in CASES],
)
def test_conjugate_laplace_and_von_are_the_textbook(rows: int, temperature: float, scaled: bool) -> None:
    model, x, y, design, z = problem(rows, scaled)
    scale = SCALE if scaled else 1.0
    mean, covariance, evidence = textbook(design[:rows], z[:rows], temperature, scale)
    expected = predictive(design[rows:], z[rows:], mean, covariance, scale)
    # 23 rows in batches of 10 leave 7 rows of padding; a batch size above N pads nothing: both roads are taken.
    for algorithm, options in (
        (conjugate(), {"batch_size": 10}),
        (laplace(optimizer=map_estimate(optax.lbfgs()), structure=Dense), {"steps": 60, "batch_size": rows}),
        (von(0.5, Dense, Exact()), {"steps": 80, "batch_size": rows}),
    ):
        posterior = fit(model, (x[:rows], y[:rows]), algorithm, temperature=temperature, **options).posterior
        belief = posterior.belief.factors["network"]
        np.testing.assert_allclose(tree.ravel(belief.mean)[0], mean, atol=1e-6)
        np.testing.assert_allclose(np.linalg.inv(belief.precision.dense(belief.mean)), covariance, atol=1e-6)
        log_density = posterior.with_rule(ClosedForm()).predict(x[rows:]).log_prob(y[rows:])
        np.testing.assert_allclose(log_density, expected, atol=1e-6)
        if posterior.evidence is not None:
            np.testing.assert_allclose(posterior.evidence, evidence, atol=1e-6)


@pytest.mark.parametrize(("rows", "temperature", "scaled"), [(23, 0.4, True), (60, 1.0, False)])
def test_nuts_is_the_textbook_within_monte_carlo_error(rows: int, temperature: float, scaled: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ArviZ announces its next version at import
        import arviz

    model, x, y, design, z = problem(rows, scaled)
    scale = SCALE if scaled else 1.0
    mean, covariance, _ = textbook(design[:rows], z[:rows], temperature, scale)
    sampler = nuts(chains=4, warmup=300, draws=500)
    posterior = fit(model, (x[:rows], y[:rows]), sampler, temperature=temperature).posterior
    draws = np.asarray(jax.vmap(jax.vmap(lambda params: tree.ravel(params)[0]))(posterior.samples))
    size = np.array([float(arviz.ess(draws[..., i])) for i in range(4)])
    assert size.min() > 400
    deviation = np.sqrt(np.diagonal(covariance))
    # 2 cases x (4 means + 10 second moments): the largest of 28 standard normals exceeds 4.5 once in 5,200 runs.
    assert np.max(np.abs(draws.mean((0, 1)) - mean) / (deviation / np.sqrt(size))) < 4.5
    white = (draws.reshape(-1, 4) - mean) / deviation
    correlation = covariance / np.outer(deviation, deviation)
    second = white.T @ white / len(white)
    error = np.sqrt((1 + correlation**2) / size.min())  # Var[uv] = 1 + r² for standard normals
    assert np.max(np.abs(second - correlation) / error) < 4.5
    expected = predictive(design[rows:], z[rows:], mean, covariance, scale)
    log_density = posterior.with_rule(Sampled()).predict(x[rows:], samples=2000).log_prob(y[rows:])
    np.testing.assert_allclose(log_density, expected, atol=0.05)
