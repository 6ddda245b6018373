"""The faces of graphs in scikit-learn's manner: its own checks, its own answers, and what is missing."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import jax
import numpy as np
import pandas as pd
import polars
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import FactorAnalysis as ClassicFactors
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import NotFittedError
from sklearn.mixture import BayesianGaussianMixture
from sklearn.utils.estimator_checks import check_estimator

import lamu
from lamu.sklearn import FactorAnalysis, GaussianMixture, TopicModel, load

RANDOM = np.random.default_rng(0)
CENTRES, SPREADS = (
    np.array([[10.0, -300.0], [14.0, -180.0]]),
    np.array([[[1.0, 8.0], [8.0, 225.0]], [[0.5, 0], [0, 400.0]]]),
)


def two_groups(rows: int = 150) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two overlapping groups, a third in the second, far from zero and of unequal units."""
    group = (np.arange(rows) % 3 == 0).astype(int)
    roots = np.linalg.cholesky(SPREADS)[group]
    return CENTRES[group] + np.einsum("nij,nj->ni", roots, RANDOM.normal(size=(rows, 2))), group


X, GROUP = two_groups()


@pytest.fixture(scope="module")
def mixture() -> GaussianMixture:
    return GaussianMixture(2, weight_concentration_prior=0.5, random_state=1).fit(X)


@pytest.mark.stress
@pytest.mark.parametrize(
    "estimator",
    [
        GaussianMixture(2, random_state=0),
        GaussianMixture(2, covariance_type="diag", random_state=0),
        FactorAnalysis(2, max_iter=50, random_state=0),
        TopicModel(2, max_iter=20, random_state=0),
    ],
    ids=["full", "diag", "factors", "topics"],
)
def test_every_check_of_scikit_learn_passes(estimator: Any) -> None:
    check_estimator(estimator, on_skip=None)  # the checks of other array libraries are skipped


@pytest.mark.parametrize("kind", [pytest.param("full", marks=pytest.mark.stress), "diag"])
def test_a_mixture_is_scikit_learns_with_the_same_priors(kind) -> None:
    ours = GaussianMixture(2, covariance_type=kind, weight_concentration_prior=0.5, random_state=1).fit(X)
    rows = (X - X.mean(0)) / X.std(0)
    prior = np.eye(2) if kind == "full" else np.ones(2)
    theirs = BayesianGaussianMixture(
        n_components=2, covariance_type=kind, weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=0.5, mean_prior=np.zeros(2), mean_precision_prior=1.0,
        degrees_of_freedom_prior=2.0, covariance_prior=prior, reg_covar=0.0,
        tol=1e-12, max_iter=5000, random_state=0,
    ).fit(rows)  # fmt: skip
    # Of a diagonal scikit-learn takes E[log|Λ|] of a Wishart, we of a product of Gammas, which are O(1/N) apart.
    near = 1e-3 if kind == "full" else 0.03
    order, theirs_order = np.argsort(ours.means_[:, 0]), np.argsort(theirs.means_[:, 0])
    np.testing.assert_allclose(ours.weights_[order], theirs.weights_[theirs_order], atol=near)
    np.testing.assert_allclose(ours.means_[order], X.mean(0) + X.std(0) * theirs.means_[theirs_order], rtol=near)
    unit = np.outer(X.std(0), X.std(0)) if kind == "full" else X.var(0)
    expected = unit * theirs.covariances_[theirs_order]
    np.testing.assert_allclose(ours.covariances_[order], expected, rtol=10 * near, atol=near * np.abs(expected).max())
    probabilities = theirs.predict_proba(rows)[:, theirs_order]
    np.testing.assert_allclose(ours.predict_proba(X)[:, order], probabilities, atol=5 * near)


@pytest.mark.stress
def test_a_tied_covariance_is_that_within_the_groups() -> None:
    tied = GaussianMixture(2, covariance_type="tied", weight_concentration_prior=5.0, n_init=3, random_state=1).fit(X)
    within = sum(np.cov(X[member].T, bias=True) * member.mean() for member in (GROUP < 1, GROUP > 0))
    np.testing.assert_allclose(np.diag(tied.covariances_), np.diag(within), rtol=0.3)  # rows between the groups, prior
    rows, _ = tied.sample(2000)
    np.testing.assert_allclose(rows.mean(0), X.mean(0), rtol=0.1)


