"""Locals of graphs with networks, beside exact answers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import lamu
from lamu import graphs, latent
from lamu.families import Dirichlet, NormalWishart
from lamu.latent.locals.conjugate import Conjugate
from lamu.networks import MLP, Linear
from lamu.predictives import Sampled

RANDOM = np.random.default_rng(0)
D, K, NOISE = 4, 3, 0.5
LOADINGS = np.linalg.qr(RANDOM.normal(size=(D, 2)))[0] * np.array([2.0, 1.0])
CENTRES = np.array([[3.0, 0.0], [-2.0, 1.0], [0.0, -2.0]])
PRECISIONS = np.array([np.diag([2.0, 1.0]), np.eye(2), [[1.5, 0.4], [0.4, 0.8]]])
WEIGHTS = np.array([0.5, 0.3, 0.2])
Y = RANDOM.normal(size=(30, D)) * 1.5
values = jax.jit(lambda graph, params, state, batch, key: graph.log_likelihood(params, state, batch, key)[0])


def log_density(y=Y, centres=CENTRES) -> np.ndarray:
    parts = [
        np.log(w)
        + multivariate_normal(LOADINGS @ m, LOADINGS @ np.linalg.inv(S) @ LOADINGS.T + NOISE**2 * np.eye(D)).logpdf(y)
        for w, m, S in zip(WEIGHTS, centres, PRECISIONS, strict=True)
    ]
    return np.logaddexp.reduce(parts, axis=0)


def mixture_below(local) -> lamu.Graph:
    """A mixture of Gaussians below a linear decoder; its parts are parameters."""

    def program(m) -> None:
        decode = m.network("decode", Linear(bias=False), outputs=D)
        part = m.sample("part", NormalWishart(jnp.zeros(2), 1.0, 4.0, jnp.eye(2)), plate=K)
        with m.rows():
            z = m.sample("z", graphs.Categorical(jnp.asarray(WEIGHTS)))
            x = m.sample("x", graphs.MultivariateNormal(part[z]))
            m.sample("y", lamu.likelihoods.Gaussian(scale=NOISE)(decode(x)))

    return lamu.Graph(program, local={"x": local})


def at_message(exact: bool):
    """The graph with a message that is the decoder's own likelihood, or off it."""
    graph = mixture_below(Conjugate(Linear()))
    batch = graph.read({"y": Y}).full()
    params, state = graph.init(jax.random.key(0), batch)
    kernel, bias = np.zeros((D, 4)), np.zeros(4)
    kernel[:, :2] = LOADINGS @ np.linalg.inv(LOADINGS.T @ LOADINGS)
    bias[2:] = np.log(np.expm1(np.diag(LOADINGS.T @ LOADINGS) / NOISE**2))
    if not exact:
        kernel, bias = 0.9 * kernel, 0.8 * bias
    layer = {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(bias)}
    network = {
        "part": {"mean": jnp.asarray(CENTRES), "precision": jnp.asarray(PRECISIONS)},
        "decode": {"layers": {0: {"kernel": jnp.asarray(LOADINGS.T)}}},
        "local": {"x": {"layers": {0: layer}}},
    }
    return graph, graph.unconstrained({**params, "network": network}), state, batch


@pytest.mark.stress
def test_under_an_exact_message_a_row_has_its_log_density() -> None:
    """Whatever the key, as a bound and as an importance weight."""
    graph, params, state, batch = at_message(exact=True)
    for bound in (graph, graph.importance_weighted()):
        for key in jax.random.split(jax.random.key(1), 2):
            np.testing.assert_allclose(values(bound, params, state, batch, key), log_density(), rtol=1e-9)


def test_the_message_to_the_parts_is_that_of_the_conjugate_model() -> None:
    """Where the message is exact, the gradient in the centres is that of the log density, by differences."""
    graph, params, state, batch = at_message(exact=True)
    total = lambda p: jnp.sum(graph.log_likelihood(p, state, batch, jax.random.key(2))[0])
    slope = np.asarray(jax.jit(jax.grad(total))(params)["network"]["part"]["mean"])
    for k, d in np.ndindex(K, 2):
        step = np.zeros((K, 2))
        step[k, d] = 1e-5
        expected = (log_density(centres=CENTRES + step).sum() - log_density(centres=CENTRES - step).sum()) / 2e-5
        assert abs(slope[k, d] - expected) < 1e-5 * (1 + abs(expected))


