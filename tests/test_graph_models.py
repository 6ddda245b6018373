"""Ready models beside independent references: scikit-learn's steps, enumeration, and quadrature."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, expit, logsumexp
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

import lamu
from lamu import graphs
from lamu.families import Beta, Dirichlet, MultivariateNormal, NormalGamma, NormalWishart, Wishart
from lamu.graphs.expressions import Environment
from lamu.graphs.statistics import Chance, Numbers, Observed, Probabilities
from lamu.objective import Objective

RANDOM = np.random.default_rng(7)
K, ALPHA = 3, 0.8
POINTS = np.concatenate([RANDOM.normal(size=(n, 2)) + at for n, at in ((30, 0.0), (40, 3.0), (30, -3.0))])


def one_step(graph, algorithm, data, **start):
    """The state after one step from beliefs, or a point, of one's own."""
    batch, objective = graph.read(data).full(), Objective(graph, len(POINTS))
    state = jax.eval_shape(lambda: algorithm.init(jax.random.key(0), objective, batch))
    state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), state)
    changed = {name: getattr(state, name) for name in vars(state)} | start
    return jax.jit(algorithm.step)(jax.random.key(1), type(state)(**changed), batch, objective)[0]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_sticks_are_updated_as_scikit_learn_does() -> None:
    """Its last stick is a variable and ours the rest: the responsibilities are ours, the update is its own."""
    other = BayesianGaussianMixture(
        n_components=K,
        weight_concentration_prior=ALPHA,
        mean_prior=[0.0, 0.0],
        mean_precision_prior=1.0,
        degrees_of_freedom_prior=2.0,
        covariance_prior=np.eye(2),
        reg_covar=0.0,
        tol=0.0,
        random_state=3,
        max_iter=3,
    ).fit(POINTS)
    a, b = other.weight_concentration_
    degrees = other.degrees_of_freedom_
    scale = other.covariances_ * degrees[:, None, None]
    beliefs = {
        "break": Beta(jnp.asarray(a[:-1]), jnp.asarray(b[:-1])),
        "part": NormalWishart(*map(jnp.asarray, (other.means_, other.mean_precision_, degrees, scale))),
    }
    graph = graphs.models.GaussianMixture(K, 2, ALPHA, weights="sticks")
    state = one_step(
        graph, lamu.algorithms.vmp(), {"y": POINTS}, beliefs=jax.tree.map(lambda leaf: leaf[None], beliefs)
    )
    last = digamma(a[-1]) - digamma(a[-1] + b[-1])
    log = other._estimate_weighted_log_prob(POINTS) - last * (np.arange(K) == K - 1)
    other._m_step(POINTS, log - logsumexp(log, axis=1, keepdims=True))
    np.testing.assert_allclose(state.beliefs["break"].alpha[0], other.weight_concentration_[0][:-1], rtol=1e-9)
    np.testing.assert_allclose(state.beliefs["break"].beta[0], other.weight_concentration_[1][:-1], rtol=1e-9)
    # The parts come in the same group, so their responsibilities are the same ones.
    np.testing.assert_allclose(state.beliefs["part"].mean["mean"][0], other.means_, rtol=1e-8)


def test_probabilities_of_a_stick_sum_to_one() -> None:
    v = jnp.array([0.3, 0.5, 0.1])
    sticks = graphs.StickBreaking(graphs.Program().sample("v", Beta(1.0, 1.0), plate=3))
    at = Environment({"v": Chance.of(v)})
    probabilities = np.exp(sticks.of_kind(Probabilities, at).log)
    np.testing.assert_allclose(probabilities, [0.3, 0.35, 0.035, 0.315], rtol=1e-12)
    with pytest.raises(TypeError, match="breaks of StickBreaking are w, probabilities that sum to one of shape"):
        graphs.StickBreaking(graphs.Program().sample("w", Dirichlet(jnp.ones(3))))