@pytest.mark.stress
def test_a_density_is_one_of_the_rows_in_their_own_units(mixture) -> None:
    # The predictive density of 150 rows is near that of the truth; its mean over the rows too, by a few hundredths.
    log = []
    for centre, spread, weight in zip(CENTRES, SPREADS, (2 / 3, 1 / 3), strict=True):
        away = X - centre
        square = np.einsum("ni,ij,nj->n", away, np.linalg.inv(spread), away)
        log.append(np.log(weight) - 0.5 * square - 0.5 * np.log(np.linalg.det(2 * np.pi * spread)))
    truth = np.logaddexp(*log)
    assert mixture.score(X) == pytest.approx(truth.mean(), abs=0.1)
    assert np.corrcoef(mixture.score_samples(X), truth)[0, 1] > 0.9
    assert (mixture.predict(X) == np.argsort(np.argsort(mixture.means_[:, 0]))[GROUP]).mean() > 0.9


def test_draws_are_of_the_mixture(mixture) -> None:
    rows, component = mixture.sample(4000)
    # Five standard errors of means and deviations over at least 1,000 rows of a component.
    for k in (0, 1):
        own = rows[component == k]
        deviation = np.sqrt(np.diag(mixture.covariances_[k]))
        assert (np.abs(own.mean(0) - mixture.means_[k]) < 5 * deviation / np.sqrt(len(own))).all()
        np.testing.assert_allclose(own.std(0), deviation, rtol=5 / np.sqrt(2 * len(own)))
    with pytest.raises(ValueError, match="n_samples=0 makes no row"):
        mixture.sample(0)


@pytest.mark.stress
def test_a_mixture_takes_missing_entries() -> None:
    holes = np.where(np.random.default_rng(1).uniform(size=X.shape) < 0.15, np.nan, X)
    diagonal = GaussianMixture(2, covariance_type="diag", weight_concentration_prior=0.5, random_state=1)
    whole, part = diagonal.fit(X).means_, diagonal.fit(holes).means_
    np.testing.assert_allclose(np.sort(part, axis=0), np.sort(whole, axis=0), rtol=0.05)
    first = diagonal.score_samples(np.array([[10.0, np.nan]]))[0]
    grid = np.linspace(-500, 100, 601)
    both = diagonal.score_samples(np.stack([np.full(601, 10.0), grid], axis=1))
    assert first == pytest.approx(np.log(np.trapezoid(np.exp(both), grid)), abs=1e-3)  # what is known of the row
    with pytest.raises(ValueError, match="column 1 has no value in any row; leave it out"):
        diagonal.fit(np.array([[1.0, np.nan], [2.0, np.nan]]))
    with pytest.raises(ValueError, match="covariance_type='spherical' is not known"):
        GaussianMixture(2, covariance_type="spherical").fit(X)


@pytest.mark.stress
def test_factors_are_scikit_learns_where_rows_say_much() -> None:
    random = np.random.default_rng(2)
    loadings = random.normal(size=(5, 2)) * [[3.0], [20.0], [0.4], [1.0], [7.0]]
    noise = np.array([1.0, 5.0, 0.2, 0.5, 2.0])
    x = 50.0 + random.normal(size=(800, 2)) @ loadings.T + noise * random.normal(size=(800, 5))
    ours, theirs = (
        FactorAnalysis(2, max_iter=300, random_state=0).fit(x),
        ClassicFactors(2, tol=1e-3, max_iter=10_000).fit(x),
    )
    size = np.sqrt(np.diag(theirs.get_covariance()))
    correlation = lambda covariance: covariance / np.outer(size, size)
    # The prior moves an entry of the correlation by the order of 1/N.
    np.testing.assert_allclose(correlation(ours.get_covariance()), correlation(theirs.get_covariance()), atol=0.02)
    assert ours.score(x) == pytest.approx(theirs.score(x), abs=0.02)
    a, b = ours.transform(x), theirs.transform(x)
    turned = b @ np.linalg.lstsq(b, a)[0]  # factors are known up to a rotation
    assert np.corrcoef(turned.ravel(), a.ravel())[0, 1] > 0.99
    np.testing.assert_allclose(ours.get_precision() @ ours.get_covariance(), np.eye(5), atol=1e-8)


