"""Laws of samplers: each draw has the law of the belief, and what averages of several of them gain.

A row's subject is the sampler. Everything is seen from one array of draws, `[repetitions, S, 2]`, of a correlated
Gaussian; integrands are evaluated on it in NumPy, beside a grid of Gauss–Hermite nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy import stats

from lamu.expectations import Antithetic, IndependentSamples, LatinHypercube, QuasiMonteCarlo, Sampler
from lamu.families import Gaussian
from lamu.operators import Dense
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("samplers", "paired spread stratified")

COUNT, REPETITIONS = 16, 4_000
MEAN, COVARIANCE = np.array([0.7, -0.2]), np.array([[0.5, -0.25], [-0.25, 0.4]])
ROOT = np.linalg.cholesky(np.linalg.inv(COVARIANCE))  # θ − m = L⁻ᵀ z
BELIEF = Gaussian(
    {"b": jnp.asarray(MEAN[0]), "w": jnp.asarray(MEAN[1:])}, Dense(jnp.linalg.inv(jnp.asarray(COVARIANCE)))
)
INTEGRANDS = {
    "linear": lambda x: x[..., 0] - 2.0 * x[..., 1],
    "additive": lambda x: (
        np.tanh(2.0 * normal(x)[..., 0]) + np.cos(normal(x)[..., 1]) + np.exp(0.5 * normal(x)[..., 1])
    ),
    "monotone": lambda x: np.logaddexp(0.0, 2.0 * x[..., 0] + x[..., 1]),
    "product": lambda x: np.tanh(normal(x)[..., 0]) * np.sin(normal(x)[..., 1]),
}


def normal(x: np.ndarray) -> np.ndarray:
    """The standard normal z that a draw was made of."""
    return (x - MEAN) @ ROOT


def integral(name: str) -> float:
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    z = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1)
    return (
        np.einsum("i,j,ij->", weights, weights, INTEGRANDS[name](MEAN + z @ np.linalg.inv(ROOT))) / weights.sum() ** 2
    )


def draws(row: Row, dtype: Any = jnp.float64) -> np.ndarray:
    known = (id(row.subject), dtype)
    if known not in SEEN:
        belief = jax.tree.map(lambda leaf: leaf.astype(dtype), BELIEF)
        factored = Gaussian(belief.mean, belief.precision.factored())

        def average(key: Any) -> Any:
            draw = lambda i: ravel_pytree(row.subject.draw(key, factored, i, COUNT))[0]
            return jax.lax.map(draw, jnp.arange(COUNT))

        with jax.debug_key_reuse(False):  # the checker takes any vmapped scan over keys for a second use of them
            keys = jax.random.split(jax.random.key(7), REPETITIONS)
            SEEN[known] = (np.asarray(jax.jit(jax.vmap(average))(keys)), row.subject)
    return SEEN[known][0]


SEEN: dict[Any, Any] = {}


def errors(row: Row, name: str) -> np.ndarray:
    return INTEGRANDS[name](draws(row)).mean(axis=1) - integral(name)


independent = row("samplers", "IndependentSamples", IndependentSamples(), "", better={})
# The factors by which mean squares fall, below independent draws'. A pair has half of the information on what is even.
antithetic = row("samplers", "Antithetic", Antithetic(), "paired spread", better={"monotone": 2.0})
sobol = row(
    "samplers",
    "QuasiMonteCarlo",
    QuasiMonteCarlo(),
    "stratified spread",
    better={"additive": 30.0, "monotone": 10.0, "linear": 30.0, "product": 2.0},
)
latin = row(
    "samplers", "LatinHypercube", LatinHypercube(), "stratified spread", better={"additive": 30.0, "linear": 30.0}
)


@law("samplers")
def every_draw_has_the_law_of_the_belief(row: Row) -> None:
    """Kolmogorov and Smirnov on both coordinates and a sum of z, first and last draw: false alarm at 6e-6 in all."""
    assert isinstance(row.subject, Sampler)
    z = normal(draws(row))
    for index in (0, COUNT - 1):
        for found in (z[:, index, 0], z[:, index, 1], (z[:, index] @ [0.6, 0.8])):
            assert stats.kstest(found, "norm").pvalue > 1e-6


@law("samplers")
def averages_are_unbiased(row: Row) -> None:
    """Four integrands within five standard errors: a false alarm with probability 2e-6."""
    for name in INTEGRANDS:
        found = errors(row, name)
        assert np.abs(found.mean()) < 5.0 * found.std() / np.sqrt(len(found)) + 1e-12, name


@law("samplers", when="spread")
def error_is_below_that_of_independent_draws(row: Row) -> None:
    """By the stated factors or more, where the relative standard error of a ratio of mean squares is below 0.05."""
    for name, factor in row.extras["better"].items():
        gain = np.mean(errors(independent, name) ** 2) / np.mean(errors(row, name) ** 2)
        assert gain > factor, (name, gain)


@law("samplers", when="spread")
def error_is_never_much_above(row: Row) -> None:
    """S/(S − 1) for a Latin hypercube, 2 for pairs; with five relative standard errors of 0.05."""
    bound = 2.0 if "paired" in row.traits else COUNT / (COUNT - 1)
    for name in INTEGRANDS:
        assert np.mean(errors(row, name) ** 2) < 1.25 * bound * np.mean(errors(independent, name) ** 2), name


@law("samplers", when="paired")
def pairs_lie_on_both_sides_of_the_mean(row: Row) -> None:
    found = draws(row)
    np.testing.assert_allclose(
        (found[:, ::2] + found[:, 1::2]) / 2, np.broadcast_to(MEAN, found[:, ::2].shape), rtol=1e-12
    )
    np.testing.assert_allclose(errors(row, "linear"), 0.0, atol=1e-12)


@law("samplers", when="stratified")
def every_slice_holds_one_draw(row: Row) -> None:
    """In each coordinate of z, S slices of equal probability."""
    slices = np.floor(stats.norm.cdf(normal(draws(row))) * COUNT)
    np.testing.assert_array_equal(np.sort(slices, axis=1), np.broadcast_to(np.arange(COUNT)[:, None], slices.shape))


@law("samplers")
def averages_do_not_depend_on_each_other(row: Row) -> None:
    """Those of neighbouring keys: a correlation within five standard errors."""
    found = errors(row, "product")
    assert np.abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 5.0 / np.sqrt(len(found))


@law("samplers")
def float32_is_finite_and_stays(row: Row) -> None:
    found = draws(row, jnp.float32)
    assert found.dtype == np.float32
    assert np.all(np.isfinite(found))
    assert np.abs(normal(found)).max() > 3.5  # of 128,000 numbers


def twin_of(of: Row, fault: str, laws: str, draw: Callable[..., Any]) -> None:
    """`draw(sound, key, belief, index, count)`, with `sound` the row's own."""
    subject = SimpleNamespace(require=of.subject.require, draw=lambda *rest: draw(of.subject.draw, *rest))
    twin(of, fault, laws, subject)


