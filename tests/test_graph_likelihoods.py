"""Likelihoods of a graph that are not conjugate: known dispersions, and steps that stay beliefs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.algorithms import ncvmp, svi
from lamu.families import MultivariateNormal
from lamu.likelihoods import Gaussian, StudentT
from lamu.objective import Objective

X = np.random.default_rng(2).normal(size=(30, 1))
Y = 3 * X[:, 0] + 10 * np.random.default_rng(3).standard_t(1.5, size=30)


def regression(likelihood) -> lamu.Graph:
    def program(m) -> None:
        w = m.sample("w", MultivariateNormal(jnp.zeros(1), jnp.eye(1)))
        with m.rows():
            m.sample("y", likelihood(m.data("x") @ w))

    return lamu.Graph(program)


def noisy(scale) -> tuple[lamu.Graph, dict[str, np.ndarray]]:
    x = np.random.default_rng(4).normal(size=(200, 1))
    y = 2.0 * x[:, 0] + 0.5 * np.random.default_rng(5).normal(size=200)
    return regression(Gaussian(scale)), {"x": x, "y": y}


@pytest.mark.parametrize(
    ("algorithm", "length"),
    [(ncvmp(), {"steps": 60}), (svi(learning_rate=0.5), {"batch_size": 200, "epochs": 60})],
    ids=["ncvmp", "svi"],
)
def test_a_dispersion_is_learned_at_the_peak_of_the_bound(algorithm, length) -> None:
    r"""There sigma^2 is the mean of E (y - w x)^2; the belief is that of the same graph with this sigma."""
    graph, rows = noisy(None)
    posterior = lamu.fit(graph, rows, algorithm, **length).posterior
    sigma = float(np.exp(posterior.mean["likelihood"]["y"]["log_scale"]).squeeze())
    w = posterior.belief.factors["network"].factors["w"]
    x, y = rows["x"][:, 0], rows["y"]
    squares = (y - w.mean[0] * x) ** 2 + x**2 / w.precision[0, 0]
    np.testing.assert_allclose(sigma, np.sqrt(np.mean(squares)), rtol=1e-3)
    known = lamu.fit(noisy(sigma)[0], rows, ncvmp(), steps=60).posterior
    np.testing.assert_allclose(w.mean, known.belief.factors["network"].factors["w"].mean, rtol=1e-3)
    holes = {**rows, "y": np.where(np.arange(200) < 2, np.nan, rows["y"])}
    np.testing.assert_allclose(posterior.predict(holes).std[:2].mean(), sigma, rtol=0.3)  # by 32 draws


def test_a_likelihood_of_two_outputs_has_its_expectation_on_a_grid_in_both() -> None:
    """It was taken at the mean, so that beliefs kept the deviation of the prior and the means went to −4e8."""
    likelihood, y = lamu.likelihoods.ZeroInflated(lamu.likelihoods.Poisson()), jnp.array([0, 3])
    mean, variance = jnp.array([[0.5, -1.0], [0.2, 0.3]]), jnp.array([[0.3, 0.8], [0.1, 0.5]])
    log_density = lambda f: jnp.sum(likelihood.log_prob({}, f.reshape(-1, 2), y))
    found = lamu.graphs.Quadrature().expected(log_density, mean, variance, width=2)
    z = np.linspace(-8.0, 8.0, 401)
    a, b = (part.ravel() for part in np.meshgrid(z, z))
    weight = np.exp(-(a**2 + b**2) / 2) / np.sum(np.exp(-(a**2 + b**2) / 2))
    exact = 0.0
    for row in range(2):
        f = np.asarray(mean[row]) + np.sqrt(np.asarray(variance[row])) * np.stack([a, b], axis=-1)
        exact += weight @ np.asarray(likelihood.log_prob({}, jnp.asarray(f), jnp.full(len(f), y[row])))
    np.testing.assert_allclose(found, exact, rtol=1e-4)


@pytest.mark.stress
def test_zero_inflated_counts_are_learned_by_ncvmp() -> None:
    """By the importance weights of its draws: rates and zeros depend on each other, which independent beliefs lose."""
    random = np.random.default_rng(0)
    x = np.stack([np.ones(200), random.normal(size=200)], axis=1)
    y = random.poisson(np.exp(x @ [0.5, 0.5])) * (random.random(200) < 0.7)

    def program(m) -> None:
        w = m.sample("w", MultivariateNormal(jnp.zeros(2), jnp.eye(2)), plate=2)
        with m.rows():
            m.sample("y", lamu.likelihoods.ZeroInflated(lamu.likelihoods.Poisson())(w @ m.data("x")))

    fit = lamu.fit(lamu.Graph(program), {"x": x, "y": y}, ncvmp())
    assert fit.convergence.offset < 0.1
    assert fit.convergence.divergence < 0.4  # 5.0 before, at which the weights end


@pytest.mark.parametrize("algorithm", [ncvmp(), svi()], ids=["ncvmp", "svi"])
def test_classes_are_refused_by_a_quadrature_over_outputs(algorithm: Any) -> None:
    def program(m) -> None:
        w = m.sample("w", MultivariateNormal(jnp.zeros(1), jnp.eye(1)), plate=3)
        with m.rows():
            m.sample("y", lamu.likelihoods.Categorical(3)(w @ m.data("x")))

    with pytest.raises(TypeError, match=r"3 outputs for each target of 'y'.*use ivon"):
        lamu.fit(lamu.Graph(program), {"x": X, "y": np.arange(30) % 3}, algorithm, steps=1)


def test_a_dispersion_that_is_learned_counts_its_own_prior() -> None:
    graph, rows = noisy(None)
    batch = graph.read(rows).full()
    objective = Objective(graph, 200)
    state = svi().init(jax.random.key(0), objective, batch)
    loss = lambda rest: svi().subject.loss(objective, batch, {}, rest).value(state.belief.expectation(), rest, None)[0]
    moved = {"network": {}, "likelihood": jax.tree.map(lambda leaf: leaf + 0.3, state.rest["likelihood"])}
    at = {"y": {"log_scale": state.rest["likelihood"]["y"]["log_scale"]}}
    prior = graph.dispersion_log_prior(moved["likelihood"]) - graph.dispersion_log_prior(at)
    sigma = np.exp(np.asarray(at["y"]["log_scale"], float).squeeze())
    w = state.belief.factors["w"]
    x, y = rows["x"][:, 0], rows["y"]
    squares = np.mean((y - w.mean[0] * x) ** 2 + x**2 / w.precision[0, 0])
    rise = 0.3 + squares / 2 * ((sigma * np.exp(0.3)) ** -2 - sigma**-2)
    np.testing.assert_allclose(loss(moved) - loss(state.rest), rise - prior / 200, rtol=1e-4)


def test_a_step_beyond_the_positive_precisions_is_bent_back() -> None:
    """A Student t far from its rows is convex: the straight step at ρ = 1 has a negative precision there."""
    graph, rows = regression(StudentT(3.0, scale=0.3)), {"x": X, "y": Y}
    batch, objective = graph.read(rows).full(), Objective(graph, len(Y))
    algorithm = ncvmp(1.0)
    state, step = algorithm.init(jax.random.key(0), objective, batch), jax.jit(algorithm.step)
    for _ in range(8):
        state, info = step(jax.random.key(1), state, batch, objective)
        belief = jax.tree.map(lambda leaf: leaf[0], state.beliefs["w"])
        assert np.isfinite(info.loss)
        assert belief.precision[0, 0] > 0


def test_where_the_step_is_inside_it_is_the_rule_itself() -> None:
    graph, rho = regression(Gaussian(2.0)), 0.3
    batch, objective = graph.read({"x": X, "y": Y}).full(), Objective(graph, len(Y))
    algorithm = ncvmp(rho)
    state = algorithm.init(jax.random.key(0), objective, batch)
    before = jax.tree.map(lambda leaf: leaf[0], state.beliefs["w"])
    state, _ = jax.jit(algorithm.step)(jax.random.key(1), state, batch, objective)
    after = jax.tree.map(lambda leaf: leaf[0], state.beliefs["w"])
    S = 1.0 + np.sum(X**2) / 4.0
    np.testing.assert_allclose(after.precision, (1 - rho) * before.precision + rho * S, rtol=1e-9)
    first = (1 - rho) * before.precision[0, 0] * before.mean[0] + rho * np.sum(X[:, 0] * Y) / 4.0
    np.testing.assert_allclose(after.mean[0] * after.precision[0, 0], first, rtol=1e-9)


def test_svi_bends_back_too() -> None:
    graph = regression(StudentT(3.0, scale=0.3))
    batch, objective = graph.read({"x": X, "y": Y}).full(), Objective(graph, len(Y))
    algorithm = svi(learning_rate=1.0)
    state, step = algorithm.init(jax.random.key(0), objective, batch), jax.jit(algorithm.step)
    for _ in range(8):
        state, info = step(jax.random.key(1), state, batch, objective)
        assert np.isfinite(info.loss)
        assert state.belief.factors["w"].precision[0, 0] > 0
    assert algorithm.explain_divergence(state) is None


@pytest.mark.filterwarnings("ignore::lamu.Unconverged")
@pytest.mark.parametrize("wide", [False, True])
def test_targets_without_noise_do_not_throw_a_belief_back_to_its_prior(wide) -> None:
    """One step took the log of the noise from -5 to 11, and the belief to the prior: an evidence of -1,205 nats."""
    x = np.random.default_rng(0).normal(size=(100, 1))
    with jax.enable_x64(wide):
        posterior = lamu.fit(regression(Gaussian()), {"x": x, "y": 2.0 * x[:, 0]}, ncvmp(), steps=60).posterior
    np.testing.assert_allclose(posterior.mean["network"]["w"], [2.0], atol=1e-2)
    assert posterior.mean["likelihood"]["y"]["log_scale"][0] < -3.0


@pytest.mark.parametrize("likelihood", [lamu.likelihoods.Ordinal(4), lamu.likelihoods.Categorical(4)])
def test_classes_are_predicted_at_inputs_alone(likelihood: lamu.likelihoods.Likelihood) -> None:
    """Missing classes had the shape of their probabilities: a TypeError of a reshape."""
    width = likelihood.outputs(np.zeros(1, int))
    x, y = np.linspace(-1.0, 1.0, 12).reshape(6, 2), np.array([0, 1, 2, 3, 1, 2])

    def program(m: lamu.graphs.Program) -> None:
        w = m.sample("w", MultivariateNormal(jnp.zeros(2), jnp.eye(2)), plate=width if width > 1 else ())
        with m.rows():
            m.sample("y", likelihood(w @ m.data("x")))

    fit = lamu.fit(lamu.Graph(program), {"x": x, "y": y}, lamu.algorithms.adam(1e-2), steps=1)
    at_inputs = fit.posterior.predict({"x": x[:2]})
    asked = fit.posterior.predict({"x": x[:2], "y": np.full(2, np.nan)})
    assert at_inputs.mean.shape == (2, 4)
    np.testing.assert_allclose(at_inputs.mean, asked.mean, rtol=1e-5)
    np.testing.assert_allclose(at_inputs.log_prob(y[:2]), asked.log_prob(y[:2]), rtol=1e-5)