@pytest.mark.stress
def test_factors_fill_what_is_missing() -> None:
    random = np.random.default_rng(3)
    x = random.normal(size=(200, 1)) * [1.0, -2.0, 3.0] + 0.1 * random.normal(size=(200, 3))
    frame = pd.DataFrame(np.where(random.uniform(size=x.shape) < 0.2, np.nan, x), columns=["a", "b", "c"])
    factors = FactorAnalysis(max_iter=200, random_state=0).set_output(
        transform="pandas"
    )  # three, of which one is there
    z = factors.fit_transform(frame)
    assert list(z.columns) == ["factoranalysis0", "factoranalysis1", "factoranalysis2"]
    filled = factors.mean_ + z.to_numpy() @ factors.components_
    gone = frame.isna().to_numpy() & ~frame.isna().all(axis=1).to_numpy()[:, None]
    assert np.sqrt(np.mean(((filled - x) / x.std(0))[gone] ** 2)) < 0.3
    # The same rows as a frame of polars, out as one too; a missing number is NaN there.
    columns = polars.DataFrame({name: frame[name].to_numpy() for name in frame})
    of_polars = clone(factors).set_output(transform="polars").fit_transform(columns)
    assert isinstance(of_polars, polars.DataFrame)
    assert of_polars.columns == list(z.columns)
    np.testing.assert_array_equal(of_polars.to_numpy(), z.to_numpy())
    again = pickle.loads(pickle.dumps(factors))
    assert (again.transform(frame).to_numpy() == z.to_numpy()).all()


def documents(rows: int = 60) -> np.ndarray:
    """Counts of six words in documents of forty, of two topics that share no frequent word."""
    random = np.random.default_rng(0)
    topics = np.array([[0.4, 0.3, 0.2, 0.05, 0.03, 0.02], [0.02, 0.03, 0.05, 0.1, 0.3, 0.5]])
    return np.stack([random.multinomial(40, share @ topics) for share in random.dirichlet([0.4, 0.4], rows)])


@pytest.mark.stress
def test_topics_are_scikit_learns_with_the_same_priors() -> None:
    counts, priors = documents(), {"doc_topic_prior": 0.3, "topic_word_prior": 0.2}
    ours = TopicModel(2, **priors, max_iter=400, random_state=0).fit(counts)
    theirs = LatentDirichletAllocation(
        2, **priors, max_iter=400, max_doc_update_iter=500, mean_change_tol=1e-8, random_state=0
    ).fit(counts)  # fmt: skip
    order, theirs_order = np.argsort(ours.components_[:, 0]), np.argsort(theirs.components_[:, 0])
    # Both stop on a slope that is nearly flat.
    np.testing.assert_allclose(ours.components_[order], theirs.components_[theirs_order], rtol=0.01)
    shares, expected = ours.transform(counts)[:, order], theirs.transform(counts)[:, theirs_order]
    np.testing.assert_allclose(shares, expected, atol=0.01)
    np.testing.assert_allclose(ours.lower_bound_, theirs.score(counts), atol=0.1)
    assert ours.perplexity(counts) == pytest.approx(np.exp(-ours.score(counts) / 2400))
    assert 0.95 < ours.perplexity(counts) / theirs.perplexity(counts) < 1.01


@pytest.mark.stress
def test_counts_of_words_may_be_sparse_or_weights() -> None:
    counts = documents(20) / 2.0
    dense, thin = (TopicModel(2, max_iter=20, random_state=0).fit(each) for each in (counts, sparse.csr_matrix(counts)))
    np.testing.assert_array_equal(dense.components_, thin.components_)
    assert dense.components_.sum() == pytest.approx(counts.sum() + 2 * 6 * 0.05)
    assert dense.transform(np.zeros((1, 6))) == pytest.approx(np.full((1, 2), 0.5))  # no word: the prior
    with pytest.raises(ValueError, match=r"Negative values .* counts of words"):
        TopicModel(2).fit(-counts)