@pytest.mark.stress
def test_a_message_off_the_likelihood_makes_a_bound() -> None:
    """Of 400 keys, below the log density by ten standard errors, and importance weights average to it within 4."""
    graph, params, state, batch = at_message(exact=False)
    keys = jax.random.split(jax.random.key(3), 400)
    bounds, weights = (
        np.asarray(jax.jit(jax.vmap(lambda k, g=g: g.log_likelihood(params, state, batch, k)[0].mean(), 0))(keys))
        for g in (graph, graph.importance_weighted())
    )
    exact = log_density().mean()
    error = bounds.std() / np.sqrt(len(bounds))
    assert exact - bounds.mean() > 10 * error
    # Both draw from the same q: as a mean over parts, or of one part.
    assert abs(bounds.mean() - weights.mean()) < 4 * np.hypot(error, weights.std() / np.sqrt(len(weights)))
    posterior = graph.constrained(lamu.Posterior(graph, lamu.families.Point(params), {}, Sampled(), jax.random.key(0)))
    found = np.asarray(posterior.log_prob({"y": Y}, samples=2000))
    assert abs(found.mean() - exact) < 0.1 * (exact - bounds.mean())


@pytest.mark.stress
def test_the_networks_follow_the_bound() -> None:
    """The gradient of one key in the networks' weights, by differences in float64."""
    graph, params, state, batch = at_message(exact=False)
    total = jax.jit(lambda p: jnp.sum(graph.log_likelihood(p, state, batch, jax.random.key(4))[0]))
    slope = jax.jit(jax.grad(total))(params)["network"]
    for path in (
        ("decode", "layers", 0, "kernel"),
        ("local", "x", "layers", 0, "kernel"),
        ("local", "x", "layers", 0, "bias"),
    ):
        leaf, at = params["network"], slope
        for part in path:
            leaf, at = leaf[part], at[part]
        direction = RANDOM.normal(size=leaf.shape)

        def moved(t: float, path=path, leaf=leaf, direction=direction) -> float:
            def put(node, rest):
                return leaf + t * direction if not rest else {**node, rest[0]: put(node[rest[0]], rest[1:])}

            return float(total({**params, "network": put(params["network"], path)}))

        expected = (moved(1e-5) - moved(-1e-5)) / 2e-5
        # The draws follow the decoder's weights in nothing, those of the message in all.
        np.testing.assert_allclose(np.sum(np.asarray(at) * direction), expected, rtol=1e-5)


@pytest.mark.stress
def test_a_temperature_divides_densities_and_no_entropy() -> None:
    """So high that all densities vanish, what is left is the entropy of q: z uniform, and x under the message alone."""
    graph, params, _, batch = at_message(exact=True)
    statistics = graph.values_of({**params, "network": graph.theta(params)})
    found = np.asarray(graph.at_values().row_bounds(statistics, batch, 1e6, jax.random.key(1)))
    precision = np.diag(LOADINGS.T @ LOADINGS) / NOISE**2
    entropy = np.log(K) + 0.5 * np.sum(1 + np.log(2 * np.pi) - np.log(precision))
    # The entropy of two numbers by one draw a value of z has the variance 1/K.
    np.testing.assert_allclose(found.mean(), entropy, atol=4 / np.sqrt(K * len(Y)))


def test_labels_tie_the_parts() -> None:
    graph, params, state, _ = at_message(exact=True)
    labels = np.where(np.arange(30) < 10, 1.0, np.nan)
    batch = graph.read({"y": Y, "z": labels}).full()
    found = np.asarray(values(graph, params, state, batch, jax.random.key(1)))
    S = LOADINGS @ np.linalg.inv(PRECISIONS[1]) @ LOADINGS.T + NOISE**2 * np.eye(D)
    labelled = np.log(WEIGHTS[1]) + multivariate_normal(LOADINGS @ CENTRES[1], S).logpdf(Y[:10])
    np.testing.assert_allclose(found, np.concatenate([labelled, log_density()[10:]]), rtol=1e-9)


def structured(m) -> None:
    decode = m.network("decode", MLP((8,)), outputs=2)
    weight = m.sample("part.weight", Dirichlet(jnp.ones(2)))
    part = m.sample("part", NormalWishart(jnp.zeros(2), 1.0, 4.0, jnp.eye(2)), plate=2)
    with m.rows():
        z = m.sample("z", graphs.Categorical(weight))
        x = m.sample("x", graphs.MultivariateNormal(part[z]))
        m.sample("y", lamu.likelihoods.Gaussian(scale=0.3)(decode(x)))