@pytest.mark.stress
def test_em_keeps_the_best_of_its_restarts() -> None:
    """Three starts side by side end where each ends alone, and the posterior is the one of the largest density."""
    graph = graphs.models.GaussianMixture(2 * K, 2, 1.0, covariance="diagonal")
    batch, objective, algorithm = graph.read({"y": POINTS}).full(), Objective(graph, len(POINTS)), lamu.algorithms.em
    several = algorithm(restarts=3).init(jax.random.key(0), objective, batch)
    step = jax.jit(algorithm(restarts=3).step)
    for _ in range(4):
        several, info = step(jax.random.key(1), several, batch, objective)
    assert len(set(np.round(several.log_density, 6).tolist())) > 1  # so that there is a choice
    best = int(np.argmax(several.log_density))
    np.testing.assert_allclose(info.loss, -several.log_density[best] / len(POINTS), rtol=1e-9)
    found = algorithm(restarts=3).posterior(jax.random.key(2), several, objective, None, None).belief.mean["network"]
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(several.theta), strict=True):
        np.testing.assert_array_equal(one, other[best])
    first = jax.tree.map(lambda leaf: leaf[:1], algorithm(restarts=3).init(jax.random.key(0), objective, batch))
    for _ in range(4):
        first, _ = jax.jit(algorithm().step)(jax.random.key(1), first, batch, objective)
    np.testing.assert_allclose(first.log_density[0], several.log_density[0], rtol=1e-10)


