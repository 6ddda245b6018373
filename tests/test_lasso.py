"""Kinks of a prior: the mode by any optimiser is the Lasso's, exact zeros included, and laws see a wrong slope."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.linear_model import Lasso, LogisticRegression

import lamu
from lamu.algorithms import deep_ensemble, map_estimate
from lamu.likelihoods import Bernoulli, Gaussian
from lamu.networks import MLP, Linear
from lamu.priors import ByPath, ConditionalPrior, GeneralisedNormal, Laplace, Normal
from lamu.record import record
from lamu.testing import check_prior
from tests.for_each import for_each

SCALE = 0.7


def standardised(name: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = lamu.data.load(name)
    x = np.asarray(x, float)
    return (x - x.mean(0)) / x.std(0), np.asarray(y).ravel()


def diabetes() -> tuple[np.ndarray, np.ndarray]:
    x, y = standardised("diabetes")
    return x, (y - y.mean()) / y.std()


def weights(posterior: Any) -> np.ndarray:
    return np.asarray(posterior.mean["network"]["layers"][0]["kernel"]).ravel()


def lasso(alpha: float, rows: int, prior: Any = Laplace) -> lamu.Model:
    r"""The model whose mode minimises \(\lVert y - Xw \rVert^2 / 2N + \alpha \lVert w \rVert_1\)."""
    return lamu.Model(
        Linear(), Gaussian(SCALE), ByPath({"*bias": Normal(100.0), "*": prior(SCALE**2 / (alpha * rows))})
    )


@pytest.mark.measured
@for_each(
    "optimizer, steps",
    [(optax.lbfgs(), 40), (optax.adam(1e-2), 1500), (optax.sgd(0.1, momentum=0.9), 500)],
)
def test_the_mode_is_the_lassos(optimizer: Any, steps: int) -> None:
    """Seven of ten weights are zero, the same ones, by any optimiser; the residual says that it is a mode."""
    x, y = diabetes()
    reference = Lasso(alpha=0.2, tol=1e-12).fit(x, y).coef_
    model, algorithm = lasso(0.2, len(x)), map_estimate(optimizer)
    fit = lamu.fit(model, (x, y), algorithm, steps=steps, batch_size=len(x))
    np.testing.assert_array_equal(weights(fit.posterior) == 0, reference == 0)
    assert np.count_nonzero(reference == 0) == 7
    np.testing.assert_allclose(weights(fit.posterior), reference, atol=1e-6)
    assert fit.history["residual"][-1] < 1e-2
    assert fit.convergence.converged  # the smooth part alone has a slope at the zeros


def test_single_precision_and_a_power_of_one_find_the_same_zeros() -> None:
    x, y = diabetes()
    reference = Lasso(alpha=0.05, tol=1e-12).fit(x, y).coef_
    prior = lambda scale: GeneralisedNormal(scale, power=1.0)
    with jax.enable_x64(False):
        algorithm = map_estimate(optax.sgd(0.1, momentum=0.9))
        fit = lamu.fit(lasso(0.05, len(x), prior), (x, y), algorithm, steps=1000, batch_size=len(x))
    np.testing.assert_array_equal(weights(fit.posterior) == 0, reference == 0)
    np.testing.assert_allclose(weights(fit.posterior), reference, atol=1e-5)


def test_classes_under_kinks_are_scikit_learns() -> None:
    """L1 logistic regression; scikit-learn's C is the scale."""
    x, y = standardised("breast_cancer")
    reference: Any = LogisticRegression(l1_ratio=1.0, C=0.05, solver="saga", tol=1e-10, max_iter=100_000).fit(x, y)
    model = lamu.Model(Linear(), Bernoulli(), ByPath({"*bias": Normal(1000.0), "*": Laplace(0.05)}))
    fit = lamu.fit(model, (x, y), map_estimate(optax.lbfgs()), steps=80, batch_size=len(x))
    np.testing.assert_array_equal(weights(fit.posterior) == 0, reference.coef_.ravel() == 0)
    np.testing.assert_allclose(weights(fit.posterior), reference.coef_.ravel(), atol=1e-4)


def test_a_kink_elsewhere_holds_weights_there_and_minibatches_and_members_keep_zeros() -> None:
    x, y = diabetes()
    prior = lambda scale: Laplace(scale, loc=0.3)
    algorithm = map_estimate(optax.lbfgs())
    fit = lamu.fit(lasso(0.2, len(x), prior), (x, y), algorithm, steps=40, batch_size=len(x))
    reference = Lasso(alpha=0.2, tol=1e-12).fit(x, y - 0.3 * x.sum(1)).coef_ + 0.3
    np.testing.assert_allclose(weights(fit.posterior), reference, atol=1e-6)
    np.testing.assert_array_equal(weights(fit.posterior) == 0.3, reference == 0.3)
    network = lamu.Model(MLP((8,)), Gaussian(SCALE), Laplace(0.01))
    runs = deep_ensemble(map_estimate(optax.adam(1e-2)), members=2)
    draws: Any = lamu.fit(network, (x, y), runs, steps=300, batch_size=64).posterior.sample(jax.random.key(0), 8)
    zeros = np.count_nonzero(draws["network"]["layers"][0]["kernel"] == 0, axis=(1, 2))
    assert zeros.min() > 10
    assert zeros.max() < 80


def test_kinks_go_by_path_and_beside_frozen_leaves() -> None:
    params = {"bias": jnp.ones(1), "kernel": jnp.ones(2)}
    prior = ByPath({"*bias": Normal(1.0), "*": Laplace(0.5, loc=0.1)})
    known: Any = prior.kinks(params)
    places, slopes = known
    np.testing.assert_array_equal(slopes["kernel"], [2.0, 2.0])
    np.testing.assert_array_equal(places["kernel"], [0.1, 0.1])
    assert float(slopes["bias"][0]) == 0.0
    free = {"bias": None, "kernel": params["kernel"]}
    known = ConditionalPrior(prior, {"bias": params["bias"], "kernel": None}).kinks(free)
    places, slopes = known
    assert slopes["bias"] is None
    np.testing.assert_array_equal(slopes["kernel"], [2.0, 2.0])
    assert ByPath({"*": Normal(1.0)}).kinks(params) is None
    check_prior(prior, params)


@record
class Steeper(Laplace):
    """With a slope that its density does not have."""

    def kinks(self, params: Any) -> Any:
        places, slopes = super().kinks(params)
        return places, jax.tree.map(lambda slope: 1.1 * slope, slopes)


@record
class Lopsided(Laplace):
    """With a density whose gradient at the kink is that of one side, as JAX's abs has it."""

    def log_density(self, z: Any) -> Any:
        return -jnp.abs(z) - jnp.log(2.0)


@for_each("prior, law", [(Steeper(0.5), "the slope beside"), (Lopsided(0.5), "the gradient at a kink")])
def test_the_laws_see_kinks_that_are_not_the_densitys(prior: Any, law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_prior(prior)
