"""Networks and likelihoods inside programs: potentials, locals that draw, and where their parameters stand."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import graphs
from lamu.families import Gamma, MultivariateNormal
from lamu.graphs.joint import dtype_of
from lamu.graphs.statistics import Categories, Numbers
from lamu.record import record, static
from lamu.running.fixed_point import _faster_forgetting

RANDOM = np.random.default_rng(0)
K, D = 2, 5


@record
class Encoded(graphs.Local):
    r"""q(z | y) = N(m(y), s²) of an encoder, one draw and the analytic entropy."""

    network: object
    random: ClassVar[bool] = True

    def init(self, key, name, row, at):
        site = next(site for site in row.latent if site.name == name)
        y = jnp.asarray(row.data["y"], dtype_of(at))
        return self.network.init(key, y[None], 2 * site.shape[0])[0]

    def marginalise(self, name, own, row, at, key, rest):
        y = jnp.asarray(row.data["y"], dtype_of(at))
        mean, log = jnp.split(self.network.apply(own, {}, y[None], None, False)[0][0], 2)
        draw_key, rest_key = jax.random.split(key)
        z = mean + jnp.exp(log) * jax.random.normal(draw_key, mean.shape, mean.dtype)
        bound, natural = rest(row.given(name, z), at, rest_key)
        entropy = jnp.sum(log) + mean.size * (1.0 + np.log(2 * np.pi)) / 2
        precision = jnp.exp(-2.0 * log)
        return bound + entropy, {**natural, name: Numbers(precision * mean, -precision / 2)}


def decoder(m) -> None:
    decode = m.network("decode", lamu.networks.MLP((8,)), outputs=D)
    with m.rows():
        z = m.sample("z", graphs.Normal(jnp.zeros(K), 1.0))
        m.sample("y", lamu.likelihoods.Bernoulli()(decode(z)))


def linear(m) -> None:
    """Factor analysis as a network: the bound is log p(y) where the encoder is the exact posterior."""
    decode = m.network("decode", lamu.networks.Linear(bias=False), outputs=D)
    with m.rows():
        z = m.sample("z", graphs.Normal(jnp.zeros(K), 1.0))
        m.sample("y", lamu.likelihoods.Gaussian(scale=0.5)(decode(z)))


Y = (RANDOM.normal(size=(40, D)) > 0).astype(float)


def vae(program=decoder, width: int = 8):
    return lamu.Graph(program, local={"z": Encoded(lamu.networks.MLP((width,)))})


def test_an_autoencoder_is_its_formula() -> None:
    graph = vae()
    batch = graph.read({"y": Y}).full()
    params, state = graph.init(jax.random.key(1), batch)
    assert sorted(params["network"]) == ["decode", "local"]
    key = jax.random.key(2)
    found = graph.log_likelihood(params, state, batch, key)[0]
    assert found.shape == (40,)
    other = graph.log_likelihood(params, state, batch, jax.random.key(3))[0]
    assert not np.allclose(found, other)
    # One row by hand: log p(z) + log p(y | z) - log q in expectation of the entropy.
    own, weights = params["network"]["local"]["z"], params["network"]["decode"]
    encode, decode = lamu.networks.MLP((8,)), lamu.networks.MLP((8,))
    i = 3
    mean, log = np.split(np.asarray(encode.apply(own, {}, jnp.asarray(Y[i])[None], None, False)[0][0]), 2)
    noise = jax.random.normal(jax.random.split(jax.random.fold_in(key, i))[0], (K,), mean.dtype)
    z = mean + np.exp(log) * np.asarray(noise)
    f = np.asarray(decode.apply(weights, {}, jnp.asarray(z)[None], None, False)[0][0])
    log_p = -0.5 * np.sum(z**2 + np.log(2 * np.pi)) + np.sum(Y[i] * f - np.logaddexp(0.0, f))
    np.testing.assert_allclose(found[i], log_p + log.sum() + K * (1 + np.log(2 * np.pi)) / 2, rtol=1e-6)


@pytest.mark.stress
def test_an_autoencoder_learns_by_every_gradient_algorithm(tmp_path) -> None:
    graph = vae()
    for algorithm in (lamu.algorithms.adam(1e-2), lamu.algorithms.ivon(learning_rate=0.05)):
        fit = lamu.fit(graph, {"y": Y}, algorithm, epochs=10, batch_size=20, validation=0.25)
        assert np.isfinite(fit.history["validation_nll"]).all()
        assert np.isfinite(fit.history["loss"]).all()
    posterior = fit.posterior
    assert posterior.local({"y": Y[:3]})["z"].mean.shape == (3, K)
    assert np.isfinite(posterior.log_prob({"y": Y[:3]}, samples=4)).all()
    holes = Y[:3].copy()
    holes[0, 1] = np.nan
    assert 0.0 < float(posterior.predict({"y": holes}).mean[0, 1]) < 1.0
    folder = posterior.save(tmp_path / "vae")
    np.testing.assert_array_equal(
        lamu.load(folder).local({"y": Y[:3]})["z"].mean, posterior.local({"y": Y[:3]})["z"].mean
    )


def test_the_prior_is_of_networks_and_not_of_encoders() -> None:
    graph = lamu.Graph(decoder, local={"z": Encoded(lamu.networks.MLP((8,)))}, prior=lamu.priors.Normal(0.5))
    params, _ = graph.init(jax.random.key(1), graph.read({"y": Y}).full())
    weights = params["network"]["decode"]
    np.testing.assert_allclose(graph.log_prior(params), lamu.priors.Normal(0.5).log_prob(weights), rtol=1e-6)
    precision = graph.prior.gaussian(params["network"]).precision.values
    assert set(np.unique(jax.tree.leaves(precision["decode"])[0])) == {4.0}
    assert not jax.tree.leaves(precision["local"])
    by_path = lamu.priors.ByPath({"decode/layers/0/*": lamu.priors.Normal(2.0), "*": lamu.priors.Normal(1.0)})
    other = lamu.Graph(decoder, local=graph.local, prior=by_path)
    assert float(other.log_prior(params)) != float(graph.log_prior(params))


def test_dispersions_stand_by_the_name_of_their_targets() -> None:
    def program(m) -> None:
        f = m.network("f", lamu.networks.Linear(), outputs=1)
        with m.rows():
            m.sample("y", lamu.likelihoods.Gaussian()(f(m.data("x"))))

    x = RANDOM.normal(size=(30, 2))
    y = x @ np.array([1.0, -2.0]) + 0.1 * RANDOM.normal(size=30)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian())
    graph = lamu.Graph(program)
    batch = graph.read({"x": x, "y": y}).full()
    params, _ = graph.init(jax.random.key(0), batch)
    plain = {"network": params["network"]["f"], "likelihood": params["likelihood"]["y"]}
    other = model.read((x, y)).full()
    np.testing.assert_allclose(
        graph.log_likelihood(params, {}, batch)[0], model.log_likelihood(plain, {}, other)[0], rtol=1e-6
    )
    np.testing.assert_allclose(graph.log_prior(params), model.log_prior(plain), rtol=1e-6)
    # From one start, fifty steps of gradient descent on either are the same.
    algorithm = lamu.algorithms.sgd(0.1)
    ours = lamu.fit(graph.starting_at(params), {"x": x, "y": y}, algorithm, steps=50, batch_size=30).posterior.mean
    theirs = lamu.fit(model.starting_at(plain), (x, y), algorithm, steps=50, batch_size=30).posterior.mean
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(jnp.ravel(mine), jnp.ravel(other), rtol=1e-6)


def test_the_expectation_of_a_likelihood_is_that_over_the_belief() -> None:
    """Poisson regression: E exp(f) is known in closed form for a Gaussian f."""

    def program(m) -> None:
        w = m.sample("w", MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
        with m.rows():
            m.sample("y", lamu.likelihoods.Poisson()(m.data("x") @ w))

    graph = lamu.Graph(program)
    x, y = RANDOM.normal(size=(6, 2)), np.array([0, 1, 3, 0, 2, 1])
    batch = graph.read({"x": x, "y": y}).full()
    mean, covariance = np.array([0.3, -0.2]), np.array([[0.5, 0.1], [0.1, 0.3]])
    belief = MultivariateNormal(jnp.asarray(mean), jnp.asarray(np.linalg.inv(covariance)))
    found = graph.row_bounds(graph.moments({"w": belief}), batch)
    m, v = x @ mean, np.einsum("nd,de,ne->n", x, covariance, x)
    expected = y * m - np.exp(m + v / 2) - np.array([np.sum(np.log(np.arange(1, k + 1))) for k in y])
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    at_value = graph.log_likelihood({"network": {"w": jnp.asarray(mean)}, "likelihood": {}}, {}, batch)[0]
    np.testing.assert_allclose(at_value, y * m - np.exp(m) - (y * m - np.exp(m + v / 2) - expected), rtol=1e-8)
    # Its gradient there is finite, where the variance is rounded zero.
    slope = jax.grad(lambda w: jnp.sum(graph.row_bounds(graph.values({"w": w}), batch)))(jnp.asarray(mean))
    np.testing.assert_allclose(slope, x.T @ (y - np.exp(m)), rtol=1e-6)


def two_levels(m) -> None:
    up = m.network("up", lamu.networks.MLP((4,)), outputs=(K, K))
    decode = m.network("decode", lamu.networks.MLP((8,)), outputs=D)
    with m.rows():
        top = m.sample("top", graphs.Normal(jnp.zeros(1), 1.0))
        mean, log_precision = up(top)
        z = m.sample("z", graphs.Normal(mean, precision=graphs.exp(log_precision)))
        m.sample("y", lamu.likelihoods.Bernoulli()(decode(z)))


def labelled(m) -> None:
    decode = m.network("decode", lamu.networks.MLP((8,)), outputs=D)
    with m.rows():
        c = m.sample("c", graphs.Categorical(jnp.full(3, 1 / 3)))
        z = m.sample("z", graphs.Normal(jnp.zeros(K), 1.0))
        m.sample("y", lamu.likelihoods.Bernoulli()(decode(c, z)))


@record
class Enumerated(graphs.Local):
    """A category is summed over, what the others make of it at each value included."""

    count: int = static()

    def marginalise(self, name, own, row, at, key, rest):
        eye = jnp.eye(self.count, dtype=dtype_of(at))
        bounds, natural = jax.vmap(lambda one: rest(row.given(name, one), at, key))(eye)
        q = jax.nn.softmax(bounds)
        averaged = jax.tree.map(lambda leaf: jnp.tensordot(q, leaf, 1), natural)
        return jax.nn.logsumexp(bounds), {**averaged, name: Categories(bounds)}


@pytest.mark.stress
def test_locals_nest() -> None:
    deep = lamu.Graph(
        two_levels, local={"z": Encoded(lamu.networks.MLP((8,))), "top": Encoded(lamu.networks.MLP((8,)))}
    )
    fit = lamu.fit(deep, {"y": Y}, lamu.algorithms.adam(1e-2), epochs=20, batch_size=20)
    assert sorted(fit.posterior.mean["network"]["local"]) == ["top", "z"]
    assert np.mean(fit.history["loss"][-4:]) < np.mean(fit.history["loss"][:4])
    graph = lamu.Graph(labelled, local={"c": Enumerated(3), "z": Encoded(lamu.networks.MLP((8,)))})
    labels = np.where(RANDOM.uniform(size=40) < 0.5, RANDOM.integers(0, 3, 40), np.nan)
    data = {"y": Y, "c": labels}
    posterior = lamu.fit(graph, data, lamu.algorithms.adam(1e-2), epochs=5, batch_size=20).posterior
    q = np.asarray(posterior.local(data)["c"].mean)
    known = ~np.isnan(labels)
    np.testing.assert_allclose(q[known], np.eye(3)[labels[known].astype(int)], atol=1e-6)
    assert np.all(q[~known].max(1) < 0.999)


def test_what_programs_with_networks_refuse() -> None:
    data = {"y": Y}
    with pytest.raises(TypeError, match="the best belief about 'z' has no closed form, because 'y' depends on it"):
        lamu.Graph(decoder).row_bounds({"decode": {}}, lamu.Graph(decoder).read(data).full())
    with pytest.raises(TypeError, match=r"networks \(decode\) depend on the latents z of a row.*say how each leaves"):
        lamu.fit(lamu.Graph(decoder), data, lamu.algorithms.adam(), steps=1)
    with pytest.raises(TypeError, match="no belief about the weights of the network 'decode' has a closed form"):
        lamu.fit(vae(), data, lamu.algorithms.svi(), steps=1)
    with pytest.raises(ValueError, match="y, of Bernoulli, "):
        vae().read({"y": 2.0 * Y + 0.5})

    def unused(m) -> None:
        m.network("f", lamu.networks.Linear(), outputs=1)
        with m.rows():
            m.sample("y", graphs.Normal(0.0, 1.0))

    with pytest.raises(ValueError, match="nothing calls the network 'f'"):
        lamu.fit(lamu.Graph(unused), {"y": np.ones(3)}, lamu.algorithms.adam(), steps=1)
    m = graphs.Program()
    rate = m.sample("rate", Gamma(1.0, 1.0))
    for call, words in (
        (lambda: m.network("local", lamu.networks.Linear(), 1), "the name 'local' has a meaning"),
        (lambda: m.network("f", lamu.networks.Linear(), 0), "outputs=0 of 'f' are not positive numbers"),
        (lambda: graphs.Quadrature(0), "nodes=0 is not possible"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    for call, words in (
        (lambda: m.sample("y", lamu.likelihoods.Poisson()(rate)), "sample it inside"),
        (lambda: graphs.exp(rate), "and was given rate; call a network of m.network, or write the program in NumPyro"),
        (lambda: m.network("g", lamu.networks.Linear(), 1)(), "is called without inputs"),
        (lambda: graphs.Potential("bernoulli", 0.0), "the likelihood is 'bernoulli'"),
    ):
        with pytest.raises(TypeError, match=words):
            call()
    assert graphs.AtMean() != graphs.Quadrature()


def regression(m) -> None:
    w = m.sample("w", MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
    with m.rows():
        m.sample("y", lamu.likelihoods.Poisson()(m.data("x") @ w))


def test_message_passing_through_a_likelihood_ends_at_its_best_gaussian() -> None:
    """At the fixed point of the rule λ is ∇_μ E log p: mean and precision solve Bonnet's and Price's equations."""
    x, y = RANDOM.normal(size=(30, 2)), RANDOM.poisson(1.5, 30)
    fit = lamu.fit(lamu.Graph(regression), {"x": x, "y": y}, lamu.algorithms.ncvmp(tolerance=0.0), steps=100)
    q = fit.posterior.belief.factors["network"].factors["w"]
    mean, precision = np.asarray(q.mean), np.asarray(q.precision)
    rate = np.exp(x @ mean + np.einsum("nd,de,ne->n", x, np.linalg.inv(precision), x) / 2)
    np.testing.assert_allclose(x.T @ (y - rate), mean, atol=1e-5)
    np.testing.assert_allclose(np.eye(2) + (x * rate[:, None]).T @ x, precision, rtol=1e-5)
    loss = np.asarray(fit.history["loss"])[1:]
    assert np.all(np.diff(loss) < 1e-9)
    with pytest.raises(TypeError, match=r"vmp\(\) takes exact messages, and 'y' has the likelihood Poisson"):
        lamu.fit(lamu.Graph(regression), {"x": x, "y": y}, lamu.algorithms.vmp(), steps=1)
    with pytest.raises(TypeError, match=r"em\(\) takes exact messages"):
        lamu.fit(lamu.Graph(regression), {"x": x, "y": y}, lamu.algorithms.em(), steps=1)
    with pytest.raises(ValueError, match=r"learning_rate=1.5 is not a rate of the rule"):
        lamu.algorithms.ncvmp(1.5)


@pytest.mark.stress
def test_the_default_rate_of_svi_forgets_where_the_parts_began() -> None:
    """Intercept and slopes in two parts: with 1 / t the intercept is several posterior deviations off, for long."""

    def program(m) -> None:
        intercept = m.sample("intercept", MultivariateNormal(jnp.zeros(1), jnp.eye(1)))
        slopes = m.sample("slopes", MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
        with m.rows():
            m.sample("y", lamu.likelihoods.Poisson()(m.data("one") @ intercept + m.data("x") @ slopes))

    draws = np.random.default_rng(3)
    x = draws.normal(size=(600, 2))
    data = {"one": np.ones((600, 1)), "x": x, "y": draws.poisson(np.exp(1.0 + x @ [0.6, -0.4]))}
    exact = lamu.fit(lamu.Graph(program), data, lamu.algorithms.ncvmp()).posterior
    parts = exact.belief.factors["network"].factors

    def distance(posterior: lamu.Posterior) -> float:
        off = [
            (posterior.mean["network"][name] - belief.mean) / jnp.sqrt(jnp.diagonal(jnp.linalg.inv(belief.precision)))
            for name, belief in parts.items()
        ]
        return float(jnp.abs(jnp.concatenate(off)).max())

    lengths = {"batch_size": 60, "steps": 600}
    assert distance(lamu.fit(lamu.Graph(program), data, lamu.algorithms.svi(), **lengths).posterior) < 0.3
    slow = lamu.fit(lamu.Graph(program), data, lamu.algorithms.svi(kappa=1.0), **lengths)
    assert distance(slow.posterior) > 1.0


def test_a_rate_that_forgets_too_slowly_is_named() -> None:
    graph = lamu.Graph(two_levels)
    coin = lamu.ConjugateModel(lamu.observations.Bernoulli(), lamu.families.Beta(1.0, 1.0))
    assert "leave kappa out" in _faster_forgetting(lamu.algorithms.svi(kappa=1.0), graph)
    assert not _faster_forgetting(lamu.algorithms.svi(), graph)
    assert not _faster_forgetting(lamu.algorithms.svi(kappa=0.7), graph)
    assert not _faster_forgetting(lamu.algorithms.svi(kappa=1.0), coin)
    assert not _faster_forgetting(lamu.algorithms.cvi(), graph)
