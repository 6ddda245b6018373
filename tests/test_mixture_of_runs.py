from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import lamu
from lamu.algorithms import deep_ensemble, ivon, sgd
from lamu.algorithms.ensembles.mixture import EqualWeights, EvidenceWeights, Mixed, mixture
from lamu.data import Arrays, Batch
from lamu.networks import MLP, BatchNorm, Linear
from lamu.objective import Objective

rng = np.random.default_rng(4)
N = 20
X = rng.normal(size=(N, 2))
Y = X @ np.array([1.0, -2.0]) + 0.5 * rng.normal(size=N)
MODEL = lamu.Model(Linear(bias=False), lamu.likelihoods.Gaussian(scale=0.5))
OBJECTIVE, BATCH = Objective(MODEL, float(N), 0.5), Batch.of(X, Y)
KEY = jax.random.key(0)


def state_of(algorithm, steps: int = 3):
    state, step = algorithm.init(jax.random.clone(KEY), OBJECTIVE, BATCH), jax.jit(algorithm.step)
    for t in range(steps):
        state, _ = step(jax.random.key(10 + t), state, BATCH, OBJECTIVE)
    return state


def parts(belief) -> tuple[np.ndarray, np.ndarray]:
    components = belief.factors["network"].components
    mean, precision = (leaf["layers"][0]["kernel"][..., 0] for leaf in (components.mean, components.precision.values))
    return np.asarray(mean), np.asarray(precision)


@pytest.mark.stress
def test_the_runs_are_those_of_an_ensemble_and_the_belief_is_their_mixture() -> None:
    state = state_of(mixture(ivon(), 3))
    for one, other in zip(*map(jax.tree.leaves, (state, state_of(deep_ensemble(ivon(), 3)))), strict=True):
        np.testing.assert_array_equal(one, other)
    data = Arrays.of((X, Y))
    found = mixture(ivon(), 3).posterior(KEY, state, OBJECTIVE, data, None)
    belief, (mean, precision) = found.belief.factors["network"], parts(found.belief)
    theta = np.array([0.8, -1.7])
    each = norm.logpdf(theta, mean, precision**-0.5).sum(axis=1)
    at = {"layers": {0: {"kernel": jnp.asarray(theta)[:, None]}}}
    assert float(belief.log_prob(at)) == pytest.approx(logsumexp(each) - np.log(3), rel=1e-9)
    np.testing.assert_allclose(belief.weights, np.full(3, 1 / 3))
    assert found.predict(X[:4], samples=6).mean.shape == (4,)


def test_weights_by_evidence_are_the_bounds_in_closed_form() -> None:
    """A Gaussian expectation of a quadratic, by hand; 4,000 draws leave a standard error of about 0.05 nats."""
    algorithm = mixture(ivon(hess_init=5.0), 2, EvidenceWeights(samples=4000))
    state = state_of(algorithm, 0)
    posterior = algorithm.posterior(jax.random.key(1), state, OBJECTIVE, Arrays.of((X, Y)), None)
    mean, precision = parts(posterior.belief)
    bounds = []
    for m, s in zip(mean, precision, strict=True):
        fit = ((Y - X @ m) ** 2).sum() + ((X**2) @ (1 / s)).sum()
        log_likelihood = -fit / (2 * 0.25) - N / 2 * np.log(2 * np.pi * 0.25)
        log_prior = -(m**2 + 1 / s).sum() / 2 - np.log(2 * np.pi)
        entropy = 0.5 * np.log(2 * np.pi * np.e / s).sum()
        bounds.append((log_likelihood + log_prior) / 0.5 + entropy)
    found = posterior.belief.factors["network"].weights_logits
    np.testing.assert_allclose(found, bounds, atol=0.02 * np.max(np.abs(bounds)))
    assert abs(bounds[0] - bounds[1]) > 1.0


def test_mistakes_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="components=0"):
        mixture(components=0)
    with pytest.raises(ValueError, match="samples=0 cannot"):
        EvidenceWeights(samples=0)
    model = lamu.Model(MLP((3,), normalise=BatchNorm()), lamu.likelihoods.Gaussian(1.0))
    with pytest.raises(ValueError, match="batch statistics"):
        mixture(components=2).init(KEY, Objective(model, 4.0), BATCH)
    algorithm = mixture(sgd(), 2)
    with pytest.raises(TypeError, match="no Gaussian"):
        algorithm.posterior(KEY, algorithm.init(jax.random.clone(KEY), OBJECTIVE, BATCH), OBJECTIVE, None, None)
    assert isinstance(algorithm, Mixed)
    assert isinstance(algorithm.weights, EqualWeights)
