"""Hyperparameters by the evidence: numbers climbed, and choices compared."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats
from scipy.optimize import minimize, minimize_scalar

import lamu
from lamu.algorithms.post_hoc.subnetwork import HeadWeights
from lamu.likelihoods import Bernoulli, Gaussian, NegativeBinomial, Poisson, links
from lamu.objective.curvature import Hessian

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 2))
Y = X @ [1.5, -0.8] + 0.4 * RANDOM.normal(size=40)


def of_scales(scale: float, noise: float):
    return lamu.Model(lamu.networks.Linear(bias=False), Gaussian(noise), lamu.priors.Normal(scale))


def test_numbers_come_to_the_maximum_of_the_exact_evidence() -> None:
    """Prior scale and noise of linear regression, whose evidence is a normal density of the targets."""

    def loss(logs: np.ndarray) -> float:
        scale, noise = np.exp(logs)
        covariance = scale**2 * X @ X.T + noise**2 * np.eye(40)
        return -float(stats.multivariate_normal(np.zeros(40), covariance).logpdf(Y))

    best = minimize(loss, np.zeros(2), tol=1e-8)
    found = lamu.fit_evidence(of_scales, (X, Y), lamu.algorithms.conjugate(), numbers={"scale": 1.0, "noise": 1.0})
    assert isinstance(found, lamu.EvidenceFit)
    np.testing.assert_allclose(np.log(list(found.chosen.values())), best.x, atol=0.1)
    np.testing.assert_allclose(found.evidence.value, -best.fun, atol=0.02)
    assert found.evidence.value == max(value.value for _, value in found.tried)
    assert float(found.posterior.evidence) == found.evidence.value


@pytest.mark.stress
def test_links_are_compared_by_laplaces_evidence() -> None:
    """The probability of one is far from symmetric, which one link of the three can say; beside quadrature."""
    x = np.linspace(-2.0, 2.0, 150)[:, None]
    p = -np.expm1(-np.exp(1.5 * x[:, 0]))
    y = (RANDOM.random(150) < p).astype(int)
    known = {"logit": links.Logit(), "log_log": links.LogLog(), "complementary": links.ComplementaryLogLog()}

    def build(link: str):
        return lamu.Model(lamu.networks.Linear(bias=False), Bernoulli(known[link]), lamu.priors.Normal(3.0))

    algorithm = lamu.algorithms.laplace(curvature=Hessian())
    found = lamu.fit_evidence(build, (x, y), algorithm, choices={"link": list(known)}, epochs=60)
    w = np.linspace(-6.0, 6.0, 2401)
    probability = {
        "logit": special.expit,
        "log_log": lambda f: np.exp(-np.exp(-f)),
        "complementary": lambda f: -np.expm1(-np.exp(f)),
    }
    for psi, value in found.tried:
        q = np.clip(probability[psi["link"]](w[:, None] * x[:, 0]), 1e-300, 1 - 1e-16)
        joint = np.sum(np.where(y == 1, np.log(q), np.log1p(-q)), axis=1) + stats.norm.logpdf(w, 0.0, 3.0)
        assert abs(special.logsumexp(joint) + math.log(w[1] - w[0]) - value.value) < 0.1
    assert found.chosen == {"link": "complementary"}


@pytest.mark.stress
def test_a_bound_chooses_the_prior_scale_that_the_exact_evidence_does() -> None:
    """The mean field's bound of a linear model lies below the evidence, and is largest at the same scale of three."""
    scales = [0.03, 1.0, 100.0]
    build = lambda scale: of_scales(scale, 0.4)
    found = lamu.fit_evidence(
        build, (X, Y), lamu.algorithms.ivon(), choices={"scale": scales}, steps=1500, batch_size=40
    )
    exact = [
        float(stats.multivariate_normal(np.zeros(40), scale**2 * X @ X.T + 0.16 * np.eye(40)).logpdf(Y))
        for scale in scales
    ]
    assert found.chosen == {"scale": scales[int(np.argmax(exact))]} == {"scale": 1.0}
    for (_, bound), evidence in zip(found.tried, exact, strict=True):
        assert bound.value < evidence + 4 * bound.error


@pytest.mark.stress
def test_a_last_layer_chooses_the_prior_scale() -> None:
    """Laplace of the last layer alone: the evidence rises and falls, and its greatest is between two extremes."""

    def build(scale: float):
        return lamu.Model(lamu.networks.MLP((8,), "tanh"), Gaussian(0.4), lamu.priors.Normal(scale))

    algorithm = lamu.algorithms.laplace(weights=HeadWeights())
    found = lamu.fit_evidence(build, (X, Y), algorithm, choices={"scale": [0.01, 1.0, 100.0]}, epochs=200)
    assert found.chosen == {"scale": 1.0}


@pytest.mark.stress
def test_a_dispersion_of_counts_is_climbed_to_where_the_evidence_by_quadrature_is_greatest() -> None:
    """One weight, a negative binomial: the evidence is a sum over a grid of the weight."""
    x = RANDOM.normal(size=(150, 1))
    y = RANDOM.negative_binomial(2.0, 2.0 / (2.0 + np.exp(0.8 * x[:, 0] + 0.5)))
    w = np.linspace(-2.0, 3.0, 801)

    def loss(log_theta: float) -> float:
        theta = math.exp(log_theta)
        mass = stats.nbinom.logpmf(y, theta, theta / (theta + np.exp(w[:, None] * x[:, 0])))
        return -float(special.logsumexp(mass.sum(axis=1) + stats.norm.logpdf(w)) + math.log(w[1] - w[0]))

    best = minimize_scalar(loss, bounds=(-3.0, 4.0), method="bounded")
    build = lambda theta: lamu.Model(lamu.networks.Linear(bias=False), NegativeBinomial(theta), lamu.priors.Normal(1.0))
    algorithm = lamu.algorithms.laplace(curvature=Hessian())
    found = lamu.fit_evidence(build, (x, y), algorithm, numbers={"theta": 1.0}, epochs=60)
    assert abs(math.log(found.chosen["theta"]) - best.x) < 0.1
    assert abs(found.evidence.value + best.fun) < 0.1


def test_a_density_and_a_mass_are_not_compared() -> None:
    build = lambda likelihood: lamu.Model(lamu.networks.Linear(), likelihood)
    with pytest.raises(ValueError, match="a density and a mass do not compare"):
        lamu.fit_evidence(
            build,
            (X, RANDOM.poisson(1.0, 40)),
            lamu.algorithms.laplace(),
            choices={"likelihood": [Poisson(), Gaussian(1.0)]},
            epochs=2,
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "there is nothing to choose"),
        ({"numbers": {"scale": 0.0}}, "scale=0.0 is not positive and finite"),
        ({"choices": {"scale": []}}, "the choice 'scale' has no value"),
        ({"choices": {"scale": [1.0]}, "numbers": {"scale": 1.0}}, "is a choice and a number"),
    ],
)
def test_mistakes_are_told_before_any_fit(options, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        lamu.fit_evidence(of_scales, (X, Y), lamu.algorithms.conjugate(), **options)
