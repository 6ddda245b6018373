"""Questions to the posterior of a graph: new inputs, holes, latents, densities and draws, beside laws by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import lamu
from lamu import graphs
from lamu.base.compile_once import lenient
from lamu.families import Beta, Dirichlet, Gamma, MultivariateNormal, NormalGamma, NormalWishart, Point, Wishart
from lamu.graphs import models
from lamu.graphs.expressions import Expression
from lamu.graphs.factor import Factor, argument, summed
from lamu.graphs.statistics import Chance, Observed
from lamu.likelihoods import Gaussian
from lamu.posterior import Posterior
from lamu.predictives import Predictive
from lamu.predictives.graph import DrawnVariable, GraphRule, drawn_rows
from lamu.record import record, static
from lamu.supports import Counts
from tests.for_each import for_each

RANDOM, NAN = np.random.default_rng(0), np.nan
HOLES = np.array([[0.3, NAN, -1.0], [NAN, NAN, 0.5], [NAN, NAN, NAN]])
BITS = np.array([[1.0, NAN, 0.0], [NAN, NAN, 1.0], [NAN, NAN, NAN]])
SERIES = np.array([[0.3, NAN, -1.0, NAN], [NAN, NAN, 0.5, 1.0], [NAN, NAN, NAN, NAN]])
SPD = np.array([[1.0, 0.3, 0.1], [0.3, 2.0, -0.4], [0.1, -0.4, 1.5]])
WEIGHT, BREAK = np.array([0.3, 0.7]), np.array([0.3])
MEANS, TAUS = RANDOM.normal(size=(2, 3)), RANDOM.gamma(3.0, size=(2, 3))
CHANCES, TABLE = RANDOM.beta(2.0, 2.0, size=(2, 3)), RANDOM.dirichlet(np.ones(2), 2)
LOADINGS, OFFSET = RANDOM.normal(size=(3, 2)), RANDOM.normal(size=3)
X, OWN = RANDOM.normal(size=(3, 2)), RANDOM.normal(size=(3, 2))
U, V = RANDOM.normal(size=(3, 2)), RANDOM.normal(size=(2, 2))
SUMS, ROOT = RANDOM.dirichlet(np.ones(2), (1, 2)), RANDOM.dirichlet(np.ones(2), (1, 1))
LEAVES = RANDOM.beta(2.0, 2.0, size=(3, 2))


def at(graph: lamu.Graph, theta: Any) -> Posterior:
    """The posterior that has all its mass at θ."""
    theta = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), theta)
    belief = Point({"network": theta, "likelihood": {}})
    return Posterior(graph.of_theta(), belief, {}, GraphRule(), jax.random.key(0))


# A row at a known θ is a finite mixture of normal vectors or of independent bits: log p of what is observed, and mean
# and variance of every entry given it, by the component.

Law = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]


def normal(mean: Any, covariance: Any) -> Law:
    m, C = np.asarray(mean, float), np.asarray(covariance, float)

    def of(y: np.ndarray) -> Any:
        o, h = np.flatnonzero(~np.isnan(y)), np.flatnonzero(np.isnan(y))
        gain = C[np.ix_(h, o)] @ np.linalg.inv(C[np.ix_(o, o)]) if len(o) else np.zeros((len(h), 0))
        value, variance = np.array(y), np.zeros(len(y))
        value[h] = m[h] + gain @ (y[o] - m[o])
        variance[h] = np.diag(C[np.ix_(h, h)] - gain @ C[np.ix_(o, h)])
        return (stats.multivariate_normal(m[o], C[np.ix_(o, o)]).logpdf(y[o]) if len(o) else 0.0), value, variance

    return of


def bits(p: np.ndarray) -> Law:
    def of(y: np.ndarray) -> Any:
        seen = ~np.isnan(y)
        log = np.where(seen, np.log(np.where(y == 1, p, 1 - p)), 0.0).sum()
        return log, np.where(seen, y, p), np.where(seen, 0.0, p * (1 - p))

    return of


def mixed(weights: Any, laws: list[Law], y: np.ndarray) -> tuple[Any, ...]:
    """log p of a row, responsibilities, means and variances."""
    logs, means, variances = (np.array(part) for part in zip(*(law(y) for law in laws), strict=True))
    joint = np.log(weights) + logs
    total = np.logaddexp.reduce(joint)
    r = np.exp(joint - total)
    return total, r, r @ means, np.maximum(r @ (variances + means**2) - (r @ means) ** 2, 0.0)


def components(laws: list[Law]) -> Any:
    return lambda y: mixed(WEIGHT, laws, y)


def of_paths(y: np.ndarray) -> Any:
    """A hidden Markov model as a mixture over all of its paths; the probabilities of the second state at each time."""
    paths = np.array(list(np.ndindex(*(2,) * 4)))
    weights = [WEIGHT[p[0]] * np.prod([TABLE[a, b] for a, b in itertools.pairwise(p)]) for p in paths]
    total, r, mean, variance = mixed(weights, [normal(MEANS[p, 0], np.diag(1 / TAUS[p, 0])) for p in paths], y)
    return total, r @ paths, mean, variance


def of_quadrature(y: np.ndarray) -> Any:
    """Logistic principal components by quadrature over the two factors."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    z = np.array([(a, b) for a in nodes for b in nodes])
    w = np.array([a * b for a in weights for b in weights]) / (2 * np.pi)
    total, r, mean, variance = mixed(w, [bits(p) for p in 1 / (1 + np.exp(-(z @ LOADINGS.T + OFFSET)))], y)
    return total, r @ z, mean, variance


