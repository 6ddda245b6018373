"""Graphs: one function of statistics is the density, its expectation, and, by its gradient, every message."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma, logsumexp
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

import lamu
from lamu import graphs
from lamu.families import Beta, Dirichlet, Gamma, MultivariateNormal, NormalGamma, NormalWishart, Product
from lamu.mcmc.chains import LogTarget
from lamu.mcmc.gradients import mean_loss
from lamu.natural_rule import ConjugateLoss
from lamu.objective import Objective

RANDOM = np.random.default_rng(0)
K = 3
POINTS = np.concatenate([RANDOM.normal(size=(n, 2)) + at for n, at in ((30, 0.0), (40, 3.0), (30, -3.0))])


def mixture(parts: int, concentration: float, prior: NormalWishart):
    def program(m) -> None:
        weight = m.sample("weight", Dirichlet(jnp.full(parts, concentration)))
        part = m.sample("part", prior, plate=parts)
        with m.rows():
            z = m.sample("z", graphs.Categorical(weight))
            m.sample("y", graphs.MultivariateNormal(part[z]))

    return lamu.Graph(program)


PRIOR = NormalWishart(jnp.zeros(2), 1.5, 4.0, 2.0 * jnp.eye(2))
GRAPH = mixture(K, 0.7, PRIOR)
BATCH = GRAPH.read({"y": POINTS}).full()


@jax.jit
def row_bounds(graph, statistics, batch, temperature=1.0):
    return graph.row_bounds(statistics, batch, temperature)


def scikit_learn(iterations: int) -> dict:
    found = BayesianGaussianMixture(
        n_components=K,
        weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=0.7,
        mean_prior=[0.0, 0.0],
        mean_precision_prior=1.5,
        degrees_of_freedom_prior=4.0,
        covariance_prior=2.0 * np.eye(2),
        reg_covar=0.0,
        tol=0.0,
        init_params="random",
        random_state=3,
        max_iter=iterations,
    ).fit(POINTS)
    degrees = found.degrees_of_freedom_
    scale = found.covariances_ * degrees[:, None, None]
    part = NormalWishart(*map(jnp.asarray, (found.means_, found.mean_precision_, degrees, scale)))
    return {"weight": Dirichlet(jnp.asarray(found.weight_concentration_)), "part": part}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_sweep_is_scikit_learns_iteration() -> None:
    algorithm, objective = lamu.algorithms.vmp(), Objective(GRAPH, len(POINTS))
    state = algorithm.init(jax.random.key(0), objective, BATCH)
    third = jax.tree.map(lambda leaf: leaf[None], scikit_learn(3))
    fourth = scikit_learn(4)
    state, _ = jax.jit(algorithm.step)(
        jax.random.key(1),
        replace(state, beliefs=third),
        BATCH,
        objective,
    )
    for mine, theirs in zip(jax.tree.leaves(state.beliefs), jax.tree.leaves(fourth), strict=True):
        np.testing.assert_allclose(mine[0], theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_em_is_scikit_learns_iterate_for_iterate() -> None:
    flat = mixture(K, 1.0, NormalWishart(jnp.zeros(2), 1e-12, 2.0, 1e-13 * jnp.eye(2)))
    means = POINTS[[0, 50, 90]]
    start = {"precisions_init": np.stack([np.eye(2)] * K), "means_init": means, "weights_init": np.full(K, 1 / K)}
    algorithm, objective = lamu.algorithms.em(), Objective(flat, len(POINTS))
    state = algorithm.init(jax.random.key(0), objective, BATCH)
    theta = {
        "weight": jnp.full(K, 1 / K),
        "part": {"mean": jnp.asarray(means), "precision": jnp.stack([jnp.eye(2)] * K)},
    }
    state = replace(state, theta=jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], theta))
    step = jax.jit(algorithm.step)
    for iteration in range(1, 5):
        state, _ = step(jax.random.key(1), state, BATCH, objective)
        other = GaussianMixture(K, max_iter=iteration, tol=0.0, reg_covar=0.0, random_state=0, **start).fit(POINTS)
        np.testing.assert_allclose(state.theta["weight"][0], other.weights_, rtol=1e-9)
        np.testing.assert_allclose(state.theta["part"]["mean"][0], other.means_, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(state.theta["part"]["precision"][0], other.precisions_, rtol=1e-8, atol=1e-9)


def test_at_a_point_the_latents_are_summed_out() -> None:
    theta = GRAPH.theta(jax.jit(GRAPH.init)(jax.random.key(0), BATCH)[0])
    weight, part = (jax.tree.map(np.asarray, theta[name]) for name in ("weight", "part"))
    terms = [
        np.log(weight[k])
        + stats.multivariate_normal(part["mean"][k], np.linalg.inv(part["precision"][k])).logpdf(POINTS)
        for k in range(K)
    ]
    params = GRAPH.unconstrained({"network": theta, "likelihood": {}})
    found = jax.jit(GRAPH.log_likelihood)(params, {}, BATCH)[0]
    np.testing.assert_allclose(found, logsumexp(np.stack(terms), axis=0), atol=1e-10, rtol=0)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_bound_is_that_of_the_tempered_joint(temperature: float) -> None:
    """The best q(z) by enumeration: responsibilities of log p / T, whose entropy no temperature divides."""
    statistics = GRAPH.moments(some_beliefs())
    found = row_bounds(GRAPH, statistics, BATCH, temperature)
    part = statistics["part"]
    energies = np.stack(
        [
            np.asarray(statistics["weight"].log[k])
            + 0.5
            * (
                np.asarray(part.logdet[k])
                - 2 * np.log(2 * np.pi)
                - np.einsum("ni,ij,nj->n", POINTS, part.precision[k], POINTS)
                + 2 * POINTS @ np.asarray(part.first[k])
                - np.asarray(part.second[k])
            )
            for k in range(K)
        ]
    )
    r = np.exp(energies / temperature - logsumexp(energies / temperature, axis=0))
    expected = np.sum(r * energies, axis=0) / temperature - np.sum(r * np.log(r), axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def some_beliefs() -> dict:
    return jax.jit(GRAPH.first_beliefs)(jax.random.key(2), BATCH)


@pytest.mark.parametrize("holes", [pytest.param(False, marks=pytest.mark.stress), True], ids=["complete", "holes"])
def test_factor_analysis_raises_its_bound_and_fills_holes(holes: bool) -> None:
    D, L, N = 5, 2, 60
    W, Z = RANDOM.normal(size=(D, L)), RANDOM.normal(size=(N, L))
    whole = Z @ W.T + 0.3 * RANDOM.normal(size=(N, D))
    gone = RANDOM.uniform(size=whole.shape) < 0.2
    y = np.where(gone, np.nan, whole) if holes else whole

    def program(m) -> None:
        noise = m.sample("noise", Gamma(1e-3, 1e-3), plate=D)
        loadings = m.sample("W", MultivariateNormal(jnp.zeros(L), jnp.eye(L)), plate=D)
        with m.rows():
            z = m.sample("z", graphs.MultivariateNormal(jnp.zeros(L), jnp.eye(L)))
            m.sample("y", graphs.Normal(loadings @ z, precision=noise))

    graph = lamu.Graph(program)
    fit = lamu.fit(graph, {"y": y}, lamu.algorithms.vmp(), steps=40)
    assert np.diff(fit.history["loss"]).max() <= 1e-12
    point = lamu.fit(graph, {"y": y}, lamu.algorithms.em(), steps=20).posterior.mean["network"]
    covariance = point["W"] @ point["W"].T + np.diag(1 / point["noise"])
    rows = row_bounds(graph, graph.values(point), graph.read({"y": y}).full())
    for row in range(5):
        seen = ~np.isnan(y[row])
        expected = stats.multivariate_normal(np.zeros(seen.sum()), covariance[np.ix_(seen, seen)]).logpdf(y[row, seen])
        np.testing.assert_allclose(rows[row], expected, atol=1e-9)
    if holes:
        completed = fit.posterior.predict({"y": y})
        np.testing.assert_array_equal(np.asarray(completed.mean)[~gone], whole[~gone])
        assert np.all(np.asarray(completed.std)[~gone] == 0)
        away = (np.asarray(completed.mean) - whole)[gone]
        assert np.sqrt(np.mean(away**2)) < 0.6 * np.sqrt(np.mean(whole[gone] ** 2))
        assert 0.6 < np.sqrt(np.mean((away / np.asarray(completed.std)[gone]) ** 2)) < 1.6


FAITHFUL_PRIOR = NormalWishart(jnp.zeros(2), 1.0, 2.0, jnp.eye(2))


def faithful() -> np.ndarray:
    """Two clusters, as far apart and as large as those of Old Faithful."""
    first = RANDOM.multivariate_normal([-1.2, -1.3], [[0.06, 0.02], [0.02, 0.18]], 97)
    second = RANDOM.multivariate_normal([0.7, 0.7], [[0.13, 0.06], [0.06, 0.19]], 175)
    return np.concatenate([first, second])


@pytest.mark.stress
def test_superfluous_components_die_and_restarts_keep_the_best() -> None:
    graph, y = mixture(6, 1e-3, FAITHFUL_PRIOR), faithful()
    fit = lamu.fit(graph, {"y": y}, lamu.algorithms.vmp(restarts=3), steps=80)
    weight = np.sort(np.asarray(fit.posterior.mean["network"]["weight"]))
    np.testing.assert_allclose(weight[-2:], [97 / 272, 175 / 272], atol=0.01)
    assert np.diff(fit.history["loss"]).max() <= 1e-12
    np.testing.assert_allclose(fit.history["loss"][-1] * -272, fit.posterior.evidence, rtol=1e-9)
    assert fit.posterior.convergence.converged
    assert "4 of the components of weight empty (" in repr(fit)
    local = fit.posterior.local({"y": y[[0, -1]]})["z"].mean
    assert local.shape == (2, 6)
    assert local[0].argmax() != local[1].argmax()
    density = fit.posterior.log_prob({"y": y[:3]}, samples=64)
    assert density.shape == (3,)
    assert np.isfinite(density).all()


def words_of_known_shares(m) -> None:
    topic = m.sample("topic", Dirichlet(jnp.ones(5)), plate=3)
    with m.rows():
        m.sample("words", graphs.Words(jnp.array([0.7, 0.2, 0.1]), topic))


DOCUMENTS = {"words": (np.array([[0, 1], [4, 2]]), np.array([[3, 1], [1, 0]]))}
EVENTS = {"y": np.array([[1, 0, 0, 1], [0, 0, 1, 1]])}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("graph", "data", "entropies"),
    [
        (graphs.models.HiddenMarkov(3, 4), {"y": np.arange(8.0).reshape(2, 4)}, [4 * np.log(3)] * 2),
        (graphs.models.SumProduct(2, 4), EVENTS, [3 * np.log(2)] * 2),  # a category at each of three sums
        (lamu.Graph(words_of_known_shares), DOCUMENTS, [4 * np.log(3), np.log(3)]),  # and one a word
        (graphs.models.LatentClass(3, (2, 2)), {"y0": np.array([1, 0]), "y1": np.array([0, 0])}, [np.log(3)] * 2),
    ],
    ids=["chain", "circuit", "words", "classes"],
)
def test_what_is_left_of_a_bound_in_the_heat_is_the_entropy(graph, data, entropies) -> None:
    """The temperature divides log p and never the entropy: at T = 1e9 all configurations are alike."""
    batch = graph.read(data).full()
    beliefs = jax.jit(graph.first_beliefs)(jax.random.key(0), batch)
    np.testing.assert_allclose(row_bounds(graph, graph.moments(beliefs), batch, 1e9), entropies, atol=1e-6)


def conjugate_level(m) -> None:
    theta = m.sample("theta", NormalGamma(0.0, 0.5, 2.0, 1.0))
    with m.rows():
        m.sample("y", graphs.Normal(theta))


@pytest.mark.measured
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_without_latents_every_algorithm_is_conjugate_bayes(temperature: float) -> None:
    y, weight = RANDOM.normal(2.0, 1.0, 20), RANDOM.uniform(0.5, 2.0, 20)
    graph, data = lamu.Graph(conjugate_level), {"y": y, "weight": weight}
    model = lamu.ConjugateModel(lamu.observations.Normal(), NormalGamma(0.0, 0.5, 2.0, 1.0))
    exact = lamu.fit(model, data, lamu.algorithms.conjugate(), temperature=temperature).posterior
    swept = lamu.fit(graph, data, lamu.algorithms.vmp(), temperature=temperature, steps=2).posterior
    stochastic = lamu.fit(graph, data, lamu.algorithms.svi(), temperature=temperature, batch_size=5, epochs=1).posterior
    for found in (swept, stochastic):
        ours = found.belief.factors["network"].factors["theta"]
        for mine, theirs in zip(jax.tree.leaves(ours), jax.tree.leaves(exact.belief.factors["network"]), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-7)
        if temperature == 1.0:
            np.testing.assert_allclose(found.evidence, exact.evidence, rtol=1e-9)
    assert stochastic.convergence.offset < 1e-6  # an epoch is the posterior
    tempered = lamu.fit(model, data, lamu.algorithms.svi(), temperature=temperature, batch_size=5, epochs=1).posterior
    np.testing.assert_allclose(tempered.evidence, exact.evidence, rtol=1e-9)


def test_the_gradient_of_the_loss_is_the_message_at_any_scale() -> None:
    """−κ∇ of the mean loss is λ of the best belief: N/B, T and power enter once."""
    some = BATCH.padded(len(POINTS) + 7)
    statistics = GRAPH.moments(some_beliefs())
    objective = Objective(GRAPH, data_size=3 * len(POINTS), temperature=2.0, likelihood_power=0.5)
    slope = jax.jit(jax.grad(lambda s: -objective.concentration * ConjugateLoss(objective, some, {}, {}).at(s)))(
        statistics
    )
    r = jax.nn.softmax(GRAPH.row_latents(statistics, BATCH.y, 4.0)["z"].probabilities)
    expected = (0.7 - 1.0) / 2.0 + 3 * 0.5 / 2.0 * r.sum(axis=0)
    np.testing.assert_allclose(slope["weight"].log, expected, rtol=1e-9)


@pytest.mark.stress
def test_samplers_and_laplace_run_on_the_marginal_density() -> None:
    def counts(m) -> None:
        p = m.sample("p", Beta(2.0, 2.0))
        rate = m.sample("rate", Gamma(jnp.array([2.0, 20.0]), 1.0))
        with m.rows():
            z = m.sample("z", graphs.Categorical(jnp.array([0.5, 0.5])))
            m.sample("y", graphs.Poisson(rate[z]))
            m.sample("x", graphs.Bernoulli(p))

    graph = lamu.Graph(counts)
    y = np.concatenate([RANDOM.poisson(2.0, 20), RANDOM.poisson(20.0, 20)])
    data = {"y": y, "x": (np.arange(40) < 10).astype(int)}
    sampled = lamu.fit(graph, data, lamu.mcmc.nuts(chains=1, warmup=100, draws=300), seed=1).posterior
    laplace = lamu.algorithms.laplace(curvature=lamu.objective.curvature.Hessian())
    gaussian = lamu.fit(graph, data, laplace, steps=400).posterior
    swept = lamu.fit(graph, data, lamu.algorithms.vmp(), steps=30).posterior
    # p is exact in all: Beta(12, 32), of sd 0.067; 300 draws are off by 0.02 once in a thousand runs.
    np.testing.assert_allclose(swept.mean["network"]["p"], 12 / 44, rtol=1e-6)
    np.testing.assert_allclose(np.mean(sampled.samples["network"]["p"]), 12 / 44, atol=0.02)
    assert np.all(np.asarray(gaussian.sample(jax.random.key(0), 5)["network"]["rate"]) > 0)
    np.testing.assert_allclose(swept.mean["network"]["rate"], sampled.samples["network"]["rate"].mean((0, 1)), rtol=0.1)
    assert sampled.local(data)["z"].mean.shape == (40, 2)
    assert isinstance(swept.belief.factors["network"], Product)


@pytest.mark.stress
def test_topics_are_found_by_svi() -> None:
    V, T, documents = 12, 3, 48
    topic = np.kron(np.eye(T), np.ones(4)) / 4
    share = RANDOM.dirichlet(np.full(T, 0.1), documents)
    counts = np.stack([RANDOM.multinomial(60, p) for p in share @ topic])
    ids = np.tile(np.arange(V), (documents, 1))

    def topics(m) -> None:
        topic = m.sample("topic", Dirichlet(jnp.full(V, 0.05)), plate=T)
        with m.rows():
            share = m.sample("share", graphs.Dirichlet(jnp.full(T, 0.1)))
            m.sample("words", graphs.Words(share, topic))

    graph = lamu.Graph(topics, local={"share": graphs.Coordinate(20)})
    data = {"words": (ids, counts)}
    posterior = lamu.fit(graph, data, lamu.algorithms.svi(kappa=0.7), batch_size=16, epochs=10, seed=2).posterior
    away = np.abs(np.asarray(posterior.mean["network"]["topic"])[:, None] - topic[None]).sum(-1) / 2
    assert sorted(away.argmin(1)) == [0, 1, 2]
    assert away.min(1).max() < 0.15  # twice what counts of one in a topic's four words are off by
    found = posterior.local(data)["share"].mean[:, np.argsort(away.argmin(1))]
    assert np.abs(np.asarray(found) - share).mean() < 0.06
    with pytest.raises(TypeError, match="share of a row meet"):
        lamu.fit(graph, data, lamu.mcmc.nuts(chains=1, warmup=2, draws=2))


def test_a_category_is_eliminated_exactly_and_by_coordinate_ascent_alike() -> None:
    """The log of the sum of expected weights and densities, Bishop (2006), equations 10.46, 10.64 to 10.66."""

    def categories(m) -> None:
        weight = m.sample("weight", Dirichlet(jnp.ones(2)))
        part = m.sample("part", NormalGamma(0.0, 1.0, 1.0, 1.0), plate=2)
        with m.rows():
            m.sample("y", graphs.Normal(part[m.sample("z", graphs.Categorical(weight))]))

    m, count, a, b = np.array([[-1.0, 2.0], [3.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    alpha, y = np.array([2.0, 3.0]), np.array([-1.5, 0.4, 2.0])
    density = (digamma(a) - np.log(2 * np.pi * b) - a / b * (y[:, None] - m) ** 2 - 1 / count) / 2
    expected = logsumexp(digamma(alpha) - digamma(5.0) + density, axis=1)
    for local in ({}, {"z": graphs.ExactElimination()}, {"z": graphs.Coordinate()}):
        graph = lamu.Graph(categories, local=local)
        mu = graph.moments({"weight": Dirichlet(jnp.asarray(alpha)), "part": NormalGamma(m, count, a, b)})
        np.testing.assert_allclose(graph.row_bounds(mu, graph.read({"y": y}).full()), expected, rtol=1e-5)


def test_a_label_that_is_known_ties_the_category_down() -> None:
    y = np.array([-2.0, -1.9, 2.0, 2.1])

    def labelled(m) -> None:
        weight = m.sample("weight", Dirichlet(jnp.ones(2)))
        part = m.sample("part", NormalGamma(0.0, 0.1, 2.0, 1.0), plate=2)
        with m.rows():
            z = m.sample("z", graphs.Categorical(weight))
            m.sample("y", graphs.Normal(part[z]))

    data = {"y": y, "z": np.array([1.0, np.nan, 0.0, np.nan])}
    posterior = lamu.fit(lamu.Graph(labelled), data, lamu.algorithms.vmp(), steps=30).posterior
    np.testing.assert_allclose(posterior.local(data)["z"].mean[:, 1], [1.0, 1.0, 0.0, 0.0], atol=0.05)
    completed = posterior.predict(data)
    np.testing.assert_allclose(completed.mean["z"][:, 1], [1.0, 1.0, 0.0, 0.0], atol=0.05)


def test_a_graph_is_saved_without_its_program(tmp_path) -> None:
    graph = lamu.Graph(conjugate_level)
    posterior = lamu.fit(graph, {"y": np.arange(5.0)}, lamu.algorithms.vmp(), steps=2).posterior
    again = lamu.load(posterior.save(tmp_path / "posterior"))
    np.testing.assert_array_equal(again.log_prob({"y": np.ones(2)}), posterior.log_prob({"y": np.ones(2)}))


NUMBERS = np.random.default_rng(5).normal(size=(40, 3))
HOLES = np.where(np.arange(120).reshape(40, 3) % 11 == 0, np.nan, NUMBERS)
SIGNAL = NUMBERS @ [1.0, 0.0, -1.0]
FOURS = np.arange(40) % 4
READY = {
    "GaussianMixture": (graphs.models.GaussianMixture(3, 3), {"y": NUMBERS}),
    "GaussianMixture, diagonal": (graphs.models.GaussianMixture(3, 3, covariance="diagonal"), {"y": HOLES}),
    "GaussianMixture, tied, sticks": (graphs.models.GaussianMixture(3, 3, 1.0, "tied", "sticks"), {"y": NUMBERS}),
    "ExponentialPCA": (graphs.models.ExponentialPCA(2, 3), {"y": (NUMBERS > 0).astype(int)}),
    "SumProduct": (graphs.models.SumProduct(2, 3), {"y": (NUMBERS > 0).astype(int)}),
    "BernoulliMixture": (graphs.models.BernoulliMixture(2, 3), {"y": (NUMBERS > 0).astype(int)}),
    "LatentClass": (graphs.models.LatentClass(2, (4, 2)), {"y0": FOURS, "y1": FOURS // 2}),
    "NaiveBayes": (graphs.models.NaiveBayes(2, 3), {"x": HOLES, "c": np.where(FOURS == 3, np.nan, FOURS % 2)}),
    "FactorAnalysis": (graphs.models.FactorAnalysis(2, 3), {"y": HOLES}),
    "PPCA": (graphs.models.FactorAnalysis(2, 3, isotropic=True), {"y": NUMBERS}),
    "MatrixFactorisation": (
        graphs.models.MatrixFactorisation(4, 10, 2),
        {"row": FOURS, "column": np.arange(40) // 4, "y": SIGNAL},
    ),
    "LinearRegression": (graphs.models.LinearRegression(3), {"x": NUMBERS, "y": SIGNAL}),
    "HierarchicalRegression": (
        graphs.models.HierarchicalRegression(4, 3),
        {"x": NUMBERS, "group": FOURS, "y": SIGNAL},
    ),
    "HiddenMarkov": (graphs.models.HiddenMarkov(2, 10), {"y": NUMBERS[:20, 0].reshape(2, 10)}),
    "StateSpace": (graphs.models.StateSpace(10), {"y": NUMBERS[:20, 0].reshape(2, 10).cumsum(1)}),
    "Topics": (
        graphs.models.Topics(2, 4, sweeps=50),
        {"words": (np.tile(np.arange(4), (10, 1)), FOURS.reshape(10, 4))},
    ),
}


@pytest.mark.parametrize(
    "name", [n if n == "LinearRegression" else pytest.param(n, marks=pytest.mark.stress) for n in READY]
)
def test_ready_models_raise_their_bounds(name: str) -> None:
    graph, data = READY[name]
    fit = lamu.fit(graph, data, lamu.algorithms.vmp(), steps=20)
    slack = 1e-4 if name in ("Topics", "ExponentialPCA") else 1e-10  # whose inner iteration ends at a tolerance
    assert np.diff(fit.history["loss"]).max() <= slack
    assert np.isfinite(fit.posterior.evidence)
    if name == "LinearRegression":
        np.testing.assert_allclose(fit.posterior.mean["network"]["w"], [1.0, 0.0, -1.0], atol=0.02)


def test_a_model_of_another_covariance_is_refused() -> None:
    with pytest.raises(ValueError, match="covariance='round' is not known"):
        graphs.models.GaussianMixture(2, 2, covariance="round")


@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_no_temperature_divides_the_jacobian_of_a_graph(temperature: float, power: float) -> None:
    """A rate's density at T is Gamma((a − 1 + p Σy)/T + 1, (b + p n)/T), in logarithms with one Jacobian."""

    def program(m) -> None:
        rate = m.sample("rate", Gamma(2.0, 1.0))
        with m.rows():
            m.sample("y", graphs.Poisson(rate))

    graph, y = lamu.Graph(program), np.array([3, 1, 4])
    batch = graph.read({"y": y}).full()
    objective = Objective(graph, 3, temperature, power)
    law = stats.gamma((1.0 + power * y.sum()) / temperature + 1.0, scale=temperature / (1.0 + power * 3))
    points = [{"network": {"rate": jnp.asarray(u)}, "likelihood": {}} for u in (-0.3, 0.9)]
    expected = np.diff([law.logpdf(np.exp(u)) + u for u in (-0.3, 0.9)])[0]
    target = LogTarget(objective, batch, {})
    np.testing.assert_allclose(target(points[1]) - target(points[0]), expected, rtol=1e-9)
    loss = mean_loss(objective, batch, {})
    change = -objective.concentration * (loss(points[1]) - loss(points[0]))
    np.testing.assert_allclose(change, expected, rtol=1e-9)
    whole = [target.log_prior(at) + jnp.sum(target.rows(at, jnp.arange(3))) for at in points]
    np.testing.assert_allclose(whole[1] - whole[0], expected, rtol=1e-9)