FACES = {
    "diag": lambda: GaussianMixture(2, covariance_type="diag", random_state=0, max_iter=20),
    "full": lambda: GaussianMixture(2, random_state=0, max_iter=20),
    "factors": lambda: FactorAnalysis(2, random_state=0, max_iter=20),
    "topics": lambda: TopicModel(2, random_state=0, max_iter=20),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(pytest.param(name, np.float64, marks=pytest.mark.stress) for name in FACES if name != "full"),
        ("full", np.float32),
    ],
)
def test_what_a_face_learned_comes_back_bit_for_bit_without_pickle(name, dtype, tmp_path) -> None:
    x = np.asarray(documents(), dtype) if name == "topics" else np.asarray(lamu.data.load("iris")[0][::3], dtype)
    frame = pd.DataFrame(x, columns=[f"c{i}" for i in range(x.shape[1])])
    face = FACES[name]().fit(frame)
    again = load(face.save(tmp_path / "face"))
    assert type(again) is type(face)
    assert again.get_params() == face.get_params()
    learned = [key for key in vars(face) if key.endswith("_") and key != "posterior_"]
    assert {"n_iter_", "lower_bound_", "dtype_", "feature_names_in_"} <= set(learned)
    for key in learned:
        np.testing.assert_array_equal(
            getattr(again, key), getattr(face, key), strict=isinstance(getattr(face, key), np.ndarray)
        )
    ask = (lambda each: each.predict_proba(frame)) if name in ("diag", "full") else (lambda each: each.transform(frame))
    np.testing.assert_array_equal(ask(again), ask(face), strict=True)
    assert again.score(frame) == face.score(frame)
    if name in ("diag", "full"):
        np.testing.assert_array_equal(again.sample(5)[0], face.sample(5)[0])


@pytest.mark.parametrize(
    ("name", "dtype"), [pytest.param("factors", np.float64, marks=pytest.mark.stress), ("topics", np.float32)]
)
def test_float32_rows_are_learned_in_float32_where_float64_is_on_but_for_factors(name, dtype) -> None:
    """Factors are computed in double precision whatever the rows, as scikit-learn's are."""
    x = documents() if name == "topics" else lamu.data.load("iris")[0][::3]
    with jax.enable_x64(True):
        face = FACES[name]().set_params(max_iter=2).fit(np.asarray(x, np.float32))
    assert face.components_.dtype == dtype


def test_moments_are_those_of_any_precision_and_unit() -> None:
    """In 32 bits a mean of 1e5 was off by five deviations, and a constant column or one of 1e-13 had another unit."""
    random = np.random.default_rng(0)
    x = np.column_stack([random.normal(1e5, 2.0, 30_000), random.normal(0.0, 1e-13, 30_000), np.full(30_000, 0.1)])
    for kind in ("f4", "f8"):
        face = FactorAnalysis(1, max_iter=1, random_state=0).fit(x.astype(kind))
        np.testing.assert_allclose(face.mean_, x.mean(axis=0), rtol=1e-6, atol=1e-15)
        np.testing.assert_allclose(face.scale_, [*x[:, :2].std(axis=0), 1.0], rtol=1e-3)


@pytest.mark.stress
def test_a_face_with_a_generator_is_saved_without_it(tmp_path) -> None:
    face = FactorAnalysis(1, max_iter=5, random_state=np.random.RandomState(0))
    with pytest.raises(NotFittedError):
        face.save(tmp_path / "face")
    assert load(face.fit(np.asarray(lamu.data.load("iris")[0], float)).save(tmp_path / "face")).random_state is None


@pytest.mark.parametrize("kind", [GaussianMixture, FactorAnalysis, TopicModel])
@pytest.mark.parametrize("setting", ["n_components", "n_init", "max_iter"])
def test_a_number_that_must_be_one_at_least_is_named(kind: Any, setting: str) -> None:
    with pytest.raises(ValueError, match=f"{setting} == 0, must be >= 1"):
        kind(**{setting: 0}).fit(np.ones((4, 2)))


@pytest.mark.measured
def test_equal_columns_of_float32_are_fitted_as_those_of_float64() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 2)) @ random.normal(size=(2, 4)) + 0.3 * random.normal(size=(200, 4))
    x = np.column_stack([x, x[:, 1]])
    single, double = (FactorAnalysis(2, max_iter=60, random_state=0).fit(x.astype(kind)) for kind in ("f4", "f8"))
    np.testing.assert_allclose(single.noise_variance_, double.noise_variance_, rtol=1e-3)
    np.testing.assert_allclose(single.score_samples(x), double.score_samples(x), atol=1e-2)
    assert np.isfinite(single.transform(x.astype("f4"))).all()
    rows = ((x - x.mean(axis=0)) / x.std(axis=0)).astype("f4")
    told = "leave out columns that others determine, such as|rounding has ended the ascent"  # by the processor
    graph = lamu.graphs.models.FactorAnalysis(2, 5)
    raised = pytest.raises((lamu.Diverged, lamu.Unconverged), match=told)
    with jax.enable_x64(False), warnings.catch_warnings(action="error", category=lamu.Unconverged), raised:
        lamu.fit(graph, {"y": rows}, lamu.algorithms.vmp(), progress=False)
