"""What nobody knew before the mode was found, the prior's width and the noise: beside evidence by hand in NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import minimize_scalar

import lamu
from lamu.algorithms import adam, laplace, map_estimate
from lamu.algorithms.post_hoc.laplace_fit import fit_laplace
from lamu.algorithms.post_hoc.marginal_likelihood import empirical_bayes
from lamu.algorithms.post_hoc.mode import Polished
from lamu.algorithms.post_hoc.scale_search import likelihood_bound, spread_rows
from lamu.data import Arrays
from lamu.families import Point
from lamu.likelihoods import Bernoulli, Gaussian, HeteroscedasticGaussian, Scaled
from lamu.loop import fit
from lamu.model import Model
from lamu.networks import MLP, Linear, Trained
from lamu.objective import Objective
from lamu.operators import Dense, Diagonal
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.priors import LearnedNormal, Normal
from lamu_verification import problems, references

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
Y = X @ np.array([1.0, -1.0, 0.5]) + 0.5 * rng.normal(size=60)


def test_the_width_is_where_the_evidence_at_the_given_mode_is_greatest() -> None:
    """The mode is found under the first guess and held, so the evidence is that of a Gaussian around it, by hand."""
    problem: Any = problems.regression()
    model = Model(problem.objective.model.network, problem.objective.model.likelihood, LearnedNormal(0.8))
    algorithm = laplace(optimizer=map_estimate(optax.lbfgs()), structure=Dense)
    posterior: Any = fit(model, (problem.x, problem.y), algorithm, steps=60, batch_size=30).posterior
    mode, _, _ = references.linear_regression(problem.design, problem.y, problem.scale, 0.8**-2)
    gram = problem.design.T @ problem.design / problem.scale**2

    def negative_evidence(log_scale: float) -> float:
        delta = np.exp(-2 * log_scale)
        determinant = np.linalg.slogdet(gram + delta * np.eye(len(mode)))[1]
        return (delta * mode @ mode - len(mode) * np.log(delta) + determinant) / 2

    found: Any = minimize_scalar(negative_evidence, bounds=(-5, 5), method="bounded")
    expected = np.exp(found.x)
    assert isinstance(posterior.model.prior, Normal)
    # The search stops at 0.01 in the logarithm.
    assert abs(np.log(posterior.model.prior.scale / expected)) < 0.02
    assert abs(np.log(expected / 0.8)) > 0.1


def test_width_and_noise_are_where_the_evidence_at_the_given_mode_is_greatest() -> None:
    """Ten rows and four weights: a mode that follows the rows leaves too little noise, and the evidence knows."""
    x, y = X[:10], Y[:10]
    model = Model(Linear(), Gaussian(), LearnedNormal(1.0))
    posterior: Any = fit(model, (x, y), laplace(adam(0.05)), steps=400, batch_size=10).posterior
    layer, width = posterior.mean["network"]["layers"][0], float(posterior.model.prior.scale)
    mode = np.concatenate([np.ravel(layer["bias"]), np.ravel(layer["kernel"])])
    noise = float(np.exp(posterior.mean["likelihood"]["log_scale"][0]))
    design = np.column_stack([np.ones(10), x])
    residual = y - design @ mode

    def evidence(width: float, noise: float) -> float:
        """The noise has the prior log σ ~ N(0, 9)."""
        log_joint = -(residual @ residual) / (2 * noise**2) - 10 * np.log(noise) - 5 * np.log(2 * np.pi)
        log_joint += -(mode @ mode) / (2 * width**2) - 4 * np.log(width) - 2 * np.log(2 * np.pi)
        log_joint += -(np.log(noise) ** 2) / 18 - np.log(3) - np.log(2 * np.pi) / 2
        precision = design.T @ design / noise**2 + np.eye(4) / width**2
        return float(log_joint + 2 * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1] / 2)

    assert posterior.evidence is not None
    volume = np.log(2 * np.pi / (2 * (residual @ residual) / noise**2 + 1 / 9)) / 2  # the noise integrated over
    np.testing.assert_allclose(posterior.evidence, evidence(width, noise) + volume, rtol=1e-9)
    grid = np.exp(np.linspace(-3.0, 3.0, 61))
    assert all(evidence(width, noise) > evidence(width * s, noise * c) - 1e-3 for s in grid for c in grid)
    assert noise > 1.1 * np.sqrt(np.mean(residual**2))


def point(model: Model, params: Any) -> Posterior:
    return Posterior(model, Point(params), {}, Sampled(), jax.random.key(3))


TWO = np.column_stack([Y, 3 - 2 * Y + X[:, 0]])


@pytest.mark.parametrize(
    ("likelihood", "y", "structure"),
    [(Gaussian(), Y, Dense), (Scaled(Gaussian(), TWO.mean(axis=0), TWO.std(axis=0)), TWO, Diagonal)],
    ids=["one output", "two outputs in their units"],
)
def test_a_widened_mode_is_the_mode_of_the_widened_noise(likelihood: Any, y: Any, structure: Any) -> None:
    """Looked at once more with other dispersions; rows that count differently, tempered, and N of two kinds."""
    model = Model(MLP((3,), "tanh"), likelihood, Normal(0.7))
    rows = Arrays.of({"x": X[:20], "y": y[:20], "weight": rng.uniform(0.2, 2.0, size=20)})
    params, _ = jax.jit(model.init)(jax.random.key(0), rows.full())
    params["likelihood"]["log_scale"] += jnp.linspace(-0.3, 0.2, len(params["likelihood"]["log_scale"]))
    wider = {**params, "likelihood": jax.tree.map(lambda leaf: leaf + np.log(1.7), params["likelihood"])}
    for size, power in ((20.0, 1.0), (35.0, 0.6)):
        objective = Objective(model, size, temperature=0.8, likelihood_power=power)
        found = fit_laplace(structure, point(model, params), objective, rows).scale_noise(objective, 1.7)
        again = fit_laplace(structure, point(model, wider), objective, rows)
        assert jax.tree.structure(found) == jax.tree.structure(again)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(again), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
        one, other = (mode.posterior(objective, jax.random.key(0)).evidence for mode in (found, again))
        np.testing.assert_allclose(one, other, rtol=1e-10)


@pytest.mark.stress
def test_rows_set_aside_are_predicted_better_than_by_the_neighbours() -> None:
    """The scale of classes, each neighbour with the mode of its own: those that the walk tried, and far ones."""
    y = (Y > 0).astype(np.int32)
    model = Model(MLP((8,), "tanh"), Bernoulli(), LearnedNormal(1.0))
    options: Any = {"steps": 60, "batch_size": 40, "validation": (X[40:], y[40:])}
    posterior: Any = fit(model, (X[:40], y[:40]), laplace(adam(0.05)), **options).posterior
    scale = float(posterior.model.prior.scale)

    def nll(factor: float) -> float:
        other = replace(model, prior=Normal(scale * factor)).starting_at(posterior.mean)
        found = fit(other, (X[:40], y[:40]), laplace(adam(1e-6)), steps=1, batch_size=40).posterior
        pred = found.predict(X[40:], samples=32, key=jax.random.clone(posterior.key))
        return lamu.scores.nll(pred, y[40:])

    best = nll(1.0)
    assert all(best < nll(factor) + 1e-3 for factor in (10**-0.25, 10**0.25, 0.01))


def test_a_known_scale_stays() -> None:
    """Whatever the evidence would prefer: of these rows a learned one is not .02."""
    known = lamu.fit(Model(Linear(), Gaussian(), Normal(0.02)), (X, Y), laplace()).posterior
    assert known.model.prior == Normal(0.02)
    learned = lamu.fit(Model(Linear(), Gaussian(), LearnedNormal(0.02)), (X, Y), laplace()).posterior
    assert learned.model.prior.scale > 0.1
    assert learned.evidence > known.evidence + 10


@pytest.mark.parametrize("likelihood", [Gaussian(), HeteroscedasticGaussian()], ids=["learned", "of the network"])
def test_the_noise_of_a_network_is_no_unknown(likelihood: Any) -> None:
    """A scale alone leaves the mode as it was, a learned noise moves with it."""
    model, rows = Model(Linear(), likelihood, Normal(0.7)), Arrays.of((X, Y))
    params, _ = model.init(jax.random.key(0), rows.full())
    objective = Objective(model, 60)
    mode = fit_laplace(Dense, point(model, params), objective, rows)
    find = lambda mode, objective, rounds=1: Polished(mode, 0.0, 4)
    unknown = replace(objective, model=replace(model, prior=LearnedNormal(0.7)))
    other, after, _ = empirical_bayes(mode, unknown, jax.random.key(0), None, find)
    assert isinstance(after.model.prior, Normal)
    assert (other.mode is mode) == isinstance(likelihood, HeteroscedasticGaussian)


def test_the_bound_of_a_quadratic_loss_is_the_evidence() -> None:
    model = Model(Linear(), Gaussian(0.5), Normal(0.7))
    rows = Arrays.of({"x": X, "y": Y, "weight": rng.uniform(0.5, 2.0, size=60)})
    params, _ = model.init(jax.random.key(0), rows.full())
    objective = Objective(model, 75.0, likelihood_power=0.6)
    mode = fit_laplace(Dense, point(model, params), objective, rows)
    evidence = mode.posterior(objective, jax.random.key(0)).evidence
    bound = likelihood_bound(mode, objective, spread_rows(rows), jax.random.key(0))
    np.testing.assert_allclose(bound, evidence, rtol=1e-9)


def test_the_scale_around_trained_weights_is_where_their_bound_is_greatest() -> None:
    """Separable classes, one weight far out: the evidence by Laplace goes on growing where the bound falls."""
    x = np.linspace(0.5, 2.0, 40)[:, None] * np.where(np.arange(40) % 2, 1.0, -1.0)[:, None]
    y, weight = np.arange(40) % 2, 12.0
    p = 1 / (1 + np.exp(-weight * x[:, 0]))
    curvature = np.sum(p * (1 - p) * x[:, 0] ** 2)
    nodes, shares = np.polynomial.hermite_e.hermegauss(200)

    def bound(scale: float) -> float:
        variance = 1 / (curvature + scale**-2)
        sign = np.where(y, 1.0, -1.0)[:, None]
        f = weight * x + np.abs(x) * np.sqrt(variance) * nodes
        expected = -np.logaddexp(0, -sign * f) @ shares / shares.sum()
        divergence = (variance / scale**2 + weight**2 / scale**2 - 1 - np.log(variance / scale**2)) / 2
        return float(expected.sum() - divergence)

    network = Trained(lambda theta, x: x @ theta["w"], {"w": jnp.array([[weight]])})
    model = Model(network, Bernoulli(), LearnedNormal(1.0))
    posterior: Any = fit(model, (x, y), laplace(), epochs=0).posterior
    best = minimize_scalar(lambda log_scale: -bound(np.exp(log_scale)), bounds=(-2, 6), method="bounded")
    evidence = lambda scale: -(weight**2) / scale**2 / 2 - np.log1p(scale**2 * curvature) / 2
    by_evidence = minimize_scalar(lambda log_scale: -evidence(np.exp(log_scale)), bounds=(-2, 6), method="bounded")
    assert abs(np.log(posterior.model.prior.scale) - best.x) < 0.1  # the search stops at 0.05
    assert by_evidence.x - best.x > 0.5