def alone(theta: dict) -> dict:
    """A point as the only start."""
    return jax.tree.map(lambda leaf: leaf[None], theta)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_em_with_diagonals_is_scikit_learns_iterate_for_iterate() -> None:
    def program(m) -> None:
        weight = m.sample("weight", Dirichlet(jnp.ones(K)))
        part = m.sample("part", NormalGamma(jnp.zeros(2), 1e-12, 0.5, 1e-13), plate=K)
        with m.rows():
            z = m.sample("z", graphs.Categorical(weight))
            m.sample("y", graphs.Normal(part[z]))

    means = POINTS[[0, 50, 90]]
    theta = {
        "weight": jnp.full(K, 1 / K),
        "part": {"mean": jnp.asarray(means), "precision": jnp.ones((K, 2))},
    }
    start = {"precisions_init": np.ones((K, 2)), "means_init": means, "weights_init": np.full(K, 1 / K)}
    other = GaussianMixture(K, covariance_type="diag", max_iter=1, tol=0.0, reg_covar=0.0, **start).fit(POINTS)
    state = one_step(lamu.Graph(program), lamu.algorithms.em(), {"y": POINTS}, theta=alone(theta))
    np.testing.assert_allclose(state.theta["weight"][0], other.weights_, rtol=1e-9)
    np.testing.assert_allclose(state.theta["part"]["mean"][0], other.means_, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(state.theta["part"]["precision"][0], other.precisions_, rtol=1e-8, atol=1e-9)


def test_a_tied_covariance_ends_where_scikit_learn_ends() -> None:
    """The means move before the covariance, with responsibilities of their own: other iterates, one fixed point."""

    def program(m) -> None:
        weight = m.sample("weight", Dirichlet(jnp.ones(K)))
        mean = m.sample("mean", MultivariateNormal(jnp.zeros(2), 1e-12 * jnp.eye(2)), plate=K)
        precision = m.sample("precision", Wishart(3.0, 1e-13 * jnp.eye(2)))
        with m.rows():
            z = m.sample("z", graphs.Categorical(weight))
            m.sample("y", graphs.MultivariateNormal(mean[z], precision))

    means = POINTS[[0, 50, 90]]
    theta = {"weight": jnp.full(K, 1 / K), "mean": jnp.asarray(means), "precision": jnp.eye(2)}
    start = {"precisions_init": np.eye(2), "means_init": means, "weights_init": np.full(K, 1 / K)}
    other = GaussianMixture(K, covariance_type="tied", max_iter=500, tol=1e-14, reg_covar=0.0, **start).fit(POINTS)
    graph, algorithm = lamu.Graph(program), lamu.algorithms.em(tolerance=0.0)
    state = one_step(graph, algorithm, {"y": POINTS}, theta=alone(theta), log_density=jnp.full(1, -jnp.inf))
    step = jax.jit(algorithm.step)
    batch, objective = graph.read({"y": POINTS}).full(), Objective(graph, len(POINTS))
    for _ in range(100):
        state, _ = step(jax.random.key(1), state, batch, objective)
    np.testing.assert_allclose(state.theta["weight"][0], other.weights_, rtol=1e-6)
    np.testing.assert_allclose(state.theta["mean"][0], other.means_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state.theta["precision"][0], other.precisions_, rtol=1e-5, atol=1e-6)


def test_a_quadratic_bound_touches_the_logistic_density() -> None:
    """At a known f it is log p(y | f); at moments it is below the expectation, by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    f = graphs.Program().sample("f", graphs.Normal(0.0, 1.0))
    factor = graphs.BernoulliLogits(f)
    value = jax.jit(lambda x, s: factor.log_density(Observed(x), Environment({"f": s})))
    for m, sd, x in itertools.product((-3.0, 0.0, 1e-3, 2.0), (0.1, 1.5), (0.0, 1.0)):
        sign = 2 * x - 1
        np.testing.assert_allclose(value(x, Numbers.of(jnp.asarray(m))), np.log(expit(sign * m)), rtol=1e-9)
        expected = weights @ np.log(expit(sign * (m + sd * nodes)))
        bound = float(value(x, Numbers(jnp.asarray(m), jnp.asarray(m**2 + sd**2))))
        assert expected - 0.15 < bound < expected
    assert np.isfinite(jax.grad(lambda s: value(1.0, s))(Numbers(jnp.zeros(()), jnp.zeros(()))).second)


@pytest.mark.stress
def test_components_of_zeros_and_ones_are_found() -> None:
    N, D = 120, 12
    side = np.repeat([-1.0, 1.0], N // 2)
    y = (RANDOM.uniform(size=(N, D)) < expit(2.5 * side[:, None] * np.where(np.arange(D) < 6, 1, -1))).astype(float)
    y[::7, 3] = np.nan
    graph = graphs.models.ExponentialPCA(1, D)
    fit = lamu.fit(graph, {"y": y}, lamu.algorithms.vmp(), steps=25)
    assert np.diff(fit.history["loss"]).max() <= 1e-6  # the inner iteration ends at a tolerance
    z = np.asarray(fit.posterior.local({"y": y})["z"].mean)[:, 0]
    assert abs(np.corrcoef(z, side)[0, 1]) > 0.95
    completed = np.asarray(fit.posterior.predict({"y": y}).mean)[::7, 3]
    assert np.mean((completed > 0.5) == (side[::7] > 0)) > 0.9


def circuit_theta(graph) -> dict:
    key = jax.random.key(4)
    return {
        site.name: site.factor.belief.sample(jax.random.fold_in(key, number))
        for number, site in enumerate(graph.shared)
    }


@pytest.mark.stress
def test_a_circuit_sums_to_one_and_its_holes_are_marginals() -> None:
    D = 5
    graph = graphs.models.SumProduct(2, D)
    theta = circuit_theta(graph)
    states = np.array(list(itertools.product((0.0, 1.0), repeat=D)))
    rows = jax.jit(lambda batch: graph.row_bounds(graph.values(theta), batch))
    log = np.asarray(rows(graph.read({"y": states}).full()))
    np.testing.assert_allclose(np.exp(log).sum(), 1.0, rtol=1e-12)
    hole = states.copy()
    hole[:, [1, 4]] = np.nan
    found = np.exp(rows(graph.read({"y": hole}).full()))
    same = (states[:, None, [0, 2, 3]] == states[None, :, [0, 2, 3]]).all(-1)
    np.testing.assert_allclose(found, same @ np.exp(log), rtol=1e-12)
    # By hand, all categories of all sums: regions (0 1), (2 3), 4; ((0 1) (2 3)), 4; the root.
    w0, w1, w2 = (np.asarray(theta[f"weight{level}"]) for level in range(3))
    p = np.asarray(theta["chance"])
    y = states[11]
    leaf = np.where(y[:, None] == 1, p, 1 - p)
    total = 0.0
    for a, b, c, j in itertools.product(range(2), repeat=4):
        left, right = w0[0, c, a] * leaf[0, a] * leaf[1, a], w0[1, c, b] * leaf[2, b] * leaf[3, b]
        total += w2[0, 0, j] * leaf[4, j] * w1[0, j, c] * left * right
    np.testing.assert_allclose(np.exp(log[11]), total, rtol=1e-12)


@pytest.mark.stress
def test_a_circuit_learns_what_independent_columns_cannot() -> None:
    a, b = RANDOM.uniform(size=(2, 200)) < 0.5
    y = np.stack([a, a, b, b], axis=1) ^ (RANDOM.uniform(size=(200, 4)) < 0.05)
    graph = graphs.models.SumProduct(2, 4)
    fit = lamu.fit(graph, {"y": y.astype(float)}, lamu.algorithms.vmp(restarts=4), steps=60)
    assert np.diff(fit.history["loss"]).max() <= 1e-10
    # Two coins and whether a pair disagrees: 2.01 nats a row, and the priors; 2.77 for independent columns.
    assert -fit.posterior.evidence / 200 < 2.2


def test_what_the_new_factors_refuse() -> None:
    p = jnp.full((4, 2), 0.5)
    with pytest.raises(ValueError, match=r"asks for \[\(2, 2, 2\), \(1, 1, 2\)\]"):
        graphs.Circuit(p, jnp.full((1, 1, 2), 0.5))
    with pytest.raises(ValueError, match="at least two entries"):
        graphs.Circuit(p[:1])
    with pytest.raises(ValueError, match="y is 2 in a row; give 0 and 1"):
        graphs.models.SumProduct(2, 4).read({"y": np.full((3, 4), 2.0)})
    with pytest.raises(TypeError, match="the logits of BernoulliLogits is w, probabilities"):
        graphs.BernoulliLogits(graphs.Program().sample("w", Beta(1.0, 1.0)))
    with pytest.raises(ValueError, match="weights='crp' are not known"):
        graphs.models.GaussianMixture(2, 2, weights="crp")


def test_rows_that_do_not_fit_in_memory_come_as_a_stream() -> None:
    def level(m) -> None:
        part = m.sample("part", NormalGamma(0.0, 0.5, 2.0, 1.0))
        with m.rows():
            m.sample("y", graphs.Normal(part))

    graph, y = lamu.Graph(level), RANDOM.normal(2.0, 1.0, 20)
    whole = lamu.fit(graph, {"y": y}, lamu.algorithms.vmp(), steps=2).posterior.belief
    stream = lamu.data.Stream([graph.read({"y": part}).full() for part in y.reshape(4, 5)])
    passed = lamu.fit(graph, stream, lamu.algorithms.svi(), batch_size=5, epochs=1, data_size=20).posterior.belief
    for a, b in zip(jax.tree.leaves(passed), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7)


@pytest.mark.stress
def test_svi_on_a_mixture_does_not_begin_between_its_groups() -> None:
    """Five groups in four dimensions: two passes find every centre, where one random start found none of them."""
    random = np.random.default_rng(1006)
    centres = 4.0 * random.normal(size=(5, 4))
    y = (centres[random.integers(0, 5, 4_000)] + random.normal(size=(4_000, 4))).astype(np.float32)
    graph = graphs.models.GaussianMixture(5, 4, 1.0)
    posterior = lamu.fit(graph, {"y": y}, lamu.algorithms.svi(), batch_size=1_000, epochs=2).posterior
    means = np.asarray(posterior.belief.factors["network"].factors["part"].mean["mean"])
    assert np.linalg.norm(means[:, None] - centres, axis=-1).min(axis=0).max() < 0.3
