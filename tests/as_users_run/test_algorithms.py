"""Every algorithm and sampler on a small model: it learns, stays in single precision, and is the same once loaded."""

from __future__ import annotations

import warnings
from functools import cache

import jax
import numpy as np
import pytest

import lamu
from lamu.convergence import Unconverged
from lamu.likelihoods import Gaussian
from lamu.networks import Linear
from lamu.priors import Normal
from tests.laws.posteriors import BINARY, CLASSES, FITS, NEW, Y

TARGETS = {"regression": Y, "binary": BINARY, "classes": CLASSES}
# Rows that repeat what others say, on another model, but for these: descents, beliefs and chains of other kinds.
ALSO = ("map_estimate", "sam", "bayes_by_backprop", "lie_group", "igo", "dropout", "hmc", "random_walk", "sghmc")
NAMES = [name for name, (traits, _) in FITS.items() if "long" not in traits or name in ALSO]
# A few dozen steps from random weights: after these they may not yet be ahead of what does not look at the row.
BEGINNERS = {"vogn", "slang", "bayes_by_backprop", "lie_group", "igo", "dropout", "mc_dropout", "bayesbinn", "sghmc"}


@pytest.fixture(scope="module", params=NAMES)  # all tests of a name after each other: a process fits it, not two
def name(request) -> str:
    return request.param


# Mixtures, signs, and parts of which each has its own; chains of so few draws.
UNMEASURED = {"blocks", "mixture_vi", "bayesbinn", "pbp", "neural_linear"}
UNMEASURED |= {"nuts", "hmc", "random_walk", "sgld", "sghmc"}


@cache
def fitted(name: str) -> lamu.Fit:
    """The fit of a row of the laws of posteriors; the rows share their shapes, so that most programs are found."""
    row = FITS[name][1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Unconverged)
        return lamu.fit(row.model, row.data, row.algorithm, batch_size=len(row.data[0]), **row.options)


def inexact(tree: object) -> set[str]:
    return {leaf.dtype.name for leaf in jax.tree.leaves(tree) if jax.numpy.issubdtype(leaf.dtype, np.inexact)}


def test_it_learns(name: str) -> None:
    """In nats a row it is ahead of the best answer that does not look at the row."""
    x, y = FITS[name][1].data
    nll = float(lamu.scores.nll(fitted(name).posterior.predict(x), y))
    shares = np.bincount(y) / len(y) if y.dtype == CLASSES.dtype else None
    constant = np.log(Y.std()) + 0.5 * np.log(2 * np.pi * np.e) if shares is None else -shares @ np.log(shares)
    assert nll < constant or (name in BEGINNERS and np.isfinite(nll))


def test_it_says_how_far_it_came(name: str) -> None:
    fit = fitted(name)
    assert (fit.posterior.convergence is None) == (name in UNMEASURED)
    assert np.all(np.isfinite(fit.history["loss"]))


def test_it_stays_in_single_precision(name: str) -> None:
    fit = fitted(name)
    predictive = fit.posterior.predict(NEW)
    assert inexact((fit.posterior.belief, fit.posterior.network_state)) == {"float32"}
    assert inexact((predictive.mean, predictive.variance)) == {"float32"}
    assert np.all(np.isfinite(predictive.mean))
    assert np.all(np.asarray(predictive.variance) >= 0)


def test_it_predicts_the_same_once_loaded(name: str, tmp_path) -> None:
    posterior = fitted(name).posterior
    again = lamu.load(posterior.save(tmp_path / "posterior"))
    assert jax.tree.structure(again) == jax.tree.structure(posterior)
    np.testing.assert_array_equal(again.predict(NEW).mean, posterior.predict(NEW).mean)
    np.testing.assert_array_equal(again.predict(NEW).variance, posterior.predict(NEW).variance)


# What nobody tells how long to run: closed forms are reached, and a run that stopped has converged.

ROWS = np.random.default_rng(0).normal(size=(64, 2))
TARGET = ROWS @ [1.5, -1.0] + 0.4 * np.random.default_rng(1).normal(size=64)
LINE = lamu.Model(Linear(), Gaussian(scale=0.4), Normal(1.0))
DESIGN = np.column_stack([np.ones(64), ROWS])
PRECISION = DESIGN.T @ DESIGN / 0.4**2 + np.eye(3)
MEAN = np.linalg.solve(PRECISION, DESIGN.T @ TARGET / 0.4**2)


@pytest.mark.parametrize("algorithm", ["conjugate", "laplace", "ivon", "von", "nuts"])
def test_without_a_length_it_ends_at_the_posterior(algorithm: str) -> None:
    recipe = {**lamu.algorithms.registry(), **lamu.mcmc.registry()}[algorithm]
    posterior = lamu.fit(LINE, (ROWS, TARGET), recipe.factory()).posterior
    f = posterior.predict(ROWS[:8])
    sd = np.sqrt(np.einsum("ij,jk,ik->i", DESIGN[:8], np.linalg.inv(PRECISION), DESIGN[:8]))
    assert np.all(np.abs(np.asarray(f.mean) - DESIGN[:8] @ MEAN) < sd)
    assert posterior.convergence is not None
    assert posterior.convergence.converged


def test_a_number_is_no_random_key() -> None:
    """Tests of tests/ have types checked before it is asked."""
    x, y = np.arange(8.0)[:, None], np.arange(8.0) % 3
    posterior = lamu.regression(x, y)
    pred = posterior.predict(x)
    for call in (lambda: posterior.sample(7, 2), lambda: posterior.predict(x, key=7), lambda: pred.sample(7, 5)):
        with pytest.raises(TypeError, match=r"key=7 is not a random key; give one, for instance jax.random.key\(7\)"):
            call()
    with pytest.raises(TypeError, match=r"posteriors is one Posterior; give a list"):
        lamu.merge(posterior, posterior)
