"""`lamu.sklearn.GaussianMixture` with missing entries: integrated out exactly, whole rows too."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from lamu.sklearn import GaussianMixture

RNG = np.random.default_rng(3)
COUNT = 240
CLASS = RNG.choice(2, COUNT, p=[0.7, 0.3])
CENTRES = np.array([[300.0, -2.0, 0.01], [320.0, 3.0, 0.02]])
SPREADS = np.array([np.diag([5.0, 1.0, 0.002]), np.diag([2.0, 0.5, 0.004])])
TURN = np.linalg.cholesky(np.array([[1.0, 0.8, -0.3], [0.8, 1.0, 0.0], [-0.3, 0.0, 1.0]]))
WHOLE = CENTRES[CLASS] + np.einsum("nij,jk,nk->ni", SPREADS[CLASS], TURN, RNG.normal(size=(COUNT, 3)))
HOLES = np.where(RNG.uniform(size=WHOLE.shape) < 0.2, np.nan, WHOLE)
HOLES[5], HOLES[17] = np.nan, np.nan


def covariances(mixture):
    full = (
        mixture.covariances_[:, :, None] * np.eye(3) if mixture.covariances_.shape == (2, 3) else mixture.covariances_
    )
    return np.broadcast_to(full, (2, 3, 3))


@pytest.fixture(scope="module", params=["full", pytest.param("tied", marks=pytest.mark.stress), "diag"])
def fitted(request):
    return GaussianMixture(2, covariance_type=request.param, n_init=2, random_state=0).fit(HOLES)


def test_entries_are_missing_in_every_kind_of_covariance(fitted):
    order = np.argsort(fitted.means_[:, 0])
    sds = np.sqrt(np.array([[25.0, 1.0, 4e-6], [4.0, 0.25, 1.6e-5]]))
    # The first class has 2/3 of the rows, 4/5 of whose entries are there: five standard errors.
    np.testing.assert_array_less(np.abs(fitted.means_[order] - CENTRES) / sds, 0.8)
    labels = fitted.predict(HOLES)
    told = ~np.isnan(HOLES).all(axis=1)
    assert np.mean((order[CLASS] == labels)[told]) > 0.9
    probability = fitted.predict_proba(HOLES)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, rtol=1e-6)
    # A row of which nothing is known has the shares of the components, up to how well these are known.
    np.testing.assert_allclose(probability[5], fitted.weights_, atol=0.01)


def test_a_row_has_the_density_of_what_is_there(fitted):
    """The densities of the mixture at the means, in the columns' own units, up to what 240 rows leave open."""
    found = fitted.score_samples(HOLES[:30])
    for row, value in zip(HOLES[:30], found, strict=True):
        seen = ~np.isnan(row)
        terms = [
            stats.multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)], allow_singular=True).logpdf(row[seen])
            if seen.any()
            else 0.0
            for mean, covariance in zip(fitted.means_, covariances(fitted), strict=True)
        ]
        assert value == pytest.approx(logsumexp(np.log(fitted.weights_) + terms), abs=0.35)
    assert found[5] == pytest.approx(0.0, abs=1e-6)
    assert fitted.score(HOLES[:30]) == pytest.approx(found.mean())
    rows, components = fitted.sample(500)
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(np.bincount(components, minlength=2) / 500, fitted.weights_, atol=0.1)


@pytest.mark.stress
def test_rows_without_anything_change_nothing_but_shares():
    some = HOLES[~np.isnan(HOLES).all(axis=1)]
    longer = np.concatenate([some, np.full((4, 3), np.nan)])
    one, other = (GaussianMixture(1, covariance_type="diag", random_state=0).fit(rows) for rows in (some, longer))
    np.testing.assert_allclose(other.means_, one.means_, rtol=1e-6)
    np.testing.assert_allclose(other.covariances_, one.covariances_, rtol=1e-6)
