"""What predictions a prior moves, what it says of functions, and the sparsity of modes beside scikit-learn's."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import lamu
from lamu.likelihoods import Bernoulli, Categorical, Gaussian
from lamu.networks import MLP, Linear
from lamu.plots import prior_functions
from lamu.priors import FanIn, Horseshoe, Laplace, Normal, RegularisedHorseshoe

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
Y = X[:, 0] + 0.3 * rng.normal(size=40)


def test_distances_of_a_regression_are_in_predictive_standard_deviations() -> None:
    """Under a narrow prior the rows far out move most; under the same prior, none."""
    model = lamu.Model(Linear(), Gaussian(0.3))
    priors = {"one": Normal(1.0), "same": Normal(1.0), "narrow": Normal(0.02)}
    found = lamu.prior_sensitivity(model, (X, Y), priors, algorithm=lamu.algorithms.conjugate())
    assert isinstance(found, lamu.PriorSensitivity)
    first, last = (found.fits[name].posterior.predict(X) for name in ("one", "narrow"))
    np.testing.assert_allclose(found.distances["narrow"], np.abs(first.mean - last.mean) / first.std, rtol=1e-6)
    np.testing.assert_allclose(found.distances["same"], 0.0, atol=1e-9)
    moved = found.moved(1.0)
    assert moved["same"] == []
    assert moved["narrow"][0] == int(np.argmax(found.distances["narrow"]))
    assert len(moved["narrow"]) == int(np.sum(found.distances["narrow"] > 1.0)) > 0


@pytest.mark.parametrize(("likelihood", "labels"), [(Bernoulli(), 2), (Categorical(3), 3)], ids=["binary", "classes"])
def test_distances_of_classes_are_total_variation(likelihood, labels: int) -> None:
    y = np.digitize(X[:, 0], [0.0, 0.7][: labels - 1])
    model = lamu.Model(Linear(), likelihood)
    finder = lamu.algorithms.laplace(lamu.algorithms.map_estimate())
    priors = {"wide": Normal(3.0), "narrow": Normal(0.1)}
    found = lamu.prior_sensitivity(model, (X, y), priors, x=X[:5], algorithm=finder, steps=30, batch_size=40)
    wide, narrow = (np.asarray(run.posterior.predict(X[:5]).mean) for run in found.fits.values())
    expected = np.abs(wide - narrow) if labels == 2 else np.abs(wide - narrow).sum(axis=1) / 2
    np.testing.assert_allclose(found.distances["narrow"], expected, rtol=1e-6)
    assert 0 < found.distances["narrow"].max() <= 1


@pytest.mark.stress
def test_a_prior_with_scales_is_fitted_by_its_conjugate_messages() -> None:
    """Named beside others and without an algorithm: its run holds a belief about the scales."""
    model = lamu.Model(Linear(), Gaussian(0.3))
    priors = {"normal": Normal(1.0), "horseshoe": Horseshoe()}
    found = lamu.prior_sensitivity(model, (X, Y), priors, steps=3)
    assert found.fits["horseshoe"].state.precisions[0].mean
    assert not hasattr(found.fits["normal"].state, "precisions")
    assert found.distances["horseshoe"].shape == (len(X),)


def test_a_prior_whose_scales_are_not_conjugate_says_so() -> None:
    model = lamu.Model(Linear(), Gaussian(0.3))
    with pytest.raises(TypeError, match="RegularisedHorseshoe has no conjugate ones"):
        lamu.prior_sensitivity(model, (X, Y), {"one": Normal(1.0), "two": RegularisedHorseshoe()}, steps=3)


def test_what_leaves_nothing_to_compare_is_one_sentence() -> None:
    model = lamu.Model(Linear(), Gaussian(0.3))
    with pytest.raises(ValueError, match="leave nothing to compare; give two or more"):
        lamu.prior_sensitivity(model, (X, Y), {"one": Normal(1.0)})
    two = {"one": Normal(1.0), "two": Normal(2.0)}
    with pytest.raises(ValueError, match=r"neither \(x, y\) nor a mapping; give x"):
        lamu.prior_sensitivity(model, iter([{"x": X, "y": Y}]), two)
    with pytest.raises(ValueError, match="an offset is given and x is not"):
        lamu.prior_sensitivity(model, (X, Y), two, offset=Y)


@pytest.mark.stress
def test_the_plot_of_a_prior_shows_its_draws_and_the_band_of_targets() -> None:
    """The band of a linear network: ±1.645 √(s² (x² + 1) + σ²), 400 draws within a fifth of it (five errors)."""
    grid = np.linspace(-2, 2, 21)[:, None]
    model = lamu.Model(Linear(), Gaussian(0.5), Normal(2.0))
    axes = prior_functions(jax.random.key(0), model, grid, samples=7)
    assert len(axes.lines) == 7
    (band,) = axes.collections
    ends = band.get_paths()[0].vertices
    at_two = ends[np.isclose(ends[:, 0], 2.0), 1]
    expected = 1.645 * np.sqrt(4 * (4 + 1) + 0.25)
    np.testing.assert_allclose([at_two.min(), at_two.max()], [-expected, expected], rtol=0.2)
    for line in axes.lines:  # straight
        assert np.allclose(np.diff(line.get_ydata(), 2), 0, atol=1e-5)
    mine = axes.figure.subplots()
    axes = prior_functions(jax.random.key(0), lamu.Model(MLP((4,)), Categorical(3), Normal(FanIn())), grid, axes=mine)
    assert axes is mine
    assert axes.get_ylabel() == "probability of class 0"
    assert all(0 <= line.get_ydata().min() <= line.get_ydata().max() <= 1 for line in axes.lines)
    # Of a network whose bias alone moves, to the side of one: the curve is P(y = 1).
    sure = lamu.Model(Linear(), Bernoulli(), Normal(1e-3, loc=4.0))
    axes = prior_functions(jax.random.key(0), sure, 0 * grid)
    assert axes.get_ylabel() == "probability of 1"
    assert all(line.get_ydata().min() > 0.97 for line in axes.lines)
    with pytest.raises(ValueError, match=r"no column 2"):
        prior_functions(jax.random.key(0), model, grid, column=2)
    with pytest.raises(ValueError, match="samples=0 is not possible; give a whole number"):
        prior_functions(jax.random.key(0), model, grid, samples=0)


def test_the_mode_under_a_laplace_prior_is_zero_where_scikit_learns_l1_is_and_draws_are_not() -> None:
    """Breast cancer, L1 logistic regression of rate 1/s: weights that scikit-learn sets to zero end within 1e-3 of it.

    Adam with a rate that falls to zero reaches a kink to its last steps; no draw of the posterior is zero.
    """
    x, y = lamu.data.load("breast_cancer")
    x = (x - x.mean(0)) / x.std(0)
    scale = 0.2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = (
            LogisticRegression(penalty="l1", C=scale, solver="liblinear", fit_intercept=False, tol=1e-8, max_iter=5000)
            .fit(x, y)
            .coef_[0]
        )
        model = lamu.Model(Linear(bias=False), Bernoulli(), Laplace(scale))
        adam = lamu.algorithms.adam(lamu.rate.Annealed(0.05))
        run = lamu.fit(model, (x, y), adam, steps=4000, batch_size=len(y))
    found = np.asarray(run.posterior.mean["network"]["layers"][0]["kernel"])[:, 0]
    np.testing.assert_allclose(found, reference, atol=0.05)
    np.testing.assert_array_equal(np.abs(found) < 1e-3, reference == 0.0)
    assert np.sum(reference == 0.0) > 10
    belief = lamu.fit(model, (x, y), lamu.algorithms.ivon(), steps=200, batch_size=len(y)).posterior
    assert not np.any(np.asarray(belief.sample(jax.random.key(0), 50)["network"]["layers"][0]["kernel"]) == 0.0)