def of_level(y: np.ndarray) -> Any:
    """A local level of precisions 2 and 3 in its information form, since its start has a deviation of a million."""
    seen, D = ~np.isnan(y), np.diff(np.eye(4), axis=0)
    prior = 2.0 * D.T @ D + np.diag([1e-12, 0.0, 0.0, 0.0])
    after, b = prior + np.diag(3.0 * seen), 3.0 * np.where(seen, y, 0.0)
    mean, variance = np.linalg.solve(after, b), np.diag(np.linalg.inv(after))
    logdets = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(after)[1] + seen.sum() * np.log(3.0 / (2 * np.pi))
    total = (logdets - np.nansum(3.0 * y**2) + b @ mean) / 2
    return total, (mean, variance), np.where(seen, y, mean), np.where(seen, 0.0, variance + 1 / 3.0)


def of_factors(y: np.ndarray) -> Any:
    W = LOADINGS
    joint = np.block([[np.eye(2), W.T], [W, W @ W.T + np.diag(1 / TAUS[0])]])
    total, _, mean, variance = mixed([1.0], [normal(np.zeros(5), joint)], np.r_[NAN, NAN, y])
    return total, (mean[:2], variance[:2]), mean[2:], variance[2:]


PART = {"mean": MEANS, "precision": TAUS}
CASES: dict[str, Any] = {
    "mixture": (
        models.GaussianMixture(2, 3),
        {"weight": WEIGHT, "part": {"mean": MEANS, "precision": np.stack([SPD, 2 * SPD])}},
        HOLES,
        components([normal(m, np.linalg.inv(S)) for m, S in zip(MEANS, (SPD, 2 * SPD), strict=True)]),
        "z",
    ),
    "mixture, tied": (
        models.GaussianMixture(2, 3, 1.0, "tied", "sticks"),
        {"break": BREAK, "mean": MEANS, "precision": SPD},
        HOLES,
        components([normal(m, np.linalg.inv(SPD)) for m in MEANS]),
        "z",
    ),
    "mixture, diagonal": (
        models.GaussianMixture(2, 3, covariance="diagonal"),
        {"weight": WEIGHT, "part": PART},
        HOLES,
        components([normal(m, np.diag(1 / t)) for m, t in zip(MEANS, TAUS, strict=True)]),
        "z",
    ),
    "bits": (
        models.BernoulliMixture(2, 3),
        {"weight": WEIGHT, "chance": CHANCES},
        BITS,
        components([bits(p) for p in CHANCES]),
        "z",
    ),
    "circuit": (
        models.SumProduct(2, 3),
        {"weight0": SUMS, "weight1": ROOT, "chance": LEAVES},
        BITS,
        lambda y: mixed(
            (ROOT[0, 0][:, None] * SUMS[0]).ravel(),
            [bits(np.r_[LEAVES[0, j], LEAVES[1, j], LEAVES[2, k]]) for k in range(2) for j in range(2)],
            y,
        ),
        None,
    ),
    "factors": (
        models.FactorAnalysis(2, 3),
        {"relevance": np.ones(2), "W": LOADINGS, "noise": TAUS[0]},
        HOLES,
        of_factors,
        "z",
    ),
    "logistic components": (
        models.ExponentialPCA(2, 3),
        {"relevance": np.ones(2), "offset": OFFSET, "W": LOADINGS},
        BITS,
        of_quadrature,
        "z",
    ),
    "hidden Markov": (
        models.HiddenMarkov(2, 4),
        {"start": WEIGHT, "step": TABLE, "part": {"mean": MEANS[:, 0], "precision": TAUS[:, 0]}},
        SERIES,
        of_paths,
        "z",
    ),
    "level": (models.StateSpace(4), {"step": 2.0, "noise": 3.0}, SERIES, of_level, "x"),
}
# Rows of the first are known by a bound, and of a level a million wide seven digits are lost to rounding.
LOOSE = {"logistic components": 0.08, "level": 5e-4}


