"""Sites add up and can be taken away; the influence of a row is that of the refit without it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import spearmanr

import lamu
from lamu import graphs, plots
from lamu.algorithms import conjugate, laplace, vmp
from lamu.families import Dirichlet, Gamma, NormalGamma, NormalWishart, Product
from lamu.observations import Normal, Poisson
from lamu.priors import Belief

rng = np.random.default_rng(7)
X = rng.normal(size=(30, 3))
Y = X @ np.array([1.0, -2.0, 0.5]) + 0.4 * rng.normal(size=30)
LINEAR = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.4), lamu.priors.Normal(1.3))
NUMBERS = lamu.ConjugateModel(Normal(), NormalGamma(0.3, 0.8, 1.7, 1.2))


def level(m: graphs.Program) -> None:
    theta = m.sample("theta", NormalGamma(0.3, 0.8, 1.7, 1.2))
    with m.rows():
        m.sample("y", graphs.Normal(theta))


GRAPH = lamu.Graph(level)
CASES = {
    "regression": (LINEAR, lambda rows: (X[rows], Y[rows])),
    "numbers": (NUMBERS, lambda rows: {"y": Y[rows]}),
    "graph": (GRAPH, lambda rows: {"y": Y[rows]}),
}


def fitted(case: str, rows: np.ndarray, **options: float) -> lamu.Posterior:
    model, data = CASES[case]
    algorithm = vmp() if case == "graph" else conjugate()
    length = {"steps": 1} if case == "graph" else {"batch_size": len(rows)}
    return lamu.fit(model, data(rows), algorithm, **length, **options).posterior


def alike(one: lamu.Posterior, other: lamu.Posterior, tolerance: float = 1e-9) -> None:
    for a, b in zip(jax.tree.leaves(one.belief), jax.tree.leaves(other.belief), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_sites_add_up_to_the_posterior(case: str, temperature: float) -> None:
    """A shard's site added is the fit of both; some rows' site is their share of all; removed, the fit without them."""
    first, second = np.arange(18), np.arange(18, 30)
    whole, one, other = (fitted(case, rows, temperature=temperature) for rows in (np.arange(30), first, second))
    alike(lamu.add(one, lamu.site(other)), whole)
    rows = lamu.site(whole, CASES[case][1](second))
    assert rows.count == 12
    for a, b in zip(jax.tree.leaves(rows.values), jax.tree.leaves(lamu.site(other).values), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)
    alike(lamu.remove(whole, rows), one)
    alike(lamu.remove(whole, CASES[case][1](second)), one)


def test_shards_of_a_graph_are_merged_and_its_prior_exchanged() -> None:
    """Equal to one fit of all rows, at T = 0.5 too, under either prior; a posterior is the prior of the next rows."""
    first, second = np.arange(18), np.arange(18, 30)
    for temperature in (1.0, 0.5):
        whole, *shards = (fitted("graph", rows, temperature=temperature) for rows in (np.arange(30), first, second))
        alike(lamu.merge(shards), whole)
        following = GRAPH.with_prior(shards[0])
        options = {"steps": 1, "temperature": temperature}
        alike(lamu.fit(following, {"y": Y[second]}, vmp(), **options).posterior, whole)
    other = Product({"theta": NormalGamma(-1.0, 2.0, 3.0, 0.5)})
    exchanged = lamu.merge([whole], prior=Belief(other))
    alike(exchanged, lamu.fit(GRAPH.under_prior(Belief(other)), {"y": Y}, vmp(), **options).posterior)
    alike(lamu.merge([exchanged], prior=GRAPH.prior), whole)


@pytest.mark.stress
def test_a_rows_site_in_a_mixture_is_its_share() -> None:
    """At the fixed point what rows with latents added is the sum of their sites; their components have no order."""

    def mixture(m: graphs.Program) -> None:
        weight = m.sample("weight", Dirichlet(jnp.ones(2)))
        part = m.sample("part", NormalWishart(jnp.zeros(1), 1.0, 2.0, jnp.eye(1)), plate=2)
        with m.rows():
            m.sample("y", graphs.MultivariateNormal(part[m.sample("z", graphs.Categorical(weight))]))

    y = np.sign(Y)[:, None] * 2 + 0.3 * X[:, :1]
    posterior = lamu.fit(lamu.Graph(mixture), {"y": y}, vmp(tolerance=0.0), steps=60).posterior
    added, rows = lamu.site(posterior), lamu.site(posterior, {"y": y})
    for a, b in zip(jax.tree.leaves(added.values), jax.tree.leaves(rows.values), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match=r"an order of its own; fit the parts one after"):
        lamu.merge([posterior, posterior])
    scaled = lamu.graphs.models.FactorAnalysis(1, 2)
    with pytest.raises(TypeError, match="prior of 'W' depends on relevance"):
        lamu.site(lamu.fit(scaled, {"y": X[:, :2]}, vmp(), steps=1).posterior)


def test_a_site_of_another_structure_is_refused() -> None:
    with pytest.raises(TypeError, match="another structure than the NormalGamma belief"):
        lamu.add(fitted("numbers", np.arange(9)), lamu.site(fitted("regression", np.arange(9))))


@pytest.mark.parametrize("case", CASES)
def test_influence_is_exact_where_the_model_is_conjugate(case: str) -> None:
    """Of weighted rows too: divergence, and the move of the outputs, beside a refit without the row."""
    posterior = fitted(case, np.arange(30))
    model, data = CASES[case]
    found = lamu.sensitivity(posterior, data(np.arange(30)))
    assert isinstance(found, lamu.Sensitivity)
    q = posterior.belief.factors["network"]
    for i in (0, 11, 29):
        refit = fitted(case, np.delete(np.arange(30), i)).belief.factors["network"]
        np.testing.assert_allclose(found.belief[i], refit.kl(q), rtol=1e-6)
        if case == "regression":
            f = lambda belief, i=i: model.outputs(
                {"network": belief.mean, "likelihood": {}}, {}, jnp.asarray(X[i : i + 1])
            )
            np.testing.assert_allclose(found.prediction[i], (f(refit)[0] - f(q)[0])[0], rtol=1e-6)
    if case == "regression":
        assert 3.9 < found.leverage.sum() < 4.0, "four weights, and a weak prior"
        pred = LINEAR.outputs({"network": q.mean, "likelihood": {}}, {}, jnp.asarray(X))[0][:, 0]
        np.testing.assert_allclose(found.residual, np.abs(Y - pred) / 0.4, rtol=1e-6)


@pytest.mark.parametrize(
    ("table", "likelihood", "law"),
    [
        ("breast_cancer", lamu.likelihoods.Bernoulli(), lambda f: (expit(f), expit(f) * expit(-f))),
        ("diabetes", lamu.likelihoods.Poisson(), lambda f: (np.exp(f), np.exp(f))),
    ],
    ids=["logistic", "Poisson"],
)
def test_influence_in_generalised_linear_models_follows_refits_by_hand(table, likelihood, law) -> None:
    """Rank correlation with Newton's refits in NumPy, of 60 rows: 0.9 and more, and the sign of every large move."""
    x, y = lamu.data.load(table)
    x, y = ((x - x.mean(0)) / x.std(0))[:120, :6], np.asarray(y[:120], float)
    y = y if table == "breast_cancer" else y // 25
    model = lamu.Model(lamu.networks.Linear(), likelihood, lamu.priors.Normal(1.0))
    posterior = lamu.fit(model, (x, y), laplace(), epochs=30).posterior
    found = lamu.sensitivity(posterior, (x, y))
    design = np.column_stack([np.ones(len(x)), x])

    def mode(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        w = np.zeros(design.shape[1])
        for _ in range(50):
            mean, curvature = law(design @ w)
            S = (design.T * (weight * curvature)) @ design + np.eye(len(w))
            w = w + np.linalg.solve(S, design.T @ (weight * (y - mean)) - w)
        return w, S

    m, S = mode(np.ones(len(y)))
    belief, moved = [], []
    for i in range(60):
        w, P = mode(np.where(np.arange(len(y)) == i, 0.0, 1.0))
        away = w - m
        both = np.trace(S @ np.linalg.inv(P)) - len(w) + np.linalg.slogdet(P)[1] - np.linalg.slogdet(S)[1]
        belief.append((both + away @ S @ away) / 2)
        moved.append(design[i] @ away)
    assert spearmanr(found.belief[:60], belief).statistic > 0.9
    assert spearmanr(np.abs(found.prediction[:60, 0]), np.abs(moved)).statistic > 0.9
    large = np.abs(moved) > np.quantile(np.abs(moved), 0.5)
    assert np.all(np.sign(found.prediction[:60, 0])[large] == np.sign(moved)[large])


def test_rows_that_were_not_fitted_have_no_influence() -> None:
    with pytest.raises(ValueError, match="row 0 weighs more than the belief"):
        lamu.sensitivity(fitted("regression", np.arange(5)), (100.0 * X, Y))
    counts = lamu.ConjugateModel(Poisson(), Gamma(2.0, 1.0))
    posterior = lamu.fit(counts, {"y": [1, 2]}, conjugate()).posterior
    with pytest.raises(ValueError, match="row 1 weighs more"):
        lamu.sensitivity(posterior, {"y": [1, 50]})


def test_the_picture_names_the_most_influential_rows() -> None:
    found = lamu.sensitivity(fitted("regression", np.arange(30)), (X, Y))
    left, right = plots.influence(found, rows=4)
    assert [label.get_text() for label in right.get_yticklabels()] == [f"row {i}" for i in found.order[:4]]
    np.testing.assert_allclose([bar.get_width() for bar in right.patches], found.belief[found.order[:4]])
    points = np.asarray(left.collections[0].get_offsets())
    np.testing.assert_allclose(points, np.column_stack([found.leverage, found.residual]))
    numbers = lamu.sensitivity(fitted("numbers", np.arange(9)), {"y": Y[:9]})
    assert len(plots.influence(numbers, names=list("abcdefghi"), rows=2)) == 1
