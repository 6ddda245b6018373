"""The checks of conjugate models, each in float64, against textbook updates in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lamu.algorithms.closed_form.conjugate import conjugate
from lamu.algorithms.closed_form.message_passing import svi
from lamu.combine import merge, remove
from lamu.conjugacy import ConjugateModel
from lamu.families import Beta, Dirichlet, Gamma, Gaussian, NormalGamma, NormalWishart
from lamu.loop import fit
from lamu.observations import Bernoulli, Categorical, Exponential, MultivariateNormal, Normal, NormalMean, Poisson
from lamu.operators import Scalar
from lamu.posterior import Posterior
from lamu_verification.problems import Check

__all__ = ["conjugate_rows"]

ROWS = 12


def conjugate_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by public name; each is a function without arguments."""
    return {"conjugate families": _families, "svi": _svi, "merge": _merge, "remove": _remove}


def _families() -> Check:
    deviation = max(
        _distance(fit(model, {"y": y}, conjugate(), batch_size=5).posterior, expected)
        for model, y, expected in _problems()
    )
    words = "posteriors of seven textbook pairs, Beta-Bernoulli to Normal-Wishart"
    return Check("conjugate families", words, deviation, 1e-10)


def _svi() -> Check:
    deviation = 0.0
    for model, y, expected in _problems()[:4]:
        posterior = fit(model, {"y": y}, svi(), epochs=3, batch_size=4).posterior
        deviation = max(deviation, _distance(posterior, expected))
    return Check("svi", "the exact posterior after whole epochs, rate 1/(1 + t)", deviation, 1e-10)


def _merge() -> Check:
    deviation = 0.0
    for model, y, expected in _problems():
        shards = [fit(model, {"y": part}, conjugate()).posterior for part in np.split(y, 3)]
        deviation = max(deviation, _distance(merge(shards), expected))
    return Check("merge", "one fit of all rows, three shards of each textbook pair", deviation, 1e-10)


def _remove() -> Check:
    deviation = 0.0
    for model, y, _ in _problems():
        full, part = (fit(model, {"y": rows}, conjugate()).posterior for rows in (y, y[4:]))
        deviation = max(deviation, _distance(remove(full, {"y": y[:4]}), jax.tree.leaves(_weights(part))))
    return Check("remove", "a refit without the rows, each textbook pair", deviation, 1e-10)


def _weights(posterior: Posterior) -> Any:
    belief: Any = posterior.belief
    return belief.factors["network"]


def _distance(posterior: Posterior, expected: list[Any]) -> float:
    actual = jax.tree.leaves(_weights(posterior))
    return max(float(np.max(np.abs(np.asarray(a) - b))) for a, b in zip(actual, expected, strict=True))


def _problems() -> list[tuple[ConjugateModel, np.ndarray, list[Any]]]:
    """Returns models, targets and the parameters of their posteriors (Gelman et al. 2013, chapters 2 and 3)."""
    generator = np.random.default_rng(5)
    coins, dice = generator.integers(0, 2, ROWS), generator.integers(0, 3, ROWS)
    counts, waits = generator.poisson(3.0, ROWS), generator.exponential(0.5, ROWS)
    numbers = 1.0 + 0.8 * generator.normal(size=ROWS)
    vectors = generator.normal(size=(ROWS, 2)) @ np.array([[1.0, 0.4], [0.0, 0.6]]) + np.array([1.0, -2.0])
    alpha, scale, inverse = np.array([0.5, 1.0, 2.0]), 0.7, np.array([[1.0, 0.2], [0.2, 0.6]])
    precision, kappa = 2.0 + ROWS / scale**2, 0.8 + ROWS
    centre, middle = numbers.mean(), vectors.mean(axis=0)
    rate = 1.2 + ((numbers - centre) ** 2).sum() / 2 + 0.8 * ROWS * (centre - 0.3) ** 2 / (2 * kappa)
    offset = middle - np.array([0.5, 0.0])
    scatter = inverse + (vectors - middle).T @ (vectors - middle) + 0.8 * ROWS / kappa * np.outer(offset, offset)
    location = (0.8 * np.array([0.5, 0.0]) + ROWS * middle) / kappa
    return [
        (
            ConjugateModel(Bernoulli(), Beta(0.5, 2.0)),
            coins,
            [0.5 + coins.sum(), 2.0 + (1 - coins).sum()],
        ),
        (
            ConjugateModel(Categorical(3), Dirichlet(alpha)),
            dice,
            [alpha + np.bincount(dice, minlength=3)],
        ),
        (ConjugateModel(Poisson(), Gamma(2.0, 1.5)), counts, [2.0 + counts.sum(), 1.5 + ROWS]),
        (ConjugateModel(Exponential(), Gamma(2.0, 1.5)), waits, [2.0 + ROWS, 1.5 + waits.sum()]),
        (
            ConjugateModel(NormalMean(scale), Gaussian(0.3, Scalar(2.0))),
            numbers,
            [(2.0 * 0.3 + numbers.sum() / scale**2) / precision, precision],
        ),
        (
            ConjugateModel(Normal(), NormalGamma(0.3, 0.8, 1.7, 1.2)),
            numbers,
            [(0.8 * 0.3 + numbers.sum()) / kappa, kappa, 1.7 + ROWS / 2, rate],
        ),
        (
            ConjugateModel(MultivariateNormal(), NormalWishart(np.array([0.5, 0.0]), 0.8, 4.5, inverse)),
            vectors,
            [location, kappa, 4.5 + ROWS, scatter],
        ),
    ]