@pytest.mark.stress
@for_each("name", CASES)
def test_rows_with_holes_are_those_of_their_law(name: str) -> None:
    graph, theta, y, law, latent = CASES[name]
    posterior, tolerance = at(graph, theta), LOOSE.get(name, 1e-6)
    total, own, mean, variance = zip(*(law(row) for row in y), strict=True)
    predicted = posterior.predict({"y": y})
    np.testing.assert_allclose(predicted.mean, mean, atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(predicted.std, np.sqrt(variance), atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(posterior.log_prob({"y": y}), total, atol=2 * tolerance)
    if latent is None:
        return
    belief, own = posterior.local({"y": y})[latent], [part if isinstance(part, tuple) else (part,) for part in own]
    found = np.asarray(belief.mean)[..., 1] if name == "hidden Markov" else np.asarray(belief.mean).reshape(len(y), -1)
    np.testing.assert_allclose(found, [part[0] for part in own], atol=max(tolerance, 1e-5))
    if len(own[0]) > 1:
        np.testing.assert_allclose(
            np.reshape(belief.std, found.shape), np.sqrt([part[1] for part in own]), rtol=max(tolerance, 1e-5)
        )


def test_categories_that_are_missing_have_their_probabilities() -> None:
    tables = RANDOM.dirichlet(np.ones(3), 2), RANDOM.dirichlet(np.ones(2), 2)
    theta = {"weight": WEIGHT, "table0": tables[0], "table1": tables[1]}
    rows = {"y0": np.array([2.0, NAN, NAN]), "y1": np.array([NAN, 1.0, NAN])}
    predicted = at(models.LatentClass(2, (3, 2)), theta).predict(rows)
    given = WEIGHT * tables[0][:, 2], WEIGHT * tables[1][:, 1], WEIGHT
    np.testing.assert_allclose(predicted.mean["y1"][0], given[0] @ tables[1] / given[0].sum(), rtol=1e-6)
    np.testing.assert_allclose(predicted.mean["y0"][1:], [g @ tables[0] / g.sum() for g in given[1:]], rtol=1e-6)
    drawn = lamu.latent.impute(at(models.LatentClass(2, (3, 2)), theta), rows, jax.random.key(0), draws=400)
    assert np.all(drawn["y0"][:, 0] == 2)
    shares = np.mean(np.asarray(drawn["y0"])[:, 1:, None] == np.arange(3), axis=0)
    np.testing.assert_allclose(shares, predicted.mean["y0"][1:], atol=0.1)


def test_a_column_that_is_missing_in_all_rows_is_a_batch() -> None:
    """A slice without labels is asked and classified like one that leaves them out, and not learned from alone."""
    bayes = models.NaiveBayes(2, 3)
    posterior = at(bayes, {"weight": WEIGHT, "part": PART})
    y = np.where(np.isnan(HOLES), 0.2, HOLES)
    law = components([normal(m, np.diag(1 / t)) for m, t in zip(MEANS, TAUS, strict=True)])
    expected = [law(row)[1] for row in y]
    for rows in ({"x": y}, {"x": y, "c": np.full(3, NAN)}, {"x": y, "c": np.full(3, -1)}):
        np.testing.assert_allclose(posterior.local(rows)["c"].mean, expected, rtol=1e-6)
        np.testing.assert_allclose(posterior.log_prob(rows), [law(row)[0] for row in y], rtol=1e-6)
    np.testing.assert_allclose(posterior.predict({"x": y, "c": np.full(3, NAN)}).mean["c"], expected, rtol=1e-6)
    assert bayes.read({"x": y, "c": np.full(3, NAN)}).count == 3
    with pytest.raises(ValueError, match="c and x are NaN in every row, so that the data observe nothing"):
        bayes.read({"x": np.full((3, 3), NAN), "c": np.full(3, NAN)})


ON_INPUTS: dict[str, Any] = {
    "regression": (
        models.LinearRegression(2),
        {"relevance": np.ones(2), "w": np.array([1.0, -2.0]), "noise": 3.0},
        {"x": X},
        X @ [1.0, -2.0],
    ),
    "hierarchical": (
        models.HierarchicalRegression(3, 2),
        {"w": np.zeros(2), "spread": np.ones(2), "coefficients": OWN + np.array([1.0, -2.0]), "noise": 3.0},
        {"x": X, "group": np.array([2, 0, 1])},
        X @ [1.0, -2.0] + np.sum(X * OWN[[2, 0, 1]], axis=1),
    ),
    "matrix": (
        models.MatrixFactorisation(3, 2, 2),
        {"noise": 3.0, "u": U, "v": V},
        {"row": np.array([2, 0, 1]), "column": np.array([1, 1, 0])},
        np.sum(U[[2, 0, 1]] * V[[1, 1, 0]], axis=1),
    ),
}


@pytest.mark.stress
@for_each("name", ON_INPUTS)
def test_new_inputs_are_enough_to_ask(name: str) -> None:
    graph, theta, inputs, mean = ON_INPUTS[name]
    posterior = at(graph, theta)
    for rows in (inputs, {**inputs, "y": np.full(3, NAN)}):
        predicted = posterior.predict(rows)
        np.testing.assert_allclose(predicted.mean, mean, rtol=1e-6)
        np.testing.assert_allclose(predicted.std, np.full(3, 3.0**-0.5), rtol=1e-6)
        assert posterior.local(rows) == {}
        assert np.all(posterior.log_prob(rows) == 0.0)
    np.testing.assert_allclose(predicted.interval(0.8), stats.norm(mean, 3.0**-0.5).interval(0.8), rtol=1e-4)
    np.testing.assert_allclose(
        predicted.log_prob(mean + 0.5), stats.norm(0, 3.0**-0.5).logpdf(np.full(3, 0.5)), rtol=1e-6
    )
    drawn = lamu.latent.impute(posterior, inputs, jax.random.key(0), draws=400)["y"]
    np.testing.assert_allclose(np.mean(drawn, axis=0), mean, atol=5 * 3.0**-0.5 / 20)
    held = posterior.predict({**inputs, "y": np.array([9.0, NAN, NAN])})
    np.testing.assert_allclose(held.mean, [9.0, *mean[1:]], rtol=1e-6)
    np.testing.assert_allclose(held.std[0], 0.0)
    with pytest.raises(TypeError, match="give the inputs of the new rows by name, predict"):
        posterior.predict(2)


def learned(program: Any, data: Any, **fit: Any) -> Posterior:
    return lamu.fit(lamu.Graph(program), data, lamu.algorithms.vmp(), **fit).posterior


@pytest.mark.stress
def test_what_is_learned_widens_what_is_predicted() -> None:
    """Closed forms: a line, Student's t, negative binomial counts, beta-binomial bits, and shares of few rows."""
    y, counts = np.array([0.5, -1.0, 2.0, 0.3]), np.array([3, 1, 4, 0])

    def line(m) -> None:
        b = m.sample("b", MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
        with m.rows():
            m.sample("y", graphs.Normal(m.data("X") @ b, precision=10.0))

    A, new = np.c_[np.ones(4), [0.0, 1.0, -1.0, 2.0]], np.array([[1.0, 0.0], [1.0, 3.0]])
    C = np.linalg.inv(np.eye(2) + 10 * A.T @ A)
    predicted = learned(line, {"X": A, "y": y}).predict({"X": new})
    np.testing.assert_allclose(predicted.mean, new @ C @ A.T @ y * 10, rtol=1e-5)
    np.testing.assert_allclose(predicted.variance, np.sum(new @ C * new, axis=1) + 0.1, rtol=1e-5)

    def each(m) -> None:
        part = m.sample("part", NormalGamma(0.3, 2.0, 3.0, 4.0))
        rate, chance = m.sample("rate", Gamma(2.0, 1.0)), m.sample("chance", Beta(2.0, 3.0))
        share = m.sample("share", Dirichlet(jnp.array([1.0, 0.5, 2.0])))
        with m.rows():
            m.sample("y", graphs.Normal(part))
            m.sample("n", graphs.Poisson(rate))
            m.sample("b", graphs.Bernoulli(chance))
            m.sample("c", graphs.Categorical(share))

    posterior = learned(each, {"y": y, "n": counts, "b": counts > 1, "c": np.array([0, 2, 2, 1])})
    nothing = {name: np.array([NAN]) for name in "ynbc"}
    mean, variance = posterior.predict(nothing).mean, posterior.predict(nothing).variance
    prior = lamu.families.NormalGamma(0.3, 2.0, 3.0, 4.0)
    kappa, a = 6.0, 5.0
    m = (2 * 0.3 + y.sum()) / kappa
    b = 4.0 + (np.sum(y**2) + 2 * 0.3**2 - kappa * m**2) / 2
    assert float(prior.count) == 2.0
    t = stats.t(2 * a, m, np.sqrt(b / a * (1 + 1 / kappa)))
    np.testing.assert_allclose([mean["y"][0], variance["y"][0]], [t.mean(), t.var()], rtol=1e-5)
    counted = stats.nbinom(2.0 + counts.sum(), 5.0 / 6.0)
    np.testing.assert_allclose([mean["n"][0], variance["n"][0]], [counted.mean(), counted.var()], rtol=1e-5)
    chance = (2.0 + 2) / 9
    np.testing.assert_allclose([mean["b"][0], variance["b"][0]], [chance, chance * (1 - chance)], rtol=1e-5)
    np.testing.assert_allclose(mean["c"][0], np.array([2.0, 1.5, 4.0]) / 7.5, rtol=1e-5)
    low, high = posterior.predict(nothing, samples=2000).interval(0.8)
    np.testing.assert_allclose([low["y"][0], high["y"][0]], t.interval(0.8), atol=0.15)


def test_beliefs_tell_deviations_and_intervals() -> None:
    y = np.array([0.5, -1.0, 2.0, 0.3])

    def program(m) -> None:
        mean, tau = m.sample("mean", graphs.Normal(0.0, precision=2.0)), m.sample("tau", Gamma(3.0, 2.0))
        with m.rows():
            m.sample("y", graphs.Normal(mean, precision=tau))

    posterior = learned(program, {"y": y})
    beliefs = posterior.belief.factors["network"].factors
    law = stats.gamma(beliefs["tau"].shape, scale=1 / beliefs["tau"].rate)
    std, (low, high) = posterior.std["network"], posterior.interval(0.8)
    np.testing.assert_allclose(std["tau"], law.std(), rtol=1e-5)
    np.testing.assert_allclose([low["network"]["tau"], high["network"]["tau"]], law.interval(0.8), rtol=0.05)
    normal_law = stats.norm(posterior.mean["network"]["mean"], std["mean"])
    np.testing.assert_allclose([low["network"]["mean"], high["network"]["mean"]], normal_law.interval(0.8), rtol=1e-5)


@pytest.mark.stress
@for_each(
    "belief",
    [
        Beta(2.0, 3.0),
        Dirichlet(jnp.array([2.0, 3.0, 4.0])),
        Gamma(3.0, 2.0),
        lamu.families.InverseGamma(4.0, 3.0),
        lamu.families.Categorical(jnp.array([0.3, -1.0, 0.0])),
        lamu.families.Bernoulli(0.4),
        MultivariateNormal(jnp.zeros(3), jnp.asarray(SPD)),
        NormalGamma(0.3, 2.0, 5.0, 4.0),
        Wishart(9.0, jnp.asarray(SPD)),
        lamu.families.GaussianChain.homogeneous(3, jnp.zeros(1), jnp.eye(1), 0.5 * jnp.eye(1), jnp.eye(1)),
    ],
)
def test_deviations_are_those_of_draws(belief: Any) -> None:
    drawn = jax.vmap(belief.sample)(jax.random.split(jax.random.key(3), 20_000))
    for mine, draws in zip(jax.tree.leaves(belief.std), jax.tree.leaves(drawn), strict=True):
        np.testing.assert_allclose(mine, np.std(draws, axis=0), rtol=0.08)


@pytest.mark.stress
def test_vectors_with_holes_are_learned_from_exactly() -> None:
    """With a known precision the posterior of the mean is normal, and rows without any entry change nothing."""
    y = np.vstack([HOLES, RANDOM.normal(size=(3, 3))])

    def program(m) -> None:
        mean = m.sample("mean", MultivariateNormal(jnp.zeros(3), jnp.eye(3)))
        with m.rows():
            m.sample("y", graphs.MultivariateNormal(mean, jnp.asarray(SPD)))

    posterior = learned(program, {"y": y})
    C = np.linalg.inv(SPD)
    precision, linear, evidence_rows = np.eye(3), np.zeros(3), y[~np.isnan(y).all(axis=1)]
    for row in y:
        o = ~np.isnan(row)
        S = np.linalg.inv(C[np.ix_(o, o)]) if o.any() else np.zeros((0, 0))
        precision[np.ix_(o, o)] += S
        linear[o] += S @ row[o]
    belief = posterior.belief.factors["network"].factors["mean"]
    np.testing.assert_allclose(belief.precision, precision, rtol=1e-5)
    np.testing.assert_allclose(belief.mean, np.linalg.solve(precision, linear), rtol=1e-5)
    flat, seen = evidence_rows.ravel(), ~np.isnan(evidence_rows.ravel())
    joint = np.kron(np.eye(len(evidence_rows)), C) + np.tile(np.eye(3), (len(evidence_rows), len(evidence_rows)))
    expected = stats.multivariate_normal(np.zeros(seen.sum()), joint[np.ix_(seen, seen)]).logpdf(flat[seen])
    np.testing.assert_allclose(posterior.evidence, expected, rtol=1e-5)
    V = np.linalg.inv(precision)
    gain = C[:2, 2:] / C[2, 2]
    mean, variance = np.linalg.solve(precision, linear), C[:2, :2] - gain @ C[2:, :2]
    onto = np.c_[np.eye(2), -gain]
    predicted = posterior.predict({"y": y[1:2]}, samples=4000)
    np.testing.assert_allclose(predicted.mean[0, :2], mean[:2] + gain[:, 0] * (0.5 - mean[2]), rtol=1e-5)
    np.testing.assert_allclose(predicted.variance[0, :2], np.diag(variance + onto @ V @ onto.T), rtol=1e-5)
    drawn = np.asarray(predicted.sample(jax.random.key(0), 4000))[:, 0, :2]
    np.testing.assert_allclose(np.cov(drawn.T), variance + onto @ V @ onto.T, atol=0.06)
    law = stats.multivariate_normal(predicted.mean[0, :2], variance + onto @ V @ onto.T)
    asked = np.where(np.isnan(y[1:2]), 0.1, y[1:2])
    np.testing.assert_allclose(predicted.log_prob(asked)[0], law.logpdf([0.1, 0.1]), atol=0.02)


@pytest.mark.stress
def test_a_mixture_learns_from_rows_with_holes() -> None:
    """An EM step of a mixture of normal vectors with holes beside that of Ghahramani & Jordan by hand."""
    y = RANDOM.normal(size=(40, 3)) @ np.linalg.cholesky(SPD).T
    y[RANDOM.uniform(size=y.shape) < 0.3] = NAN
    y[0] = NAN

    def program(m) -> None:
        part = m.sample("part", NormalWishart(jnp.zeros(3), 1.0, 5.0, jnp.eye(3)))
        with m.rows():
            m.sample("y", graphs.MultivariateNormal(part))

    posterior = lamu.fit(lamu.Graph(program), {"y": y}, lamu.algorithms.em(), steps=300).posterior
    m, P = np.zeros(3), np.eye(3)
    for _ in range(300):
        first, second = np.zeros(3), np.zeros((3, 3))
        for row in y[1:]:
            h = np.isnan(row)
            filled, extra = np.where(h, 0.0, row), np.zeros((3, 3))
            if h.any():
                inner = np.linalg.inv(P[np.ix_(h, h)])
                filled[h] = m[h] - inner @ P[np.ix_(h, ~h)] @ (row[~h] - m[~h])
                extra[np.ix_(h, h)] = inner
            first += filled
            second += np.outer(filled, filled) + extra
        n = 39
        m = first / (n + 1.0)  # the mode of the normal-Wishart
        S = np.eye(3) + second - (n + 1.0) * np.outer(m, m)
        P = (5.0 + n + 1 - 3 - 1) * np.linalg.inv(S)
    found = posterior.mean["network"]["part"]
    np.testing.assert_allclose(found["mean"], m, atol=1e-3)
    np.testing.assert_allclose(found["precision"], P, rtol=5e-3)


@pytest.mark.stress
def test_a_level_starts_near_its_data_in_single_precision() -> None:
    """Draws of a diffuse start are about a thousand, and the squares of their steps have no digits left."""
    y = np.cumsum(RANDOM.normal(size=(3, 30)) * 0.5, axis=1) + RANDOM.normal(size=(3, 30))
    with jax.enable_x64(False):
        for seed in (1, 2):
            fit = lamu.fit(models.StateSpace(30), {"y": y}, lamu.algorithms.vmp(), steps=5, seed=seed)
            assert fit.history["loss"][0] < 1.5 * fit.history["loss"][-1]


def test_a_gaussian_belief_draws_what_is_missing() -> None:
    """Draws have the belief's deviation beside that of a row, and no key that draws θ draws anything else."""

    def program(m) -> None:
        w = m.sample("w", graphs.Normal(jnp.zeros(3), 1.0))
        with m.rows():
            m.sample("y", graphs.Normal(w, 1.0))

    fit = lamu.fit(lamu.Graph(program), {"y": RANDOM.normal(size=(5, 3))}, lamu.algorithms.ivon(0.1), steps=3)
    posterior, row = fit.posterior, np.array([[0.3, NAN, NAN]])
    mean, std = (np.asarray(part["network"]["w"]) for part in (posterior.mean, posterior.std))
    drawn = posterior.predict({"y": row}, samples=4000).sample(jax.random.key(0), 4000)[:, 0]
    # The standard errors of a mean and a deviation over two times 4,000 draws are at most 2.3 % and 1.6 % of the
    # deviation: six of these, passed in one of 10⁸ runs.
    wide = np.sqrt(1.0 + std**2)
    np.testing.assert_allclose(drawn[:, 0], 0.3, rtol=1e-6)
    np.testing.assert_allclose((drawn.mean(0) - mean)[1:] / wide[1:], 0.0, atol=0.14)
    np.testing.assert_allclose((drawn.std(0) / wide)[1:], 1.0, atol=0.1)


def test_quantiles_are_searched_at_the_missing_entries_alone() -> None:
    """Each search is dozens of passes over all draws of an entry."""
    rng = np.random.default_rng(0)
    f, observed = jnp.asarray(rng.normal(size=(8, 5, 3, 1))), rng.random((5, 3)) < 0.6
    scales = {"log_scale": jnp.asarray(rng.normal(size=(8, 5, 3, 1)) / 4)}
    part = DrawnVariable(jnp.asarray(rng.normal(size=(5, 3))), jnp.asarray(observed), Gaussian(), f, scales)
    assert part._missing is not None
    assert part._missing.f.shape == (8, (~observed).sum(), 1, 1)
    for ours, theirs in zip(part.interval(0.8), Predictive.interval(part, 0.8), strict=True):
        np.testing.assert_allclose(ours, np.where(observed, part.value, theirs), atol=1e-5)
    np.testing.assert_allclose(part.quantile(0.3), Predictive.quantile(part, 0.3), atol=1e-5)


def test_a_number_that_an_input_shapes_is_drawn() -> None:
    """One coefficient times a column: nothing but the inputs says that y is one number a row."""

    def program(m: Any) -> None:
        slope = m.sample("slope", graphs.Normal(0.0, 1.0))
        level = m.sample("level", graphs.Normal(0.0, 1.0), plate=2)
        with m.rows():
            m.sample("y", graphs.Normal(level[m.data("group")] + m.data("x") * slope, m.data("tau")))

    posterior = at(lamu.Graph(program), {"slope": 2.0, "level": np.array([0.0, 10.0])})
    new = {"x": np.array([1.0, -1.0]), "group": np.array([0, 1]), "tau": np.array([1.0, 4.0])}
    pred, mean, std = posterior.predict(new, samples=1), np.array([2.0, 8.0]), np.array([1.0, 0.5])
    np.testing.assert_allclose(pred.interval(0.9), mean + std * np.array([[-1], [1]]) * stats.norm.ppf(0.95), rtol=1e-4)
    np.testing.assert_allclose(pred.log_prob(mean), stats.norm.logpdf(0.0, 0.0, std), rtol=1e-5)
    # The standard error of a mean of 2,000 draws is 2.2 % of the deviation.
    np.testing.assert_allclose((np.asarray(pred.sample(jax.random.key(0), 2000)).mean(0) - mean) / std, 0.0, atol=0.14)


def test_a_latent_that_an_input_shapes_is_summed_out() -> None:
    """A number measured with an error that is known of every row."""

    def program(m: Any) -> None:
        with m.rows():
            t = m.sample("t", graphs.Normal(m.data("mean"), 1.0))
            m.sample("measured", graphs.Normal(t, m.data("precision")))

    posterior = at(lamu.Graph(program), {})
    mean, precision, measured = np.array([0.0, 3.0]), np.array([1.0, 9.0]), np.array([2.0, 1.0])
    rows = {"mean": mean, "precision": precision, "measured": measured}
    told = posterior.local(rows)["t"]
    np.testing.assert_allclose(told.mean, (mean + precision * measured) / (1 + precision), rtol=1e-5)
    law = stats.norm(mean, np.sqrt(1 + 1 / precision))
    np.testing.assert_allclose(posterior.log_prob(rows), law.logpdf(measured), rtol=1e-5)
    pred = posterior.predict({"mean": mean, "precision": precision}, samples=1)
    np.testing.assert_allclose(pred.std, law.std(), rtol=1e-5)


def test_a_covariance_without_a_mean_makes_deviations_infinite_where_it_counts() -> None:
    """Up to d + 1 degrees of freedom a Wishart's inverse has no mean; it was NaN, also of rows of another class."""

    def program(m: Any) -> None:
        part = m.sample("part", NormalWishart(jnp.zeros(2), 1.0, 2.0, jnp.eye(2)), plate=2)
        with m.rows():
            c = m.sample("c", graphs.Categorical(jnp.array([0.5, 0.5])))
            m.sample("y", graphs.MultivariateNormal(part[c]))

    y = np.random.default_rng(0).normal(size=(10, 2))
    posterior = lamu.fit(lamu.Graph(program), {"y": y, "c": np.zeros(10, int)}, lamu.algorithms.vmp()).posterior
    rows = {"y": np.array([[NAN, NAN], [0.5, NAN], [NAN, NAN], [0.5, NAN]]), "c": np.array([0, 0, 1, 1])}
    std = np.asarray(posterior.predict(rows).std["y"])
    scatter = np.eye(2) + y.T @ y - 100 / 11 * np.outer(y.mean(0), y.mean(0))
    law = scatter / (12 - 2 - 1) * (1 + 1 / 11)
    np.testing.assert_allclose(std[0] ** 2, np.diag(law), rtol=1e-4)
    assert np.isfinite(std[1]).all()
    np.testing.assert_array_equal(std[2:], [[np.inf, np.inf], [0.0, np.inf]])
    assert np.isfinite(posterior.predict({"y": y[:1] * [1, NAN]}).mean).all()


def test_a_component_with_a_share_of_nearly_nothing_makes_no_deviation_infinite() -> None:
    """An empty one has 1e-3 of the rows' number, in both precisions: 2.5e-5 here; 1e-2 is something."""

    def mixture(share: float) -> Any:
        def program(m: Any) -> None:
            part = m.sample("part", NormalWishart(jnp.zeros(2), 1.0, 2.0, jnp.eye(2)), plate=2)
            with m.rows():
                z = m.sample("z", graphs.Categorical(jnp.array([1.0 - share, share])))
                m.sample("y", graphs.MultivariateNormal(part[z]))

        return lamu.Graph(program)

    y = np.random.default_rng(0).normal(size=(40, 2))
    for share, finite in ((2.5e-5, True), (1e-2, False)):
        posterior = lamu.fit(mixture(share), {"y": y}, lamu.algorithms.vmp(), steps=5).posterior
        std = np.asarray(posterior.predict({"y": np.array([[NAN, NAN], [0.5, NAN]])}).std)
        assert np.isfinite(std).all() == finite


GROUP = np.array([0, 0, 3, 1])


def grouped(m: Any) -> None:
    mu, tau = m.sample("mu", graphs.Normal(1.0, precision=0.25)), m.sample("tau", Gamma(3.0, 2.0))
    a = m.sample("a", graphs.Normal(mu, precision=tau), plate=4)
    weight = m.sample("weight", Dirichlet(jnp.array([1.0, 2.0, 5.0])))
    part = m.sample("part", NormalGamma(jnp.array([0.0, 3.0, -3.0]), jnp.ones(3), jnp.full(3, 2.0), jnp.ones(3)))
    with m.rows():
        z = m.sample("z", graphs.Categorical(weight))
        level = m.sample("level", graphs.Normal(a[m.data("group")], precision=4.0))
        m.sample("y", graphs.Normal(part[z]))
        m.sample("count", lamu.likelihoods.Poisson()(level))


def wide(m: Any) -> None:
    tau = m.sample("tau", Gamma(1.0, 1e38))
    s = m.sample("s", graphs.Normal(0.0, precision=tau))
    with m.rows():
        m.sample("y", graphs.Normal(s * m.data("x"), precision=1.0))


def slopes(m: Any) -> None:
    w = m.sample("w", MultivariateNormal(jnp.zeros(3), jnp.eye(3)))
    with m.rows():
        m.sample("y", graphs.Normal(m.data("x") @ w, precision=1.0))


def of_numpyro(group: Any) -> None:
    sample, plate = numpyro.sample, numpyro.plate
    mu, tau = sample("mu", dist.Normal(1.0, 2.0)), sample("tau", dist.Gamma(3.0, 2.0))
    with plate("groups", 4):
        a = sample("a", dist.Normal(mu, tau**-0.5))
    weight = sample("weight", dist.Dirichlet(jnp.array([1.0, 2.0, 5.0])))
    with plate("parts", 3):
        precision = sample("precision", dist.Gamma(2.0, 1.0))
        mean = sample("mean", dist.Normal(jnp.array([0.0, 3.0, -3.0]), precision**-0.5))
    with plate("rows", len(group)):
        z = sample("z", dist.Categorical(weight))
        level = sample("level", dist.Normal(a[group], 0.5))
        sample("y", dist.Normal(mean[z], precision[z] ** -0.5))
        sample("count", dist.Poisson(jnp.exp(level)))


@pytest.mark.stress
def test_the_prior_predictive_has_the_law_of_numpyro() -> None:
    draws = lamu.Graph(grouped).prior_predictive(jax.random.key(0), 3000, {"group": GROUP})
    with lenient():
        other = numpyro.infer.Predictive(of_numpyro, num_samples=3000)(jax.random.key(1), jnp.asarray(GROUP))
    other["part"] = {"mean": other.pop("mean"), "precision": other.pop("precision")}
    assert jax.tree.map(jnp.shape, draws) == jax.tree.map(jnp.shape, other)
    for name, part in draws.items():
        for own, theirs in zip(jax.tree.leaves(part), jax.tree.leaves(other[name]), strict=True):
            own, theirs = np.asarray(own).reshape(3000, -1), np.asarray(theirs).reshape(3000, -1)
            least = min(stats.ks_2samp(own[:, i], theirs[:, i]).pvalue for i in range(own.shape[1]))
            assert least > 1e-3, name
    # Rows of one draw share its variables, those of a group one more.
    spread = lambda part: np.corrcoef(np.asarray(part["level"]).T)[0]
    np.testing.assert_allclose(spread(draws), spread(other), atol=0.05)


def test_draws_of_the_prior_are_drawn_from_their_posteriors() -> None:
    """Simulation-based calibration: the rate's place in its posterior, in closed form here, is uniform."""

    def program(m: Any) -> None:
        rate = m.sample("rate", Gamma(2.0, 3.0))
        with m.rows():
            m.sample("y", graphs.Poisson(rate * m.data("exposure")))

    exposure = np.array([0.5, 1.0, 4.0])
    draws = lamu.Graph(program).prior_predictive(jax.random.key(2), 2000, {"exposure": exposure})
    total = np.asarray(draws["y"]).sum(axis=1)
    place = stats.gamma.cdf(np.asarray(draws["rate"]), 2.0 + total, scale=1 / (3.0 + exposure.sum()))
    assert stats.kstest(place, "uniform").pvalue > 0.01


@pytest.mark.stress
def test_the_prior_predictive_draws_networks_and_dispersions_in_the_shape_of_targets() -> None:
    def program(m: Any) -> None:
        f = m.network("f", lamu.networks.Linear(), outputs=1)
        with m.rows():
            m.sample("y", Gaussian()(f(m.data("x"))))

    graph, x = lamu.Graph(program, prior=lamu.priors.Normal(2.0)), np.array([[1.0, 0.0], [0.0, 3.0]])
    y = np.asarray(graph.prior_predictive(jax.random.key(0), 4000, {"x": x})["y"]).reshape(4000, 2)
    model = lamu.Model(lamu.networks.Linear(), Gaussian(), lamu.priors.Normal(2.0))
    other = np.asarray(model.prior_predictive(jax.random.key(1), 4000, x))
    assert min(stats.ks_2samp(y[:, i], other[:, i]).pvalue for i in range(2)) > 1e-3
    np.testing.assert_allclose(*(np.corrcoef(np.sign(part).T)[0, 1] for part in (y, other)), atol=0.05)


@for_each(
    "program, n, x, error, said",
    [
        (grouped, 0, {"group": GROUP}, ValueError, "n=0 is not possible"),
        (grouped, 3, 5, ValueError, "a row has the input 'group'; give it by name"),
        (grouped, 3, {"group": np.array([4])}, ValueError, "group is 4 in row 0, and a has 4 members"),
        (slopes, 3, {"x": np.ones((4, 2))}, ValueError, "@ meets 2 and 3 numbers, of w; give both sides"),
        (models.Topics(2, 5), 3, 5, TypeError, "how many words a document has is no part of the model"),
        (wide, 9, {"x": np.array([1e300])}, ValueError, r"draws of 'y' are not finite .* \(s\), a prior that"),
    ],
)
def test_what_the_prior_does_not_draw_is_said(program: Any, n: int, x: Any, error: Any, said: str) -> None:
    graph = program if isinstance(program, lamu.Graph) else lamu.Graph(program)
    with pytest.raises(error, match=said):
        graph.prior_predictive(jax.random.key(0), n, x)


def test_variables_of_a_row_have_noise_of_their_own() -> None:
    """Two missing variables given the same draw of their row's latents are independent: they had one noise."""
    f, scales = jnp.zeros((3, 2000, 1, 1)), {"log_scale": jnp.zeros((3, 2000, 1, 1))}
    nothing = jnp.zeros(2000)
    part = DrawnVariable(nothing, nothing > 0, Gaussian(), f, scales)
    drawn = drawn_rows({"a": part, "b": part}).sample(jax.random.key(0), 2)
    correlation = np.corrcoef(np.ravel(drawn["a"]), np.ravel(drawn["b"]))[0, 1]
    np.testing.assert_allclose(correlation, 0.0, atol=6 / np.sqrt(4000))  # six standard errors


@record
class Failures(Factor):
    """Failures before `successes`, a known number as a field, without the constant."""

    probability: Expression
    successes: float = static(default=3.0)

    kind = Observed
    fills = True
    support = Counts()

    def log_density(self, x: Any, at: Any, observed: Any = None) -> Any:
        p = self.probability.of_kind(Chance, at)
        return summed(self.successes * p.log + jnp.asarray(x.value, p.log.dtype) * p.log_complement, observed)


@record
class Predicting(Failures):
    """The same with mean and variance."""

    def predicted(self, at: Any) -> Any:
        p = self.probability.of_kind(Chance, at)
        odds = jnp.exp(p.log_complement - p.log)
        return self.successes * odds, self.successes * odds * (1 + odds)


def test_an_own_factor_has_known_numbers_and_says_what_predictions_need() -> None:
    """They were "'float' object has no attribute 'shape'" and "Failures has no missing entries to predict"."""
    posteriors = []
    for factor in (Failures, Predicting):

        def model(m: Any, factor: Any = factor) -> None:
            chance = m.sample("chance", Beta(1.0, 1.0))
            with m.rows():
                m.sample("y", factor(argument(chance, Chance, "a probability")))

        posteriors.append(
            lamu.fit(lamu.Graph(model), {"y": np.array([1.0, 2.0, NAN])}, lamu.algorithms.vmp()).posterior
        )
    np.testing.assert_allclose(posteriors[0].mean["network"]["chance"], 7 / 11, rtol=1e-5)  # Beta(1 + 6, 1 + 3)
    with pytest.raises(TypeError, match=r"Failures fills missing entries .* define its method predicted, or"):
        posteriors[0].predict({"y": np.array([NAN])})
    np.testing.assert_allclose(posteriors[1].predict({"y": np.array([NAN])}).mean, [12 / 7], rtol=1e-5)