def widened(sound: Any, key: Any, q: Any, index: Any, count: int) -> Any:
    return sound(key, Gaussian(q.mean, q.precision.scale(0.5)), index, count)


twin_of(independent, "too wide", "every_draw_has_the_law_of_the_belief averages_are_unbiased", widened)
twin_of(
    independent,
    "the same key always",
    "averages_do_not_depend_on_each_other averages_are_unbiased",
    lambda sound, key, q, index, count: sound(jax.random.key(0), q, index, count),
)
twin_of(
    antithetic,
    "neighbours from different pairs",
    "pairs_lie_on_both_sides_of_the_mean",
    lambda sound, key, q, index, count: sound(key, q, (index + 1) % count, count),
)
twin_of(
    antithetic,
    "the same side twice",
    "error_is_below_that_of_independent_draws error_is_never_much_above",
    lambda sound, key, q, index, count: sound(key, q, 2 * (index // 4), count),
)
for of in (sobol, latin):
    twin_of(
        of,
        "independent draws",
        "every_slice_holds_one_draw error_is_below_that_of_independent_draws",
        lambda sound, *rest: IndependentSamples().draw(*rest),
    )
twin_of(
    sobol,
    "float64 always",
    "float32_is_finite_and_stays",
    lambda sound, *rest: jax.tree.map(lambda leaf: leaf.astype(jnp.float64), sound(*rest)),
)
