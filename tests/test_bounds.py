"""The evidence lower bound of a belief: exact for the exact posterior, below the evidence for any other."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.families import Gaussian, Point, Product
from lamu.operators import Diagonal
from lamu.scores import elbo, evidence

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 2))
Y = X @ np.array([1.0, -2.0]) + 0.5 * rng.normal(size=30)
MODEL = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(scale=0.5), lamu.priors.Normal(2.0))


def _exact() -> float:
    from scipy.stats import multivariate_normal

    return float(multivariate_normal.logpdf(Y, np.zeros(30), 0.25 * np.eye(30) + 4.0 * X @ X.T))


def test_of_the_exact_posterior_it_is_the_evidence() -> None:
    posterior = lamu.fit(MODEL, (X, Y), lamu.algorithms.conjugate()).posterior
    found = elbo(posterior, (X, Y), samples=4)
    assert found.value == pytest.approx(_exact(), abs=1e-8)
    assert found.error < 1e-8
    assert evidence(posterior, (X, Y)).value == pytest.approx(_exact(), abs=1e-8)


def test_of_a_wrong_belief_it_is_low_by_the_divergence() -> None:
    """By KL(q ‖ p(θ|D)), in closed form; four standard errors, wrong once in 16,000 times."""
    posterior = lamu.fit(MODEL, (X, Y), lamu.algorithms.conjugate()).posterior
    mean = jax.tree.map(lambda leaf: leaf + 0.1, posterior.belief.factors["network"].mean)
    belief = Gaussian(mean, Diagonal(jax.tree.map(lambda leaf: jnp.full_like(leaf, 80.0), mean)))
    wrong = lamu.Posterior(
        MODEL, Product({"network": belief, "likelihood": Point({})}), {}, lamu.predictives.Sampled(), posterior.key
    )
    found = elbo(wrong, {"x": X, "y": Y}, samples=4000)
    precision = X.T @ X / 0.25 + np.eye(2) / 4.0
    shift = np.full(2, 0.1)
    kl = 0.5 * (np.trace(precision) / 80 - 2 + shift @ precision @ shift - np.linalg.slogdet(precision / 80)[1])
    assert abs(found.value - (_exact() - kl)) < 4 * found.error
    assert found.error < 0.1 * kl
    assert evidence(wrong, (X, Y)).value < _exact()


def test_what_has_no_bound() -> None:
    point = lamu.fit(MODEL, (X, Y), lamu.algorithms.sgd(), epochs=1).posterior
    with pytest.raises(TypeError, match="a Point belief has no density"):
        elbo(point, (X, Y))
    with pytest.raises(ValueError, match="samples=1 have no standard error"):
        elbo(point, (X, Y), samples=1)