@pytest.mark.stress
def test_parts_with_exact_beliefs_train_beside_networks() -> None:
    y = np.concatenate([RANDOM.normal(size=(50, 2)) + 3, RANDOM.normal(size=(50, 2)) - 3])
    graph = lamu.Graph(structured, local={"x": Conjugate(MLP((8,)))})
    algorithm = lamu.algorithms.blocks({"part*": lamu.algorithms.svi(0.1), "*": lamu.algorithms.adam(0.02)})
    fit = lamu.fit(graph, {"y": y}, algorithm, steps=100, batch_size=50)
    loss = np.asarray(fit.history["loss"])
    assert loss[-10:].mean() < loss[:10].mean() - 1
    latents = fit.posterior.local({"y": y})
    np.testing.assert_allclose(latents["z"].mean.sum(-1), 1.0)
    assert np.all(np.linalg.eigvalsh(latents["x"].precision) > 0)


@pytest.mark.stress
def test_a_series_under_exact_messages_has_the_filters_density() -> None:
    """A linear emission: the log density of the stacked series, whatever the key, and the smoother's means."""
    T, A, Q = 5, np.array([[0.9, 0.2], [-0.1, 0.8]]), np.array([2.0, 1.0])
    y = RANDOM.normal(size=(3, T, D))
    graph = latent.models.DeepKalman(T, A, D, lamu.likelihoods.Gaussian(scale=NOISE), Linear(bias=False), Linear(), Q)
    batch = graph.read({"y": y}).full()
    params, state = graph.init(jax.random.key(0), batch)
    kernel, bias = np.zeros((D, 4)), np.zeros(4)
    kernel[:, :2] = LOADINGS @ np.linalg.inv(LOADINGS.T @ LOADINGS)
    bias[2:] = np.log(np.expm1(np.diag(LOADINGS.T @ LOADINGS) / NOISE**2))
    network = {
        "decode": {"layers": {0: {"kernel": jnp.asarray(LOADINGS.T)}}},
        "local": {"x": {"layers": {0: {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(bias)}}}},
    }
    params = {**params, "network": network}
    # x = L e with independent steps e of precision Q, the first of the largest Q.
    powers = [np.linalg.matrix_power(A, n) for n in range(T)]
    L = np.block([[powers[t - s] if t >= s else np.zeros((2, 2)) for s in range(T)] for t in range(T)])
    noise = np.diag(np.concatenate([np.full(2, 1 / Q.max()), np.tile(1 / Q, T - 1)]))
    W, prior = np.kron(np.eye(T), LOADINGS), L @ noise @ L.T
    covariance = W @ prior @ W.T + NOISE**2 * np.eye(T * D)
    exact = multivariate_normal(np.zeros(T * D), covariance).logpdf(y.reshape(3, -1))
    for bound in (graph, graph.importance_weighted()):
        np.testing.assert_allclose(values(bound, params, state, batch, jax.random.key(1)), exact, rtol=1e-9)
    posterior = lamu.Posterior(graph, lamu.families.Point(params), {}, Sampled(), jax.random.key(0))
    smoothed = y.reshape(3, -1) @ np.linalg.solve(covariance, W @ prior)
    np.testing.assert_allclose(posterior.local({"y": y})["x"].mean.reshape(3, -1), smoothed, rtol=1e-8, atol=1e-10)
    with pytest.raises(ValueError, match=r"7 outputs for inputs of the shape \(5, 4\) cannot be dealt to the steps"):
        latent.EachStep(Linear()).init(jax.random.key(0), jnp.zeros((1, 5, 4)), 7)


def test_what_no_message_reaches() -> None:
    def category(m) -> None:
        decode = m.network("decode", Linear(), outputs=D)
        with m.rows():
            z = m.sample("z", graphs.Categorical(jnp.ones(2) / 2))
            m.sample("y", lamu.likelihoods.Gaussian(scale=1.0)(decode(z)))

    graph = lamu.Graph(category, local={"z": Conjugate(Linear())})
    with pytest.raises(TypeError, match="'z' is categories, and the message of a Conjugate local is a Gaussian"):
        graph.init(jax.random.key(0), graph.read({"y": Y}).full())

    def two(m) -> None:
        decode = m.network("decode", Linear(), outputs=D)
        with m.rows():
            w = m.sample("w", graphs.Normal(jnp.zeros(2), 1.0))
            x = m.sample("x", graphs.Normal(w, 1.0))
            m.sample("y", lamu.likelihoods.Gaussian(scale=1.0)(decode(x)))

    graph = lamu.Graph(two, local={"x": Conjugate(Linear())})
    batch = graph.read({"y": Y}).full()
    params, state = graph.init(jax.random.key(0), batch)
    with pytest.raises(TypeError, match="'x' meets 'w' in a factor, which is numbers"):
        graph.log_likelihood(params, state, batch, jax.random.key(1))
    assert latent.Conjugate is Conjugate