@pytest.mark.parametrize("empty", ["row", "column"])
def test_what_nobody_saw_of_a_row_or_a_column_changes_nothing_else(empty: str) -> None:
    """Rows without any entry leave the bound of the others; a column without any leaves its variables at the prior."""

    def factors(m) -> None:
        noise = m.sample("noise", Gamma(2.0, 1.0), plate=3)
        W = m.sample("W", MultivariateNormal(jnp.zeros(1), jnp.eye(1)), plate=3)
        with m.rows():
            z = m.sample("z", graphs.MultivariateNormal(jnp.zeros(1), jnp.eye(1)))
            m.sample("y", graphs.Normal(W @ z, precision=noise))

    graph, y = lamu.Graph(factors), np.random.default_rng(0).normal(size=(8, 3))
    y[(4 if empty == "row" else slice(None)), (slice(None) if empty == "row" else 1)] = np.nan
    fit = lamu.fit(graph, {"y": y}, lamu.algorithms.vmp(), steps=5).posterior
    beliefs = fit.belief.factors["network"].factors
    if empty == "row":
        np.testing.assert_allclose(fit.local({"y": y})["z"].mean[4], 0.0, atol=1e-7)
        rows = graph.row_bounds(graph.moments(beliefs), graph.read({"y": y}).full())
        np.testing.assert_allclose(rows[4], 0.0, atol=1e-6)
    else:
        np.testing.assert_allclose([beliefs["noise"].shape[1], beliefs["noise"].rate[1]], [2.0, 1.0], rtol=1e-6)
        np.testing.assert_allclose([beliefs["W"].mean[1, 0], beliefs["W"].precision[1, 0, 0]], [0.0, 1.0], atol=1e-6)
    predicted = fit.predict({"y": y})
    assert np.all(np.isfinite(predicted.mean))
    assert np.all(np.asarray(predicted.std)[np.isnan(y)] > 0.5)
